"""Makes the archive of Kafka's classes, once: a JVM that has it starts in half the time, and tests start some dozens.

    python -m tests.oracles.class_archive

Best effort: without it, or without Java or Kafka, tests do as they did.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.oracles import SOURCES, class_archive, java, missing
from tests.oracles.kafka_server import KafkaServer

_LONGEST_S = 180


def main() -> None:
    if missing() is not None or class_archive().exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        server = KafkaServer(Path(folder))
        properties = server.format()
        made = Path(folder, "made.jsa")
        program = [str(SOURCES / "ClassArchive.java"), str(properties), server.bootstrap]
        command = [*java(f"-XX:ArchiveClassesAtExit={made}"), *program]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_S)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"no archive of Kafka's classes: not made within {_LONGEST_S} s\n")
            return
        if done.returncode or not made.exists():
            sys.stderr.write(f"no archive of Kafka's classes:\n{done.stderr[-2000:]}\n")
            return
        # Whole or not at all: others may be starting.
        beside = class_archive().with_suffix(".new")
        beside.write_bytes(made.read_bytes())
        beside.replace(class_archive())


if __name__ == "__main__":
    main()
