"""Two nodes that are told the same, one of which deals with produce requests by the rules alone.

`Twins` hands each frame to both and compares what comes of it: answers, reasons to close, and all that the nodes know
and have written. `Producer` makes frames: such as clients send, and such as none should.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from crc32c import crc32c

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.broker.handlers import produce
from barnabas.broker.router import Router
from barnabas.net import Connection
from barnabas.records import Codec
from barnabas.records.batch import ATTRIBUTES_AT, CRC_AT, MAX_SEQUENCE
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.storage.log import PartitionLog
from barnabas.storage.segment import Segment
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire import encode_request
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.connections import FakeConnection
from tests.broker.data_plane import DataPlane, batch

#: Name, and what is set, of the topics of both: one for each rule that a batch may come up against.
TOPICS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"partitions": 2},
    "compacted": {"cleanup_policy": "compact"},
    "append-time": {"message_timestamp_type": "LogAppendTime"},
    "recoded": {"compression_type": "gzip"},
    "short-segments": {"internal_segment_bytes": "600"},
    "young-segments": {"segment_ms": "1500", "segment_jitter_ms": "100"},
    "dense": {"index_interval_bytes": "1", "segment_index_bytes": "48"},
    "flushed": {"flush_messages": "4"},
    "small": {"max_message_bytes": "150"},
    "on-time": {"message_timestamp_before_max_ms": "5000", "message_timestamp_after_max_ms": "5000"},
    "replicated": {"replicas": (1, 2), "min_insync_replicas": "2"},
    "elsewhere": {"replicas": (2, 3)},
    "__consumer_offsets": {},
}
#: What clients name that is not there.
UNKNOWN: Final = "unknown"
#: Of all producers but the last the sequences begin at 0; it comes from far.
PRODUCERS: Final = (10, 11, 12)
_FAR_SEQUENCE: Final = MAX_SEQUENCE - 3
#: The names of the twins, where errors tell a path: of the same length.
COMPILED: Final = "twin-kernel"
RULED: Final = "twin-rules-"


class Twin:
    """A node. `taken`: how many requests were appended without being decoded."""

    def __init__(self, plane: DataPlane, *, is_compiled: bool) -> None:
        self.plane = plane
        self.taken = 0
        self.router = Router([produce], plane.services.turns)
        self.router.open(plane.services)
        route = self.router._routes[ApiKey.PRODUCE]
        handle_frame = route.handle_frame
        assert handle_frame is not None

        def counted(*given: Any) -> Any:
            answer = handle_frame(*given)
            self.taken += answer is not None
            return answer

        self.router._routes[ApiKey.PRODUCE] = replace(route, handle_frame=counted if is_compiled else None)
        #: Of each request one, since some wait for long.
        self.connections: list[FakeConnection] = []

    def send(self, frame: bytes) -> None:
        connection = FakeConnection()
        self.connections.append(connection)

        async def dispatch() -> None:
            self.router.dispatch(cast(Connection, connection), bytearray(frame))
            for _ in range(4):
                await asyncio.sleep(0)

        self.plane.run(dispatch())

    def answers(self) -> list[Any]:
        return [
            ([_neutral(answer) for answer in each.answers], each.unanswered, each.closed, each.released_frames)
            for each in self.connections
        ]

    def state(self) -> dict[str, Any]:
        """All that it knows."""
        partitions = self.plane.replica_manager.all
        return {str(each.name): state_of_partition(each) for each in partitions}


def _neutral(answer: bytes) -> bytes:
    return answer.replace(RULED.encode(), COMPILED.encode())


def state_of_partition(partition: Partition) -> dict[str, Any]:
    role = partition.role
    state: dict[str, Any] = {"role": type(role).__name__, "failure": str(partition.failure).replace(RULED, COMPILED)}
    if isinstance(role, LeaderState):
        state["appended_bytes"] = role.appended_bytes
        state["refused"] = role._refused._missing
        state["delayed"] = len(role.delayed)
        state["isr"] = role.isr
    if partition.log is not None:
        state |= state_of_log(partition.log)
    return state


def state_of_log(log: PartitionLog) -> dict[str, Any]:
    producers = {
        each: (
            known.epoch,
            known.coordinator_epoch,
            known.timestamp_ms,
            known.transaction_offset,
            known.next_sequence,
            known.batches,
        )
        for each, known in log.producers._producers.items()
    }
    return {
        "offsets": (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset),
        "recovery_point": log.recovery_point,
        "epochs": log.epochs.entries,
        "producers": producers,
        "trouble": log.trouble is not None and log.trouble.is_there,
        "segments": [state_of_segment(each) for each in log.segments],
    }


def state_of_segment(segment: Segment) -> tuple[Any, ...]:
    return (
        segment.base_offset,
        segment.size_bytes,
        segment.recent,
        segment.is_index_full,
        segment._bytes_since_entry,
        segment._max_timestamp,
        segment._indexed_timestamp,
        segment._first_timestamp_ms,
        segment.offset_index._offsets,
        segment.offset_index._positions,
        segment.time_index._entries_or_none,
    )


class Twins:
    """Both nodes. `sent` counts the requests, `taken` those that the compiled one took."""

    def __init__(self, folder: Path | None = None) -> None:
        """On disks in memory, or below a folder of the machine's, with hardly any descriptors."""
        self._folder = folder
        self.compiled, self.ruled = self._started(COMPILED), self._started(RULED)
        for name, how in TOPICS.items():
            self.both(lambda plane, name=name, how=how: plane.create_topic(name, **how))  # type: ignore[misc]
        self.topic_ids = {name: self.ruled.plane.image.topics[name].topic_id for name in TOPICS}
        self.sent = self.taken = 0

    def _started(self, name: str, previous: DataPlane | None = None) -> Twin:
        if self._folder is None:
            disk = SimulatedDisk(Random(1)) if previous is None else previous.files
            plane = DataPlane(disk, log_dirs="/one,/two")
        else:
            from barnabas.storage.real_files import RealFileSystem

            plane = DataPlane(RealFileSystem(max_open_files=3), log_dirs=str(self._folder / name))
        if previous is not None:
            plane.loop.run_for(previous.loop.time() - plane.loop.time())
            plane.image = previous.image
            partitions = tuple(each.name for each in previous.replica_manager.all)
            plane.apply(previous.image, partitions_changed=partitions)
        return Twin(plane, is_compiled=name == COMPILED)

    @property
    def twins(self) -> tuple[Twin, Twin]:
        return self.compiled, self.ruled

    def disks(self) -> list[SimulatedDisk]:
        """Those in memory."""
        return [each.plane.files for each in self.twins if isinstance(each.plane.files, SimulatedDisk)]

    def heal_disks(self) -> None:
        for disk in self.disks():
            disk.capacity_bytes = None
            disk._failures.clear()

    def both(self, act: Callable[[DataPlane], Any]) -> None:
        """Do the same to both; what fails fails in the same way."""
        outcomes = [_outcome(act, each.plane) for each in self.twins]
        assert str(outcomes[0]) == str(outcomes[1]).replace(RULED, COMPILED)

    def send(self, frame: bytes) -> bool:
        """Hand a frame to both; whether the compiled one took it without the rules."""
        before = self.compiled.taken
        for each in self.twins:
            each.send(frame)
        self.sent += 1
        is_taken = self.compiled.taken > before
        self.taken += is_taken
        self.compare()
        return is_taken

    def compare(self) -> None:
        compiled, ruled = self.twins
        assert compiled.answers() == ruled.answers()
        assert compiled.state() == ruled.state()
        for each in self.twins:
            each.connections = [known for known in each.connections if not is_over(known)]

    def restart(self) -> None:
        """Close both cleanly, and open them again."""
        self.heal_disks()
        self.both(lambda plane: plane.run(plane.logs.stop(5)))
        self.compare_files()
        for each in self.twins:
            each.connections.clear()
        self.compiled = self._started(COMPILED, self.compiled.plane)
        self.ruled = self._started(RULED, self.ruled.plane)

    def finish(self) -> None:
        """Let all that waits come to its end; then close both and compare their files."""
        self.heal_disks()
        self.both(lambda plane: plane.pass_ms(2000))
        self.compare()
        assert not self.compiled.connections, "nobody waits for ever"
        self.both(lambda plane: plane.run(plane.logs.stop(5)))
        self.compare_files()

    def compare_files(self) -> None:
        compiled, ruled = self.files_of(self.compiled), self.files_of(self.ruled)
        assert sorted(compiled) == sorted(ruled)
        for path, content in compiled.items():
            assert content == ruled[path], path

    def files_of(self, twin: Twin) -> dict[str, bytes | None]:
        if isinstance(twin.plane.files, SimulatedDisk):
            return twin.plane.files.contents()
        [below] = [os.path.realpath(each) for each in twin.plane.settings.data_dirs]
        found = [path for path in Path(below).rglob("*") if path.is_file()]
        return {str(path.relative_to(below)): path.read_bytes() for path in found}


