"""What must be right around Spark: the Python of its workers, the address of its driver, and a Java that it can use."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import BarnabasError

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

OLDEST_JAVA: Final = 17
#: Spark's launcher asks for it; runtimes that were cut down to a few modules do not have it.
NEEDED_MODULE: Final = "jdk.incubator.vector"
_HOW_TO_GET_JAVA: Final = (
    f"install Java {OLDEST_JAVA} (Debian and Ubuntu: apt install openjdk-17-jre-headless; Fedora: dnf install "
    "java-17-openjdk-headless; macOS: brew install openjdk@17) and let JAVA_HOME or PATH lead to it"
)


class JavaError(BarnabasError):
    """There is no Java that Spark could run on; the message says how to get one."""


def check_java(environment: Mapping[str, str] | None = None) -> None:
    """Raise `JavaError` where the Java that Spark's launcher would pick is missing, too old or cut down."""
    variables = os.environ if environment is None else environment
    home = variables.get("JAVA_HOME")
    path = str(Path(home, "bin", "java")) if home else shutil.which("java", path=variables.get("PATH"))
    if path is None:
        raise JavaError(f"Spark needs Java, and there is none on the PATH, nor is JAVA_HOME set: {_HOW_TO_GET_JAVA}")
    _check_java_at(path, home)


# A Java that will do is asked once; what is raised is not kept, since people do as the message says and try again.
@cache
def _check_java_at(path: str, home: str | None) -> None:
    # One question for all, since each takes a fraction of a second; only a Java that cannot answer is asked for more.
    usable = _ask(path, f"--add-modules={NEEDED_MODULE}", "-version")
    told = usable or _ask(path, "-version")
    # 1.8 was the last one to count so; its successors are 9, 10, 11 …
    found = re.search(r'version "(?:1\.)?(\d+)', told or "")
    if found is None:
        where = f" (from JAVA_HOME={home})" if home else ""
        raise JavaError(f"Spark needs Java, and {path}{where} does not start: {_HOW_TO_GET_JAVA}")
    version = int(found[1])
    if version < OLDEST_JAVA:
        raise JavaError(f"Spark needs Java {OLDEST_JAVA} or newer, and {path} is Java {version}: {_HOW_TO_GET_JAVA}")
    if usable is None:
        raise JavaError(
            f"Spark needs the module {NEEDED_MODULE}, which {path} (Java {version}) was built without: "
            f"{_HOW_TO_GET_JAVA}"
        )


def _ask(*command: str) -> str | None:
    """What a program says, on either stream; None if it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr + done.stdout if done.returncode == 0 else None


def prepare(environment: MutableMapping[str, str] | None = None) -> None:
    """Set what a Spark that is not started yet takes from the environment, where the user has set nothing.

    PYSPARK_PYTHON: workers, and the search for data sources, run on this interpreter also where its virtual environment
    is not activated. SPARK_LOCAL_IP: the driver listens on loopback only; for a Spark on this machine alone.
    """
    variables = os.environ if environment is None else environment
    variables.setdefault("PYSPARK_PYTHON", sys.executable)
    variables.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def installed_pyspark(folder: Path) -> Iterator[None]:
    """Let the Python workers of a Spark on this machine import the PySpark that is installed.

    Spark puts `$SPARK_HOME/python/lib/pyspark.zip` before it, which every new worker compiles anew: a second of CPU
    each, and a pipeline starts about ten of them. So for the time of the block `folder` is the home of Spark: links to
    all that is in its real one, but for `python`.
    """
    spec = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" in os.environ or spec is None or not spec.submodule_search_locations:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("bin", "jars"):
        link = folder / part
        link.unlink(missing_ok=True)  # of an installation that may be gone
        link.symlink_to(Path(spec.submodule_search_locations[0]) / part, target_is_directory=True)
    os.environ["SPARK_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)


def use_running_interpreter(context: SparkContext) -> None:
    """Let the workers of a Spark that runs already use this interpreter, unless somebody has chosen one.

    Without this they run on whatever `python3` of the PATH is: not the one of a virtual environment that was not
    activated, and then without Barnabas. A context reads the environment once, when it is made, and hands its
    `pythonExec` to each function and data source that is registered later: that is the place where it still counts.
    Other machines need not have this interpreter where it is here: what runs there is left as it is, and warned of.

    The address of the driver (SPARK_LOCAL_IP) was settled when the context was made: only `prepare` can set it.
    """
    if "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python"):
        return
    usual = shutil.which(context.pythonExec)
    # A virtual environment has links to the interpreter that it was made from, so the file alone does not say what is
    # installed; nor does the folder alone, where several versions lie side by side.
    running = Path(sys.executable)
    if usual is not None and Path(usual).parent == running.parent and Path(usual).resolve() == running.resolve():
        return
    master = context.master or ""
    if master.startswith("local"):
        log.info("Spark's Python workers use %s instead of %s", sys.executable, context.pythonExec)
        context.pythonExec = sys.executable
    else:
        _warn_of_another_interpreter(master, context.pythonExec)


@cache
def _warn_of_another_interpreter(master: str, python: str) -> None:
    """Once: programs register wherever they need to."""
    log.warning(
        "Spark's Python workers at %s run on %s, not on %s. If that has no Barnabas, queries will fail: set "
        "PYSPARK_PYTHON or spark.pyspark.python, before the session is made, to an interpreter that has it on all "
        "machines.",
        master,
        python,
        sys.executable,
    )
