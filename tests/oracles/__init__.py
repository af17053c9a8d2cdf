"""Apache Kafka's own code, where it can be had: `make oracles` fetches its jars, and tests that need them ask here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = Path(__file__).parent

#: The release that we follow, and the last one that still had the oldest versions of messages.
CURRENT = "4.3.1"
OLDEST_VERSIONS = "3.9.1"
#: The last release of 2.x: with ZooKeeper, and without requests that tell of transactions.
WITH_ZOOKEEPER = "2.8.2"

_STOP_TIMEOUT_S = 20

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


def class_archive(release: str = CURRENT) -> Path:
    """Classes as a JVM has them in memory, so that the next need not load them anew: `class_archive.py` makes it."""
    return Path(f"{kafka_jars(release)}.jsa")


def java(*options: str, release: str = CURRENT, logs: bool = False) -> list[str]:
    """The beginning of a command that runs Kafka's code; a class or the file of a program follows."""
    jars, archive = kafka_jars(release), class_archive(release)
    assert jars is not None
    # Where an archive does not fit, the JVM goes without it; what it has to say of that belongs into no output.
    shared = (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()
    # Kafka's jars bring no backend for its logger; without the folder beside them it is silent.
    class_path = f"{jars}/*{os.pathsep}{jars.parent}/logging/*" if logs else f"{jars}/*"
    return ["java", *QUICK_JVM, *shared, *options, "-cp", class_path]


@cache
def compiled_programs(release: str = CURRENT) -> Path:
    """Where the Java programs beside this file are as classes, if `class_archive.py` compiled what they are now."""
    found = sha256()
    for each in sorted(SOURCES.glob("*.java")):
        found.update(each.read_bytes())
    return Path(f"{kafka_jars(release)}.programs-{found.hexdigest()[:16]}")


def java_program(source: str, release: str = CURRENT) -> list[str]:
    """The command that runs one of those programs, or one elsewhere by its path; its arguments are added to it."""
    *command, class_path = java(release=release)
    compiled, name = compiled_programs(release), source.removesuffix(".java")
    if (compiled / f"{name}.class").exists():
        return [*command, f"{class_path}{os.pathsep}{compiled}", name]
    # Java compiles it each time, which takes longer than what most of them do.
    return [*command, class_path, str(SOURCES / source)]


def end_process(process: subprocess.Popen[bytes] | None, how: signal.Signals) -> None:
    """One that does not stop in time is killed; one that was stopped goes on so that it can end."""
    if process is None:
        return
    process.send_signal(how)
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_java(source: str, text: str, release: str = CURRENT, arguments: tuple[str, ...] = ()) -> str:
    """Run one of the Java programs beside this file with Kafka on its class path; give it `text`, return its output."""
    done = subprocess.run(
        [*java_program(source, release), *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
