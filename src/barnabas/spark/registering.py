"""Making the data source known to a session."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.spark.core import errors
from barnabas.spark.environment import use_running_interpreter
from barnabas.spark.source import NAME, BarnabasDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Spark hands filters to Python sources only where this is on; it is off by default.
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """See `barnabas.spark.register`."""
    is_connect = _is_connect(spark)
    if not is_connect:
        use_running_interpreter(spark.sparkContext)
    try:
        # By itself this changes nothing: only reads with the option pushFilters make use of it.
        spark.conf.set(PUSHDOWN, "true")
    except Exception as error:
        log.warning("%s cannot be set here (%s): reads with the option pushFilters will fail", PUSHDOWN, error)
    spark.dataSource.register(BarnabasDataSource)
    if is_connect:
        _check_server(spark)


def _check_server(spark: SparkSession) -> None:
    """A Connect server takes any class by its name, and would fail at the first use where it cannot import it."""
    try:
        spark.read.format(NAME).load().schema  # noqa: B018
    except Exception as error:
        if "ModuleNotFoundError" in str(error) or "ImportError" in str(error):
            raise errors.SparkConnectorError(
                "The Python of the Spark Connect server cannot import Barnabas, and which Python that is was settled "
                "when the server started. Install 'barnabas[spark]' there, or set PYSPARK_PYTHON where the server "
                "starts to an interpreter that has it; for a server in this process, call "
                "barnabas.spark.environment.prepare() before the session is made."
            ) from error
        log.debug("the Spark Connect server could not be tried out", exc_info=True)


def _is_connect(spark: SparkSession) -> bool:
    """By the name of the module: to import the class of Connect sessions needs gRPC, which may not be installed."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")
