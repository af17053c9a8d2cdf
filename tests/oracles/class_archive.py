"""Compiles the Java programs of this folder and makes the archive of Kafka's classes, once, for all tests.

    python -m tests.oracles.class_archive

A JVM that has the archive starts in half the time, and a program that is compiled in a fifth of it; tests start some
dozens. Best effort: without them, or without Java or Kafka, tests do as they did.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.oracles import SOURCES, class_archive, compiled_programs, java, kafka_jars, missing
from tests.oracles.kafka_server import KafkaServer

_LONGEST_S: Final = 180
#: What needs more than Kafka's jars, and is started as it is.
_OTHERS: Final = {"SparkConnector.java", "WordCount.java"}


def main() -> None:
    if missing() is not None:
        return
    if not compiled_programs().exists():
        _compile()
    if not class_archive().exists():
        _archive()


def _compile() -> None:
    where = compiled_programs()
    sources = [str(each) for each in sorted(SOURCES.glob("*.java")) if each.name not in _OTHERS]
    with tempfile.TemporaryDirectory(dir=where.parent) as folder:
        made = Path(folder, "made")
        command = ["javac", "-nowarn", "-d", str(made), "-cp", f"{kafka_jars()}/*", *sources]
        if shutil.which("javac") is not None and _is_done("Java programs are not compiled", command):
            # Whole or not at all: others may be starting, or doing the same.
            with suppress(OSError):
                made.rename(where)


def _archive() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = KafkaServer(Path(folder))
        properties = server.format()
        made = Path(folder, "made.jsa")
        # Not as a class: an archive knows no folders of classes.
        program = [str(SOURCES / "ClassArchive.java"), str(properties), server.bootstrap]
        command = [*java(f"-XX:ArchiveClassesAtExit={made}"), *program]
        if _is_done("no archive of Kafka's classes", command) and made.exists():
            beside = class_archive().with_suffix(".new")
            beside.write_bytes(made.read_bytes())
            beside.replace(class_archive())


def _is_done(otherwise: str, command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_S)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"{otherwise}: not within {_LONGEST_S} s\n")
        return False
    if done.returncode:
        sys.stderr.write(f"{otherwise}:\n{done.stderr[-2000:]}\n")
    return not done.returncode


if __name__ == "__main__":
    main()
