"""Spark sessions for tests: small, quiet, on loopback, and with the JVM connector if it is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark.environment import JavaError, check_java
from tests.oracles import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@cache
def missing() -> str | None:
    """Why Spark cannot run here, if so."""
    try:
        import pyspark
    except ImportError:
        return "pyspark is not installed: make test does it"
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3):
        return f"pyspark {pyspark.__version__} is older than 4.3"
    try:
        check_java()
    except JavaError as error:
        return str(error)
    return None


def connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector, if `make oracles` could fetch them."""
    folder = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / "spark-connector"
    return sorted(folder.glob("*.jar")) if (folder / "complete").exists() else []


def connector_missing() -> str | None:
    """Why there is no JVM connector to compare with, if so."""
    return None if connector_jars() else "Spark's Kafka connector is not in .oracles: run 'make oracles'"


def settings(folder: Path) -> dict[str, str]:
    """What every session of the tests is made with. All that Spark writes by itself goes to `folder`."""
    return {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "768m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The compiler that starts fast: no test lives long enough to win by the other.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars": ",".join(map(str, connector_jars())),
    }


def environment(folder: Path) -> dict[str, str]:
    """Variables for a process that starts Spark, beside those that it inherits."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
    }


def not_activated() -> dict[str, str]:
    """The variables of a shell in which nobody has activated the running interpreter's virtual environment.

    No variable names the interpreter, and the PATH leads to another one.
    """
    there = str(Path(sys.executable).parent)
    variables = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "VIRTUAL_ENV")}
    path = [each for each in variables.get("PATH", os.defpath).split(os.pathsep) if each != there]
    return variables | {"PATH": os.pathsep.join(path), "SPARK_LOCAL_IP": "127.0.0.1"}


def start_session(folder: Path, master: str = "local[2]", more: Mapping[str, str] | None = None) -> SparkSession:
    """A session with our format registered. There can be one per process; who starts it stops it."""
    from pyspark.sql import SparkSession

    import barnabas.spark

    folder.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master(master).appName("barnabas-tests")
    for name, value in {**settings(folder), **(more or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    barnabas.spark.register(spark)
    return spark
