"""A Spark that starts in half the time: with an archive of its classes, and Python's modules compiled already.

`python -m tests.spark.exactly_once.quick_spark FOLDER` is the program whose classes go into the archive.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.oracles import ROOT
from tests.spark.rig import sessions

_HOME, _ARCHIVE = "home", "spark.jsa"
#: Under this name the options of Java come to who starts a session.
_JAVA_OPTIONS = "BARNABAS_SPARK_JAVA_OPTIONS"


def prepare(folder: Path) -> dict[str, str]:
    """Variables for a process that starts Spark. Makes what is not there yet; the folder must not move after that."""
    _make_home(folder / _HOME)
    archive = folder / _ARCHIVE
    if not archive.exists():
        new = folder / "new.jsa"
        subprocess.run(
            [sys.executable, "-m", "tests.spark.exactly_once.quick_spark", str(folder / "session")],
            cwd=ROOT,
            env=_variables(folder, f"-XX:ArchiveClassesAtExit={new}"),
            check=True,
            capture_output=True,
        )
        new.rename(archive)
    return _variables(folder, f"-XX:SharedArchiveFile={archive} -Xlog:disable")


def java_options(folder: Path) -> dict[str, str]:
    """Settings for a session, beside those of all tests."""
    given = sessions.settings(folder)["spark.driver.extraJavaOptions"]
    options = f"{given} {os.environ.get(_JAVA_OPTIONS, '')}".strip()
    return {"spark.driver.extraJavaOptions": options, "spark.executor.extraJavaOptions": options}


def _variables(folder: Path, options: str) -> dict[str, str]:
    own: Mapping[str, str] = {"SPARK_HOME": str(folder / _HOME), _JAVA_OPTIONS: options}
    return {**os.environ, **sessions.environment(folder), **own}


def _make_home(home: Path) -> None:
    """Spark as it is installed, but that its workers find PySpark in a folder, not in an archive of source text."""
    import pyspark

    there = Path(pyspark.__file__).parent
    libraries = home / "python" / "lib"
    libraries.mkdir(parents=True, exist_ok=True)
    links = {home / name: there / name for name in ("bin", "sbin", "jars")}
    links |= {libraries / each.name: each for each in (there / "python" / "lib").iterdir()}
    links[libraries / "pyspark.zip"] = there.parent
    for link, target in links.items():
        if not link.exists():
            link.symlink_to(target)


def main(folder: Path) -> None:
    spark = sessions.start_session(folder, "local[2]", {"spark.jars": "", **java_options(folder)})
    query = spark.readStream.format("rate").load().writeStream.format("noop").trigger(once=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