def is_over(connection: FakeConnection) -> bool:
    return bool(connection.answers or connection.unanswered) or connection.is_closed


def _outcome(act: Callable[[DataPlane], Any], plane: DataPlane) -> Any:
    try:
        return act(plane)
    except (BarnabasError, OSError) as failure:
        return failure


# Frames


@dataclass(frozen=True)
class Sent:
    """A batch for a partition. `turn` says which sequence it has, by what is known of its producer: `next`, the
    `again`st of those before, one after a `gap`, or the first of an `epoch` up or down."""

    topic: str = "plain"
    number: int = 0
    count: int = 1
    producer: int | None = None
    turn: str = "next"
    back: int = 1
    key: bytes | None = b"key"
    value_bytes: int = 3
    age_ms: int = 0
    codec: Codec = Codec.NONE
    harm: str = ""


@dataclass(frozen=True)
class Request:
    """A produce request, and what is wrong with its frame: `harm` at `place`, a share of its bytes."""

    parts: tuple[Sent, ...]
    version: int = 12
    acks: int = 1
    timeout_ms: int = 500
    client_id: str | None = "tests"
    transactional_id: str | None = None
    harm: str = ""
    place: float = 0.0


class Producer:
    """Makes frames for twins: what comes next in a partition it learns from the one that has the rules."""

    def __init__(self, twins: Twins) -> None:
        self._twins = twins

    def frame(self, request: Request, change: Callable[[bytes | None], bytes | None] | None = None) -> bytes:
        """`change` makes others of the records of each partition."""
        topics: list[TopicProduceData] = []
        last = None
        for part in request.parts:
            if part.topic != last:
                topics.append(self._topic(part.topic))
                last = part.topic
            records = self.records(part) if change is None else change(self.records(part))
            topics[-1].partition_data.append(PartitionProduceData(index=part.number, records=records))
        body = ProduceRequest(
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=topics,
        )
        frame = b"".join(encode_request(body, request.version, 77, request.client_id))
        return _FRAME_HARMS[request.harm](bytearray(frame), request) if request.harm else frame

    def _topic(self, name: str) -> TopicProduceData:
        topic_id = self._twins.topic_ids.get(name, Uuid(bytes(range(16))))
        return TopicProduceData(name=name, topic_id=topic_id, partition_data=[])

    def records(self, part: Sent) -> bytes | None:
        header: dict[str, int] = {}
        count = part.count
        if part.producer is not None:
            epoch, sequence, count = self._place(part)
            header = {"producer_id": part.producer, "producer_epoch": epoch, "base_sequence": sequence}
        plane = self._twins.ruled.plane
        values = [bytes(part.value_bytes)] * count
        timestamp_ms = -1 if part.age_ms == NO_TIME else plane.now_ms - part.age_ms
        made = batch(values, key=part.key, timestamp_ms=timestamp_ms, codec=part.codec, **header)
        return _BATCH_HARMS[part.harm](made) if part.harm else bytes(made)

    def _place(self, part: Sent) -> tuple[int, int, int]:
        """Epoch, first sequence and number of records."""
        assert part.producer is not None
        partition = self._twins.ruled.plane.replica_manager.index.get((part.topic, part.number))
        log = None if partition is None else partition.log
        entry = None if log is None else log.producers.entry(part.producer)
        known = [] if log is None else log.producers.remembered(part.producer)
        epoch = 0 if entry is None else entry.epoch
        first = _FAR_SEQUENCE if part.producer == PRODUCERS[-1] and entry is None else 0
        following = (known[-1].last_sequence + 1) & MAX_SEQUENCE if known else first
        if part.turn == "again" and known:
            older = known[-min(part.back, len(known))]
            return epoch, older.first_sequence, ((older.last_sequence - older.first_sequence) & MAX_SEQUENCE) + 1
        if part.turn == "gap":
            return epoch, (following + part.back) & MAX_SEQUENCE, part.count
        if part.turn in ("up", "down"):
            return max(epoch + (1 if part.turn == "up" else -1), 0), 0, part.count
        return epoch, following, part.count


