"""Making the data source known to a session."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.core import errors
from barnabas.spark.environment import use_running_interpreter
from barnabas.spark.source import NAME, BarnabasDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Spark hands filters to Python sources only where this is on; it is off by default.
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

_registering: Final = threading.Lock()


def register(spark: SparkSession) -> None:
    """See `barnabas.spark.register`."""
    try:
        # By itself this changes nothing: only reads with the option pushFilters make use of it.
        spark.conf.set(PUSHDOWN, "true")
    except Exception as error:
        log.warning("%s cannot be set here (%s): reads with the option pushFilters will fail", PUSHDOWN, error)
    if _is_connect(spark):
        spark.dataSource.register(BarnabasDataSource)
        _check_server(spark)
    else:
        use_running_interpreter(spark.sparkContext)
        _register_for_threads(spark)


def _register_for_threads(spark: SparkSession) -> None:
    """Let queries that start at the same time not disturb each other.

    All queries over one Python source share the map of its environment variables. Spark writes into it for each stream
    that starts, and sends it along with the tasks of those that run: a map that changes on the way arrives broken, and
    the query fails. Spark makes it a plain one unless it is handed one that was made for this.
    """
    context: Any = spark.sparkContext
    with _registering:
        variables = context.environment
        context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(variables)
        try:
            spark.dataSource.register(BarnabasDataSource)
        finally:
            context.environment = variables


def _check_server(spark: SparkSession) -> None:
    """A Connect server takes any class by its name, and would fail at the first use where it cannot import it."""
    try:
        spark.read.format(NAME).load().schema  # noqa: B018
    except Exception as error:
        if "ModuleNotFoundError" in str(error) or "ImportError" in str(error):
            raise errors.SparkConnectorError(
                "The Python of the Spark Connect server cannot import Barnabas, and which Python that is was settled "
                "when the server started. Install Barnabas with its extra 'spark' there (docs/installing.md), or set "
                "PYSPARK_PYTHON where the server starts to an interpreter that has it; for a server in this process, "
                "call barnabas.spark.environment.prepare() before the session is made."
            ) from error
        log.debug("the Spark Connect server could not be tried out", exc_info=True)


def _is_connect(spark: SparkSession) -> bool:
    """By the name of the module: to import the class of Connect sessions needs gRPC, which may not be installed."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")
