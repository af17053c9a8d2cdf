"""Two players of one script: Apache Kafka's log and ours. Each command gets an answer, and the answers can be compared.

A script is a list of commands, each with the name of what is to be done and its arguments. `KafkaPlayer` lets Kafka's
own `UnifiedLog` play it, `OurPlayer` ours.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from threading import Timer
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.records import BatchBuilder, Codec, TransactionMarker, build_marker, iter_batches
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from barnabas.storage.errors import AppendRefusedError, LogError
from barnabas.storage.leader_epochs import LEADER_EPOCH_FILE
from barnabas.storage.log import Appended, PartitionLog
from barnabas.storage.producer_snapshot import SNAPSHOT_SUFFIX, decode_snapshot
from barnabas.storage.real_files import RealFileSystem
from barnabas.storage.recovery import load_log
from barnabas.storage.segment import DELETED_SUFFIX
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import prepare_from_client, prepare_from_coordinator, prepare_from_leader
from tests.oracles import java_program

Command = dict[str, Any]
Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("clicks", 3)
_LONGEST_SCRIPT_S = 120
MAX_TIMESTAMP = -3  # how a client asks for the youngest record

#: Small enough for a few batches to fill several segments with several index entries each.
SMALL = {
    "internal.segment.bytes": "3000",
    "index.interval.bytes": "300",
    "max.message.bytes": "2000",
    "segment.index.bytes": "2048",
}


# Commands


def opened(
    directory: Path,
    settings: dict[str, str],
    *,
    was_clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = NOW_MS,
) -> Command:
    return {
        "do": "open",
        "directory": str(directory),
        "settings": settings,
        "was_clean": was_clean,
        "recovery_point": recovery_point,
        "log_start_offset": log_start_offset,
        "now_ms": now_ms,
    }


def from_client(batch: bytes | bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> Command:
    return {"do": "client", "hex": batch.hex(), "leader_epoch": leader_epoch, "now_ms": now_ms}


def from_leader(batches: bytes | bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> Command:
    return {"do": "replication", "hex": batches.hex(), "leader_epoch": leader_epoch, "now_ms": now_ms}


def built(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
) -> Command:
    """Each player builds the batch with its own builder."""
    return {
        "do": "build",
        "records": [
            [timestamp_ms, _hex(key), _hex(value), [[name, _hex(content)] for name, content in headers]]
            for timestamp_ms, key, value, headers in records
        ],
        "codec": codec.name.lower(),
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "transactional": transactional,
        "leader_epoch": leader_epoch,
        "now_ms": now_ms,
    }


def ended(
    producer_id: int,
    producer_epoch: int = 0,
    *,
    committed: bool,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
) -> Command:
    """The marker of a transaction's end, of each player's own making."""
    return {
        "do": "marker",
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "committed": committed,
        "coordinator_epoch": coordinator_epoch,
        "leader_epoch": leader_epoch,
        "now_ms": now_ms,
    }


def watermark(offset: int) -> Command:
    return {"do": "watermark", "offset": offset}


def questions(log: PartitionLog) -> list[Command]:
    """Everything that can be asked of a log: its state, reads at every offset, lookups of every timestamp."""
    offsets = range(log.log_start_offset, log.log_end_offset)
    times_ms = {batch.max_timestamp_ms for batch in log.batches(log.log_start_offset)}
    asked_ms = sorted({time_ms + step for time_ms in times_ms for step in (-1, 0, 1)} | {0})
    first = log.segments[0]
    if log.log_start_offset > first.base_offset:
        # Kafka looks only into the first segment that is young enough, and finds nothing if that part of it is deleted.
        asked_ms = [time_ms for time_ms in asked_ms if time_ms > first.max_timestamp[0]]
    epochs = [entry.epoch for entry in log.epochs.entries] or [0]
    reads = [[offset, max_bytes] for offset in offsets for max_bytes in (1, 500, 5000)]
    return [
        {"do": "state"},
        {"do": "read", "isolation": "LOG_END", "reads": reads},
        watermark(log.log_end_offset),
        {"do": "state"},
        {"do": "read", "isolation": "TXN_COMMITTED", "reads": reads},
        {"do": "times", "timestamps": [*asked_ms, MAX_TIMESTAMP]},
        {"do": "epoch_ends", "epochs": list(range(epochs[0] - 1, epochs[-1] + 2))},
    ]


CLOSE: Command = {"do": "close"}
ABANDON: Command = {"do": "abandon"}
ROLL: Command = {"do": "roll"}
STATE: Command = {"do": "state"}


# Players


class KafkaPlayer:
    """Plays scripts with Kafka's log, in a process of its own that must be closed."""

    def __init__(self) -> None:
        self._complaints = TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            java_program("KafkaLog.java"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            encoding="utf-8",
        )

    def play(self, script: Iterable[Command]) -> list[Any]:
        # Whatever hangs there is ended here.
        watch = Timer(_LONGEST_SCRIPT_S, self._process.kill)
        watch.start()
        try:
            return [self._answer(command) for command in script]
        finally:
            watch.cancel()

    def _answer(self, command: Command) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            raise AssertionError(f"Kafka gave up: {self._complaints.read()[-4000:]}")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate(timeout=_LONGEST_SCRIPT_S)
        self._complaints.close()


