"""What lets Spark start sooner on a machine of its own, at prices that a demo can pay."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: Compiled lightly, one core for the garbage: right for minutes, not for days. The last one is that of all pipelines.
SETTINGS: Final = {
    "spark.driver.extraJavaOptions": ("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.stream.error.file=/dev/null")
}


@contextmanager
def installed_pyspark(folder: Path) -> Iterator[None]:
    """Let Spark's Python workers import the PySpark that is installed.

    Spark puts `$SPARK_HOME/python/lib/pyspark.zip` before it, which every new worker compiles anew: a second of CPU
    each, and an update starts about ten of them. So for the time of the block `folder` is the home of Spark: links to
    all that is in its real one, but for `python`.
    """
    spec = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" in os.environ or spec is None or not spec.submodule_search_locations:
        yield
        return
    folder.mkdir(parents=True)
    for part in ("bin", "jars"):
        (folder / part).symlink_to(Path(spec.submodule_search_locations[0]) / part, target_is_directory=True)
    os.environ["SPARK_HOME"] = str(folder)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]
