"""Apache Kafka's own code, where it can be had: `make oracles` fetches its jars, and tests that need them ask here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = Path(__file__).parent

#: The release that we follow, and the last one that still had the oldest versions of messages.
CURRENT = "4.3.1"
OLDEST_VERSIONS = "3.9.1"

#: The compiler and the collector that start fast: these programs live for seconds.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def kafka_jars(release: str = CURRENT) -> Path | None:
    """The folder with the jars of a release, if it was fetched."""
    folder = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / f"kafka-{release}"
    return folder if any(folder.glob("kafka-clients-*.jar")) else None


def missing(release: str = CURRENT) -> str | None:
    """Why Kafka's code cannot run here, if so."""
    if shutil.which("java") is None:
        return "java is not installed"
    return None if kafka_jars(release) else f"Kafka {release} is not in .oracles: run 'make oracles'"


def needs_kafka(release: str = CURRENT) -> pytest.MarkDecorator:
    """Marks a test that runs Kafka's own code."""
    return other_process(missing(release))


def other_process(missing: str | None = None) -> pytest.MarkDecorator:
    """Marks a test that starts a program which is not ours, and skips it where that is missing.

    Such a test may wait in vain beside all the others, so `make test` runs it once more alone if it fails.
    """
    return pytest.mark.other_process(missing=missing)


def run_java(source: str, text: str, release: str = CURRENT, arguments: tuple[str, ...] = ()) -> str:
    """Run one of the Java programs beside this file with Kafka on its class path; give it `text`, return its output."""
    done = subprocess.run(
        ["java", *QUICK_JVM, "-cp", f"{kafka_jars(release)}/*", str(SOURCES / source), *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
