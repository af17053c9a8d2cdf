"""Apache Kafka opens logs that we wrote, with its own `UnifiedLog`, and dumps them with its own tool."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.records import BatchBuilder, BatchView, Codec, emptied
from barnabas.storage.log import PartitionLog
from tests.compat.dumps import dumps, expected_gaps, expected_lines, gaps_in, lines_of
from tests.compat.players import (
    ABANDON,
    CLOSE,
    NOW_MS,
    SMALL,
    Command,
    KafkaPlayer,
    OurPlayer,
    content,
    from_leader,
    opened,
    questions,
)
from tests.compat.stories import everything, records

APPEND_TIME = SMALL | {"message.timestamp.type": "LogAppendTime"}
COMPACTED = SMALL | {"cleanup.policy": "compact"}
STARTS = ("clean", "unclean", "half flushed")


def compacted() -> list[Command]:
    """What a cleaner leaves: gaps within and between batches, batches without records, delete horizons."""
    script = []
    offset = 0
    for step in range(40):
        is_empty = step % 7 == 5
        builder = BatchBuilder(
            10_000,
            codec=list(Codec)[step % 5],
            base_offset=offset,
            leader_epoch=step // 10,
            producer_id=5 if is_empty else -1,
            producer_epoch=1 if is_empty else -1,
            base_sequence=3 * step if is_empty else -1,
            delete_horizon_ms=NOW_MS + 5 if step % 6 == 1 else None,
        )
        # In a batch without records Kafka's tool finds none that is as young as its header says: here none is youngest.
        first_ms = NOW_MS - 1000 if is_empty else NOW_MS + step
        for number, (time_ms, key, value, headers) in enumerate(records(step, 3, first_ms)):
            builder.append(value, key or b"key", time_ms, headers, offset_delta=number * 2)
        batch = builder.build()
        if is_empty:
            batch = emptied(BatchView(batch))
        script.append(from_leader(batch, leader_epoch=step // 10))
        offset = BatchView(batch).next_offset + (4 if step % 3 == 0 else 0)
    return script


LOGS: dict[str, tuple[dict[str, str], list[Command]]] = {
    "everything": (SMALL, everything()),
    "append time": (APPEND_TIME, everything()),
    "compacted": (COMPACTED, compacted()),
    "empty": (SMALL, []),
}


class Seen(NamedTuple):
    """What was answered after a start, and the files once the log was closed again."""

    answers: list[Any]
    files: dict[str, Any]


class Comparison:
    """Our logs on disk, what we and Kafka see in copies of them, and what Kafka's tool prints of them."""

    def __init__(self, root: Path, kafka: KafkaPlayer) -> None:
        self.root = root
        self.ours: dict[tuple[str, str], Seen] = {}
        self.kafkas: dict[tuple[str, str], Seen] = {}
        self.printed: dict[tuple[str, str], str] = {}
        self.directories = {name: root / "written" / name / "clicks-3" for name in LOGS}
        for name, (settings, story) in LOGS.items():
            player = OurPlayer()
            answers = player.play([opened(self.directories[name], settings), *story])
            assert not [answer for answer in answers if "error" in str(answer)]
            log = player.log
            asked = questions(log)
            middle = log.segments[len(log.segments) // 2].base_offset
            player.play([CLOSE])
            starts: dict[str, dict[str, Any]] = {
                "clean": {"was_clean": True, "recovery_point": log.log_end_offset},
                "unclean": {"was_clean": False},
                "half flushed": {"was_clean": False, "recovery_point": middle},
            }
            for start, how in starts.items():
                self.ours[name, start] = self._seen(OurPlayer(), f"ours {start}", name, asked, how)
                self.kafkas[name, start] = self._seen(kafka, f"kafkas {start}", name, asked, how)
            for kind, command in dumps(self.directories[name]).items():
                (self.printed[name, kind],) = kafka.play([command])

    def _seen(
        self, player: OurPlayer | KafkaPlayer, where: str, name: str, asked: list[Command], how: dict[str, Any]
    ) -> Seen:
        copy = self.root / where / name / "clicks-3"
        shutil.copytree(self.directories[name], copy)
        return Seen(player.play([opened(copy, LOGS[name][0], **how), *asked, CLOSE]), content(copy))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaPlayer) -> Comparison:
    return Comparison(tmp_path_factory.mktemp("logs"), kafka)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", LOGS)
def test_kafka_sees_in_our_log_what_we_see(compared: Comparison, name: str, start: str) -> None:
    assert compared.kafkas[name, start].answers == compared.ours[name, start].answers


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", LOGS)
def test_kafka_leaves_the_files_as_we_do(compared: Comparison, name: str, start: str) -> None:
    assert compared.kafkas[name, start].files == compared.ours[name, start].files


@pytest.fixture(scope="module")
def logs(compared: Comparison) -> Iterator[dict[str, PartitionLog]]:
    """The logs that were dumped, opened by us."""
    players = {name: OurPlayer() for name in LOGS}
    for name, player in players.items():
        player.play([opened(compared.directories[name], LOGS[name][0])])
    yield {name: player.log for name, player in players.items()}
    for player in players.values():
        player.play([ABANDON])


@pytest.mark.parametrize("name", LOGS)
def test_kafkas_tool_prints_every_record_that_we_wrote(
    compared: Comparison, logs: dict[str, PartitionLog], name: str
) -> None:
    printed = compared.printed[name, "log"]
    assert lines_of(printed) == expected_lines("log", logs[name])
    assert gaps_in(printed) == expected_gaps(logs[name])


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_kafkas_tool_finds_the_entries_of_our_indexes_and_no_mismatch(
    compared: Comparison, logs: dict[str, PartitionLog], name: str, kind: str
) -> None:
    assert lines_of(compared.printed.get((name, kind), "")) == expected_lines(kind, logs[name])


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_our_indexes_pass_kafkas_check(compared: Comparison, name: str, kind: str) -> None:
    files = sorted(compared.directories[name].glob(f"*.{kind}"))
    said = lines_of(compared.printed[name, f"{kind} that is checked"])
    # Of an index without entries the tool says nothing but that.
    assert said == [f"{file} passed sanity check." for file in files if file.stat().st_size or kind == "timeindex"]


@pytest.mark.parametrize("name", ["everything", "append time"])
def test_kafkas_tool_reads_our_snapshots(compared: Comparison, logs: dict[str, PartitionLog], name: str) -> None:
    printed = compared.printed[name, "snapshot"]
    newest = printed.rpartition("Dumping ")[2]
    assert [line.split()[1] for line in lines_of(newest)[1:]] == [
        str(entry.producer_id) for entry in logs[name].producers.entries()
    ]
