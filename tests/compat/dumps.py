"""What Kafka's DumpLogSegments prints of a log's files, and what it would have to print of what we see there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.records import BatchView, Record, TimestampType, read_marker
from barnabas.storage.log import PartitionLog
from barnabas.storage.segment import Segment
from tests.compat.players import Command

OPTIONS: dict[str, tuple[str, ...]] = {
    "log": ("--deep-iteration", "--print-data-log"),
    "index": (),
    "index that is checked": ("--index-sanity-check",),
    "timeindex": (),
    "timeindex that is checked": ("--index-sanity-check",),
    "txnindex": (),
    "snapshot": (),
}


def dumps(directory: Path) -> dict[str, Command]:
    """Commands to print all files of a partition, by their kind."""
    found = {kind: sorted(directory.glob(f"*.{kind.split()[0]}")) for kind in OPTIONS}
    return {
        kind: {"do": "dump", "arguments": [*OPTIONS[kind], "--files", ",".join(map(str, files))]}
        for kind, files in found.items()
        if files
    }


def lines_of(printed: str) -> list[str]:
    """What is said of the content, and of what is wrong with it. Gaps are for `gaps_in`."""
    headings = ("Dumping ", "Log starting offset: ", "Non-consecutive offsets in ", "  ")
    return [
        line
        for line in printed.splitlines()
        if line and not line.startswith(headings) and not line.endswith(" is empty.")
    ]


def gaps_in(printed: str) -> list[str]:
    """The gaps between offsets that the tool found. It takes the beginning of every segment but the first for one."""
    return sorted(line.strip() for line in printed.splitlines() if " is followed by " in line)


def expected_lines(kind: str, log: PartitionLog) -> list[str]:
    describe = {
        "log": _data_lines,
        "index": _index_lines,
        "timeindex": _time_index_lines,
        "txnindex": _aborted_lines,
    }[kind]
    return [line for segment in log.segments for line in describe(segment)]


def expected_gaps(log: PartitionLog) -> list[str]:
    gaps = []
    for segment in log.segments:
        last_offset = -1
        for entry in segment.entries():
            for record in entry.records():
                if record.offset != last_offset + 1:
                    gaps.append(f"{last_offset} is followed by {record.offset}")
                last_offset = record.offset
    return sorted(gaps)


def _data_lines(segment: Segment) -> Iterator[str]:
    for position, batch in segment.positioned_entries():
        assert isinstance(batch, BatchView)
        horizon = (
            "OptionalLong.empty" if batch.delete_horizon_ms is None else f"OptionalLong[{batch.delete_horizon_ms}]"
        )
        yield (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.leader_epoch} isTransactional: {_java(batch.is_transactional)} "
            f"isControl: {_java(batch.is_control)} deleteHorizonMs: {horizon} position: {position} "
            f"{_time_of(batch, batch.max_timestamp_ms)} size: {batch.size_bytes} magic: 2 "
            f"compresscodec: {batch.codec.name.lower()} crc: {batch.crc} isvalid: true"
        )
        for record in batch:
            yield _record_line(batch, record)


def _record_line(batch: BatchView, record: Record) -> str:
    delta = record.offset - batch.base_offset
    sequence = -1 if batch.base_sequence < 0 else batch.base_sequence + delta
    line = (
        f"| offset: {record.offset} {_time_of(batch, record.timestamp_ms)} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} "
        f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )
    marker = read_marker(batch)
    if marker is not None:
        kind = "COMMIT" if marker.committed else "ABORT"
        return f"{line} endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
    key = "" if record.key is None else f" key: {record.key.decode()}"
    value = "" if record.value is None else f" payload: {record.value.decode()}"
    return line + key + value


def _index_lines(segment: Segment) -> Iterator[str]:
    index = segment.offset_index
    entry = index.lookup(segment.base_offset - 1)
    while len(index) and entry != index.last_entry:
        found = index.upper_bound(entry, 1)
        assert found is not None
        entry = found
        yield f"offset: {entry.offset} position: {entry.position}"


def _time_index_lines(segment: Segment) -> Iterator[str]:
    raw = Path(segment.time_index.path).read_bytes()
    for start in range(0, len(raw), 12):
        timestamp_ms = int.from_bytes(raw[start : start + 8], "big")
        relative = int.from_bytes(raw[start + 8 : start + 12], "big")
        yield f"timestamp: {timestamp_ms} offset: {segment.base_offset + relative}"


def _aborted_lines(segment: Segment) -> Iterator[str]:
    for entry in segment.aborted.entries:
        yield (
            f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def _time_of(batch: BatchView, timestamp_ms: int) -> str:
    name = "LogAppendTime" if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"
    return f"{name}: {timestamp_ms}"


def _size(part: bytes | None) -> int:
    return -1 if part is None else len(part)


def _java(value: Any) -> str:
    return "true" if value else "false"