class OurPlayer:
    """Plays scripts with our log, on the machine's file system."""

    def __init__(self) -> None:
        self.files = RealFileSystem()
        self.now_ms = NOW_MS
        self._log: PartitionLog | None = None

    @property
    def log(self) -> PartitionLog:
        assert self._log is not None
        return self._log

    def play(self, script: Iterable[Command]) -> list[Any]:
        return [self.answer(command) for command in script]

    def answer(self, command: Command) -> Any:
        """As Kafka's player answers: in plain lists and numbers."""
        arguments = {name: value for name, value in command.items() if name not in ("do", "now_ms")}
        self.now_ms = command.get("now_ms", self.now_ms)
        try:
            answer = getattr(self, f"_{command['do']}")(**arguments)
        except (AppendRefusedError, LogError) as refusal:
            answer = {"error": refusal.code.name}
        return json.loads(json.dumps(answer))

    def _open(
        self, directory: str, settings: dict[str, str], was_clean: bool, recovery_point: int, log_start_offset: int
    ) -> str:
        self._log = load_log(
            self.files,
            directory,
            PARTITION,
            TopicSettings.load(settings),
            was_clean=was_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_ms=self.now_ms,
            randomness=Random(1),
        )
        return "open"

    def _client(self, hex: str, leader_epoch: int) -> Any:
        prepared = prepare_from_client(bytes.fromhex(hex), self.log.settings, self.now_ms)
        return _placed(self.log.append(prepared, leader_epoch=leader_epoch, now_ms=self.now_ms))

    def _coordinator(self, hex: str, leader_epoch: int) -> Any:
        prepared = prepare_from_coordinator(bytes.fromhex(hex), self.log.settings)
        return _placed(self.log.append(prepared, leader_epoch=leader_epoch, now_ms=self.now_ms))

    def _replication(self, hex: str, leader_epoch: int) -> Any:
        appended = self.log.append_as_follower(prepare_from_leader(bytes.fromhex(hex)), now_ms=self.now_ms)
        assert appended is not None
        return _placed(appended)

    def _build(self, records: list[Any], codec: str, leader_epoch: int, **header: Any) -> Any:
        builder = BatchBuilder(1 << 20, codec=Codec[codec.upper()], **header)
        for timestamp_ms, key, value, headers in records:
            builder.append(
                _bytes(value), _bytes(key), timestamp_ms, [(name, _bytes(content)) for name, content in headers]
            )
        return self._client(builder.build().hex(), leader_epoch)

    def _marker(
        self, producer_id: int, producer_epoch: int, committed: bool, coordinator_epoch: int, leader_epoch: int
    ) -> Any:
        marker = TransactionMarker(producer_id, producer_epoch, coordinator_epoch, committed)
        return self._coordinator(build_marker(marker, self.now_ms).hex(), leader_epoch)

    def _watermark(self, offset: int) -> int:
        self.log.set_high_watermark(offset)
        return self.log.high_watermark

    def _log_start(self, offset: int) -> bool:
        return self.log.advance_log_start(offset)

    def _truncate(self, offset: int) -> bool:
        if not self.log.log_start_offset <= offset < self.log.log_end_offset:
            return False
        batch = next(iter(self.log.batches(offset)))
        if batch.base_offset < self.log.log_start_offset:
            return False
        self.log.truncate_to(batch.base_offset, self.now_ms)
        return True

    def _roll(self) -> int:
        return self.log.roll(self.now_ms).base_offset

    def _delete_old(self) -> int:
        return self.log.delete_old_segments(self.now_ms)

    def _flush(self) -> int:
        self.log.flush()
        return self.log.recovery_point

    def _state(self) -> dict[str, Any]:
        log = self.log
        return {
            "log_start_offset": log.log_start_offset,
            "next_offset": log.log_end_offset,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable_offset,
            "segments": [
                [
                    segment.base_offset,
                    segment.size_bytes,
                    len(segment.offset_index),
                    len(segment.time_index),
                    segment.max_timestamp[0],
                ]
                for segment in log.segments
            ],
            "epochs": log.epochs.entries,
            "producers": [
                [
                    entry.producer_id,
                    entry.epoch,
                    entry.last_sequence,
                    entry.last_offset,
                    entry.offset_delta,
                    entry.timestamp,
                    entry.coordinator_epoch,
                    entry.current_txn_first_offset,
                ]
                for entry in log.producers.entries()
            ],
        }

    def _read(self, isolation: str, reads: list[list[int]]) -> list[Any]:
        log = self.log
        end_offset = log.log_end_offset if isolation == "LOG_END" else log.last_stable_offset
        segments = {segment.file: segment.base_offset for segment in log.segments}
        answers: list[Any] = []
        for offset, max_bytes in reads:
            found = log.read(offset, max_bytes, end_offset=end_offset).range
            if found is None:
                answers.append([])
                continue
            aborted = log.aborted_transactions(offset, found) if isolation == "TXN_COMMITTED" else []
            data_end = max(batch.next_offset for batch in iter_batches(found.read()))
            known = [[each.producer_id, each.first_offset] for each in aborted if each.first_offset < data_end]
            answers.append([segments[found.file], found.position, found.size_bytes, known])
        return answers

    def _times(self, timestamps: list[int]) -> list[Any]:
        log = self.log
        return [
            (log.offset_of_max_timestamp() if time_ms == MAX_TIMESTAMP else log.offset_for_timestamp(time_ms)) or []
            for time_ms in timestamps
        ]

    def _epoch_ends(self, epochs: list[int]) -> list[Any]:
        return [self.log.epochs.end_offset_for(epoch, self.log.log_end_offset) for epoch in epochs]

    def _close(self) -> str:
        self.log.close()
        return "closed"

    def _abandon(self) -> str:
        self.log.abandon()
        return "abandoned"


def _placed(appended: Appended) -> list[int]:
    return [appended.first_offset, appended.last_offset, appended.append_time_ms]


def _hex(part: bytes | None) -> str | None:
    return None if part is None else part.hex()


def _bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def content(directory: Path) -> dict[str, Any]:
    """The files of a partition, without those that wait for their removal, and entries of snapshots in a fixed order.

    Kafka makes the file of leader epochs before there is one: such an empty file is left out.
    """
    files: dict[str, Any] = {}
    for path in sorted(directory.iterdir()):
        if path.suffix == SNAPSHOT_SUFFIX:
            files[path.name] = sorted(map(repr, decode_snapshot(path.read_bytes(), path.name)))
        elif path.suffix != DELETED_SUFFIX and (path.name != LEADER_EPOCH_FILE or path.stat().st_size):
            files[path.name] = path.read_bytes()
    return files
