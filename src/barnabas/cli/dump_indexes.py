"""The small files beside a log segment, for `dump-log`: indexes, aborted transactions, producer snapshots."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import BarnabasError
from barnabas.cli import dump_log

if TYPE_CHECKING:
    from barnabas.cli.dump_log import Options

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_ABORTED_ENTRY: Final = struct.Struct(">hqqqq")


def dump_index(path: Path, options: Options) -> None:
    """`.index`: from an offset to a place in the log. Each entry must point at the batch that ends with its offset."""
    base_offset = dump_log.base_offset_of(path)
    index = _offset_entries(path)
    if not index:
        options.show(f"{path} is empty.", {"file": str(path), "entries": 0})
        return
    if options.checks_only:
        _check_whole(path, _OFFSET_ENTRY)
        if index[-1][0] < 0:
            raise BarnabasError(f"the index is corrupt: its last offset is below {base_offset}")
        options.show(f"{path} passed sanity check.", {"file": str(path), "isSane": True})
        return
    log = path.with_suffix(".log")
    for place, (relative, position) in enumerate(index):
        if place and not relative:
            # Room that was reserved and never used.
            return
        offset = base_offset + relative
        found = next(dump_log.entries(log, start=position, limit_bytes=options.max_message_bytes), None)
        if found is None:
            raise BarnabasError(f"the entry for offset {offset} points at byte {position}, where no batch begins")
        if found[1].last_offset != offset:
            options.findings.index.setdefault(os.path.abspath(path), {})[offset] = found[1].last_offset
        if not options.verifies_only:
            options.show(
                f"offset: {offset} position: {position}", {"file": str(path), "offset": offset, "position": position}
            )


def dump_time_index(path: Path, options: Options) -> None:
    """`.timeindex`: from a time to an offset. Times rise, and each is that of the batch that ends with its offset."""
    base_offset = dump_log.base_offset_of(path)
    raw = path.read_bytes()
    if options.checks_only:
        _check_whole(path, _TIME_ENTRY)
        options.show(f"{path} passed sanity check.", {"file": str(path), "isSane": True})
        return
    previous_ms = -1
    for place, (timestamp_ms, relative) in enumerate(_unpacked(_TIME_ENTRY, raw)):
        if place and not relative:
            return
        offset = base_offset + relative
        _check_time_entry(path, timestamp_ms, offset, previous_ms, options)
        if not options.verifies_only:
            options.show(
                f"timestamp: {timestamp_ms} offset: {offset}",
                {"file": str(path), "timestamp": timestamp_ms, "offset": offset},
            )
        previous_ms = timestamp_ms


def _check_time_entry(path: Path, timestamp_ms: int, offset: int, previous_ms: int, options: Options) -> None:
    where, findings = os.path.abspath(path), options.findings
    log, base_offset = path.with_suffix(".log"), dump_log.base_offset_of(path)
    start = 0
    if path.with_suffix(".index").exists():
        for relative, position in _offset_entries(path.with_suffix(".index")):
            if relative > offset - base_offset:
                break
            start = max(start, position)
    found = next((entry for _, entry in dump_log.entries(log, start=start) if entry.last_offset >= offset), None)
    if found is None or found.last_offset != offset:
        last_offset = -1 if found is None else found.last_offset
        findings.offsets_not_found.setdefault(where, []).append((offset, last_offset))
        return
    youngest_ms = max((record.timestamp_ms for record in found.records()), default=-1)
    if youngest_ms != timestamp_ms:
        findings.time_mismatches.setdefault(where, []).append((timestamp_ms, youngest_ms))
    if previous_ms >= timestamp_ms:
        findings.time_disorder.setdefault(where, []).append((timestamp_ms, previous_ms))


def dump_aborted(path: Path, options: Options) -> None:
    """`.txnindex`: the aborted transactions whose markers lie in the segment."""
    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    for entry in _unpacked(_ABORTED_ENTRY, path.read_bytes()):
        values = dict(zip(names, entry, strict=True))
        options.show(" ".join(f"{name}: {value}" for name, value in values.items()), {"file": str(path)} | values)


def dump_producers(path: Path, options: Options) -> None:
    """`.snapshot`: what was known of producers at an offset."""
    from barnabas.storage.producer_snapshot import decode_snapshot

    for entry in decode_snapshot(path.read_bytes(), str(path)):
        first_offset = entry.current_txn_first_offset
        values: dict[str, object] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": "OptionalLong.empty" if first_offset < 0 else f"OptionalLong[{first_offset}]",
            "lastTimestamp": entry.timestamp,
        }
        if entry.last_offset >= 0:
            values |= {
                "firstSequence": entry.last_sequence - entry.offset_delta,
                "lastSequence": entry.last_sequence,
                "lastOffset": entry.last_offset,
                "offsetDelta": entry.offset_delta,
                "timestamp": entry.timestamp,
            }
        options.show(" ".join(f"{name}: {value}" for name, value in values.items()), {"file": str(path)} | values)


def _offset_entries(path: Path) -> list[tuple[int, int]]:
    return [(relative, position) for relative, position in _unpacked(_OFFSET_ENTRY, path.read_bytes())]


def _unpacked(form: struct.Struct, raw: bytes) -> Iterator[tuple[int, ...]]:
    """Whole entries; what is left over at the end is not one."""
    return form.iter_unpack(raw[: len(raw) // form.size * form.size])


def _check_whole(path: Path, form: struct.Struct) -> None:
    size_bytes = path.stat().st_size
    if size_bytes % form.size:
        raise BarnabasError(f"the index is corrupt: {size_bytes} bytes are not whole entries of {form.size} bytes")
