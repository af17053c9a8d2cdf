"""What `register` does to a session, and what it says where that cannot work."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import AnalysisException

import barnabas.spark
from barnabas.spark.core.errors import SparkConnectorError
from barnabas.spark.registering import PUSHDOWN
from barnabas.spark.source import BarnabasDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Session:
    """As much of a session as is touched. A Connect session has another module, and no context."""

    def __init__(self, problem: str | None = None) -> None:
        self.settings: dict[str, str] = {}
        self.registered: list[type] = []
        self.conf = SimpleNamespace(set=self.settings.__setitem__)
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.read = self
        self.problem = problem

    def format(self, name: str) -> Session:
        assert name == "barnabas"
        return self

    def load(self) -> Session:
        if self.problem is not None:
            raise AnalysisException(self.problem)
        return self

    @property
    def schema(self) -> None:
        return None


class ConnectSession(Session):
    __module__ = "pyspark.sql.connect.session"


def test_a_connect_server_that_has_no_barnabas_is_told_of_at_once() -> None:
    session = ConnectSession()
    barnabas.spark.register(cast(Any, session))
    assert session.registered == [BarnabasDataSource]
    assert session.settings == {PUSHDOWN: "true"}
    with pytest.raises(SparkConnectorError, match="set PYSPARK_PYTHON where the server starts"):
        barnabas.spark.register(cast(Any, ConnectSession("ModuleNotFoundError: No module named 'barnabas'")))
    # Something else may be wrong with the try alone; the first use will tell.
    barnabas.spark.register(cast(Any, ConnectSession("not allowed here")))


def test_a_session_whose_settings_are_closed_is_registered_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(name: str, value: str) -> None:
        raise AnalysisException("not in a pipeline")

    session = ConnectSession()
    session.conf = SimpleNamespace(set=refuse)
    with caplog.at_level(logging.WARNING):
        barnabas.spark.register(cast(Any, session))
    assert session.registered == [BarnabasDataSource]
    assert f"{PUSHDOWN} cannot be set here (not in a pipeline)" in caplog.text


def test_streams_that_start_at_once_share_a_map_that_is_made_for_it(spark: SparkSession) -> None:
    """Spark writes into the variables of a source for every stream that starts, and sends them along with tasks."""
    variables = spark.sparkContext.environment
    session = spark.newSession()
    barnabas.spark.register(session)
    assert spark.sparkContext.environment is variables
    found = cast(Any, session)._jsparkSession.sessionState().dataSourceManager().lookupDataSource("barnabas")
    shared = found.dataSourceCls().envVars()
    assert shared.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert dict(shared) == variables


def test_spark_finds_the_source_by_itself_and_loads_little_for_it() -> None:
    """Every worker that starts imports it. pandas, gRPC and the broker would each cost it more than all the rest."""
    code = (
        "import sys, barnabas.spark; early = {name.partition('.')[0] for name in sys.modules};"
        "import pyspark_barnabas as found; print(found.DefaultSource.name(), 'pyspark' in early,"
        "[name for name in ('pandas', 'grpc', 'barnabas.broker', 'barnabas.testing') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split(maxsplit=1) == ["barnabas", "False []\n"]
