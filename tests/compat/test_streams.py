"""Kafka Streams counts words with `exactly_once_v2`, is killed in the midst of it and started again: counts are exact.

The program is tests/oracles/WordCount.java. Each word is counted up by one with each record that has it, so that
read_committed must see 1, 2, 3 … of every word: nothing twice, nothing missing, in order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.compat.brokers import unique
from tests.compat.confluent_client import Confluent
from tests.compat.samples import Sample
from tests.oracles import QUICK_JVM, ROOT, SOURCES, other_process

JARS: Final = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / "kafka-streams"
WORDS: Final = ("red", "green", "blue", "black")
LINES: Final = 600
PATIENCE_S: Final = 90


def missing() -> str | None:
    if shutil.which("java") is None:
        return "java is not installed"
    found = any(JARS.glob("kafka-streams-*.jar"))
    return None if found else "Kafka Streams is not in .oracles: run 'make oracles'"


pytestmark = [other_process(missing()), pytest.mark.slow]


def line(number: int) -> str:
    return " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 3, 7))


@contextmanager
def word_count(bootstrap: str, name: str, source: str, target: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, until it is killed."""
    with (folder / "streams.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *("java", *QUICK_JVM, "-cp", f"{JARS}/*", str(SOURCES / "WordCount.java")),
                *(bootstrap, name, source, target, str(folder / "state")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def counted(consumer: Any, counts: dict[str, list[int]], total: int, process: subprocess.Popen[bytes]) -> None:
    """Read what is committed, until there are so many counts."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, counts.values())) < total:
        assert process.poll() is None, "Streams ended by itself"
        assert time.monotonic() < deadline, f"{sum(map(len, counts.values()))} of {total} counts came"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            counts[message.key().decode()].append(int(message.value()))


def test_words_are_counted_exactly_once(transacting: str, tmp_path: Path) -> None:
    client = Confluent(transacting)
    source, target, name = client.topic(2), client.topic(2), unique("words")
    lines = [line(number) for number in range(LINES)]
    expected = Counter(word for each in lines for word in each.split())
    half, total = LINES // 2, sum(expected.values())
    counts: dict[str, list[int]] = defaultdict(list)
    settings = {"isolation.level": "read_committed"}
    with client.consumer(settings=settings) as consumer:
        consumer.subscribe([target])
        client.produce(source, [Sample(each.encode(), b"%d" % at) for at, each in enumerate(lines[:half])])
        with word_count(transacting, name, source, target, tmp_path) as process:
            # Killed while it has a part of the first half behind it.
            counted(consumer, counts, half, process)
        client.produce(source, [Sample(each.encode(), b"%d" % at) for at, each in enumerate(lines[half:])])
        # Its state is gone with its disk: it is restored from the changelog, without what was aborted.
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        for _ in range(2):
            with word_count(transacting, name, source, target, tmp_path) as process:
                so_far = sum(map(len, counts.values()))
                counted(consumer, counts, min(total, so_far + 30), process)
        with word_count(transacting, name, source, target, tmp_path) as process:
            counted(consumer, counts, total, process)
        assert consumer.poll(1.0) is None
    assert dict(counts) == {word: list(range(1, times + 1)) for word, times in expected.items()}