#: As the age of a batch: its records have no timestamp.
NO_TIME: Final = -(2**40)


def with_crc(data: bytearray) -> bytes:
    data[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(data[ATTRIBUTES_AT:])).to_bytes(4, "big")
    return bytes(data)


def _set(at: int, value: bytes) -> Callable[[bytearray], bytes]:
    """Bytes of a batch replaced, with a CRC that covers them."""

    def harm(data: bytearray) -> bytes:
        data[at : at + len(value)] = value
        return with_crc(data)

    return harm


def _add(at: int, more: int) -> Callable[[bytearray], bytes]:
    """One byte of a batch made larger, or smaller, with a CRC that covers it."""
    return lambda data: _set(at, bytes([(data[at] + more) & 0xFF]))(data)


#: Positions are those of a batch's header, and in the last ones of its first record.
_BATCH_HARMS: Final[dict[str, Callable[[bytearray], bytes | None]]] = {
    "null": lambda _: None,
    "empty": lambda _: b"",
    "header cut": lambda data: bytes(data[:40]),
    "cut": lambda data: bytes(data[:-3]),
    "tail": lambda data: bytes(data) + b"\0",
    "twice": lambda data: bytes(data + data),
    "base offset": _set(0, b"\0\0\0\0\0\0\0\5"),
    "negative base offset": _set(0, b"\xff" * 8),
    "length more": _add(11, 1),
    "length less": _add(11, -1),
    "length negative": _set(8, b"\x80\0\0\0"),
    "leader epoch": _set(12, b"\0\0\0\x07"),
    "magic 1": _set(16, b"\1"),
    "magic 3": _set(16, b"\3"),
    "crc": lambda data: bytes(data[:CRC_AT] + bytes([data[CRC_AT] ^ 1]) + data[CRC_AT + 1 :]),
    "high attributes": _set(21, b"\1"),
    "append time": _set(22, b"\x08"),
    "transactional": _set(22, b"\x10"),
    "control": _set(22, b"\x20"),
    "delete horizon": _set(22, b"\x40"),
    "last offset delta": _add(26, 1),
    "negative last offset delta": _set(23, b"\xff" * 4),
    "base timestamp": _add(34, 1),
    "max timestamp": _add(42, 1),
    "huge timestamp": _set(27, b"\x7f" + b"\xff" * 7),
    "producer -5": _set(43, b"\xff" * 7 + b"\xfb"),
    "negative epoch": _set(51, b"\xff\xff"),
    "negative sequence": _set(53, b"\xff" * 4),
    "record more": _add(60, 1),
    "no records": _set(57, bytes(4)),
    "many records": _set(57, b"\x7f" + b"\xff" * 3),
    "negative records": _set(57, b"\xff" * 4),
    "record length": _add(61, 2),
    "record attributes": _add(62, 1),
    "timestamp delta": _add(63, 2),
    "offset delta": _add(64, 2),
    "key length": _add(65, 2),
}
BATCH_HARMS: Final = tuple(_BATCH_HARMS)


def _with_client_id_size(size: bytes) -> Callable[[bytearray, Request], bytes]:
    def harm(frame: bytearray, request: Request) -> bytes:
        client_id = (request.client_id or "").encode()
        return bytes(frame[:8] + size + frame[10 + len(client_id) :])

    return harm


def _with_transactional_id_size(frame: bytearray, request: Request) -> bytes:
    at = 10 + len((request.client_id or "").encode())
    if request.version < 9:
        frame[at : at + 2] = b"\xff\xfe"
    return bytes(frame)


def _with_header_tag(frame: bytearray, request: Request) -> bytes:
    at = 10 + len((request.client_id or "").encode())
    return bytes(frame[:at] + b"\1\5\2ab" + frame[at + 1 :]) if request.version >= 9 else bytes(frame)


def _place(frame: bytearray, request: Request) -> int:
    return min(int(request.place * len(frame)), len(frame) - 1)


def _flipped(frame: bytearray, request: Request) -> bytes:
    frame[max(_place(frame, request), 8)] ^= 0x55
    return bytes(frame)


def _bit_flipped(frame: bytearray, request: Request) -> bytes:
    frame[max(_place(frame, request), 8)] ^= 1
    return bytes(frame)


_FRAME_HARMS: Final[dict[str, Callable[[bytearray, Request], bytes]]] = {
    "cut": lambda frame, request: bytes(frame[: max(_place(frame, request), 4)]),
    "flip": _flipped,
    "bit": _bit_flipped,
    "tail": lambda frame, _: bytes(frame) + b"tail",
    "drop": lambda frame, request: bytes(frame[: _place(frame, request)] + frame[_place(frame, request) + 1 :]),
    "repeat": lambda frame, request: bytes(frame[: _place(frame, request)] + frame[_place(frame, request) - 1 :]),
    "client id -2": _with_client_id_size(b"\xff\xfe"),
    "client id too long": _with_client_id_size(b"\x7f\xff"),
    "client id not utf-8": lambda frame, _: bytes(frame[:10] + b"\xff" + frame[11:]),
    "transactional id -2": _with_transactional_id_size,
    "header tag": _with_header_tag,
    "body tag": lambda frame, request: bytes(frame[:-1] + b"\1\x63\2ab") if request.version >= 9 else bytes(frame),
}
FRAME_HARMS: Final = tuple(_FRAME_HARMS)
