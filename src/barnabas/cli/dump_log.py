"""`barnabas dump-log`: what log segments, indexes and snapshots hold. Kafka's `kafka-dump-log`, line for line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError, RemoteProtocolError
from barnabas.cli.main import FAILED, tell
from barnabas.cli.output import compact_json, is_terminal, say, shown

if TYPE_CHECKING:
    from barnabas.cli.dump_decoders import RecordDecoder
    from barnabas.records import Record
    from barnabas.records.batch import BatchView
    from barnabas.records.legacy import LegacyMessage

    Entry = BatchView | LegacyMessage

_NO_LIMIT: Final = 2**31 - 1
_READ_BYTES: Final = 1024 * 1024
_DECODER = "org.apache.kafka.tools.api.StringDecoder"


@dataclass(slots=True)
class Findings:
    """What does not fit together, by file; told after everything else."""

    gaps: dict[str, dict[int, int]] = field(default_factory=dict)
    index: dict[str, dict[int, int]] = field(default_factory=dict)
    time_mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    time_disorder: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    offsets_not_found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        for path, pairs in self.index.items():
            yield f"Mismatches in :{path}"
            yield from (f"  Index offset: {first}, log offset: {second}" for first, second in pairs.items())
        told: list[tuple[dict[str, list[tuple[int, int]]], str, str]] = [
            (self.time_mismatches, "Found timestamp mismatch in :{}", "  Index timestamp: {}, log timestamp: {}"),
            (
                self.time_disorder,
                "Found out of order timestamp in :{}",
                "  Index timestamp: {}, Previously indexed timestamp: {}",
            ),
            (
                self.offsets_not_found,
                "The following indexed offsets are not found in :{}",
                "Indexed offset: {}, found log offset: {}",
            ),
        ]
        for found, heading, line in told:
            for path, each in found.items():
                yield heading.format(path)
                yield from (line.format(*pair) for pair in each)
        for path, pairs in self.gaps.items():
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {first} is followed by {second}" for first, second in pairs.items())


@dataclass(frozen=True, slots=True)
class Options:
    """How much is shown, and how."""

    decode: RecordDecoder | None
    is_deep: bool
    skips_metadata: bool
    checks_only: bool
    verifies_only: bool
    max_message_bytes: int
    max_bytes: int
    as_json: bool
    is_coloured: bool
    findings: Findings

    def show(self, line: str, values: dict[str, Any] | None = None, **style: Any) -> None:
        """A line for people and their scripts, or its values for a program; without values it is only for people."""
        if self.as_json:
            if values is not None:
                say(compact_json(values))
        else:
            line = shown(line)
            # Not by `say`, which would show the colours instead.
            click.echo(click.style(line, **style) if style and self.is_coloured else line)  # noqa: TID251


@click.command()
@click.option("--files", required=True, metavar="FILE[,FILE]…", help="The files: segments, indexes, snapshots.")
@click.option("--print-data-log", is_flag=True, help="Show keys and values. Any decoder implies it.")
@click.option(
    "--deep-iteration", is_flag=True, help="Show every record, not only batches. --print-data-log implies it."
)
@click.option("--skip-record-metadata", is_flag=True, help="Of records show keys and values only; no control records.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="Read records as those of __cluster_metadata.")
@click.option("--offsets-decoder", is_flag=True, help="Read records as those of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Read records as those of __transaction_state.")
@click.option("--share-group-state-decoder", is_flag=True, help="Read records as those of __share_group_state.")
@click.option("--remote-log-metadata-decoder", is_flag=True, help="Not built yet.")
@click.option("--key-decoder-class", metavar="CLASS", help="StringDecoder (default), IntegerDecoder or LongDecoder.")
@click.option("--value-decoder-class", metavar="CLASS", help="StringDecoder (default), IntegerDecoder or LongDecoder.")
@click.option("--index-sanity-check", is_flag=True, help="Of indexes tell only whether they look right.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes against their logs without showing entries.")
@click.option("--max-message-size", type=int, default=5 * 1024 * 1024, show_default=True, help="The largest batch.")
@click.option("--max-bytes", type=int, default=_NO_LIMIT, metavar="SIZE", help="How much of each log to read.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for programs.")
def dump_log(
    files: str,
    index_sanity_check: bool,
    verify_index_only: bool,
    max_message_size: int,
    max_bytes: int,
    skip_record_metadata: bool,
    deep_iteration: bool,
    as_json: bool,
    **decoding: Any,
) -> int:
    """Show what log segments, indexes, producer and metadata snapshots hold.

    \b
    Examples:
      barnabas dump-log --files data/clicks-0/00000000000000000000.log --print-data-log
      barnabas dump-log --files data/__cluster_metadata-0/00000000000000000000.log --cluster-metadata-decoder
      barnabas dump-log --files data/clicks-0/00000000000000000000.index --verify-index-only
    """
    decode = _decoder(**decoding)
    options = Options(
        decode=decode,
        is_deep=deep_iteration or decode is not None,
        skips_metadata=skip_record_metadata,
        checks_only=index_sanity_check,
        verifies_only=verify_index_only,
        max_message_bytes=max_message_size,
        max_bytes=max_bytes,
        as_json=as_json,
        is_coloured=is_terminal(),
        findings=Findings(),
    )
    outcome = 0
    for name in filter(None, (each.strip() for each in files.split(","))):
        try:
            _dump(Path(name), options)
        except BarnabasError as problem:
            tell(f"{name}: {problem}")
            outcome = FAILED
        except BrokenPipeError:
            raise  # not the file's fault: nobody reads what is shown
        except OSError as problem:
            tell(f"{problem.filename or name}: {problem.strerror or problem}")
            outcome = FAILED
    sys.stdout.flush()
    for line in options.findings.lines():
        say(line, err=True)
    return outcome


def _decoder(
    print_data_log: bool,
    cluster_metadata_decoder: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    share_group_state_decoder: bool,
    remote_log_metadata_decoder: bool,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
) -> RecordDecoder | None:
    from barnabas.cli import dump_decoders

    if remote_log_metadata_decoder:
        raise BarnabasError("--remote-log-metadata-decoder: tiered storage is not built yet")
    if offsets_decoder:
        return dump_decoders.offsets()
    if transaction_log_decoder:
        return dump_decoders.transactions()
    if cluster_metadata_decoder:
        return dump_decoders.cluster_metadata()
    if share_group_state_decoder:
        return dump_decoders.share_groups()
    if print_data_log or key_decoder_class or value_decoder_class:
        key, value = (dump_decoders.part_decoder(each or _DECODER) for each in (key_decoder_class, value_decoder_class))
        return dump_decoders.plain(key, value)
    return None


def _dump(path: Path, options: Options) -> None:
    from barnabas.cli import dump_indexes

    dumps: dict[str, Callable[[Path, Options], None]] = {
        ".log": _dump_log,
        ".checkpoint": _dump_log,
        ".index": dump_indexes.dump_index,
        ".timeindex": dump_indexes.dump_time_index,
        ".txnindex": dump_indexes.dump_aborted,
        ".snapshot": dump_indexes.dump_producers,
    }
    options.show(f"Dumping {path}", bold=True)
    dump = dumps.get(path.suffix)
    if dump is None:
        say(f"Ignoring unknown file {path}", err=True)
    else:
        dump(path, options)


# Logs and metadata snapshots


def _dump_log(path: Path, options: Options) -> None:
    options.show(_heading(path))
    position, last_offset = 0, -1
    for position, entry in entries(path, limit_bytes=options.max_bytes):
        records = _records(entry) if options.is_deep else []
        _show_batch(path, position, entry, records, options)
        for record in records:
            if record.offset != last_offset + 1:
                options.findings.gaps.setdefault(os.path.abspath(path), {})[last_offset] = record.offset
            last_offset = record.offset
        position += entry.size_bytes
    left_bytes = path.stat().st_size - position
    if left_bytes > 0 and options.max_bytes == _NO_LIMIT:
        options.show(f"Found {left_bytes} invalid bytes at the end of {path.name}", fg="red")


def _heading(path: Path) -> str:
    from barnabas.broker.quorum.formatting import BOOTSTRAP_FILE
    from barnabas.raft.types import SnapshotId

    if path.suffix == ".log":
        return f"Log starting offset: {base_offset_of(path)}"
    if path.name == BOOTSTRAP_FILE:
        return "KRaft bootstrap snapshot"
    snapshot = SnapshotId.parse(path.name)
    if snapshot is None:
        raise BarnabasError("the name of a snapshot looks like 00000000000000000012-0000000003.checkpoint")
    return f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}"


def base_offset_of(path: Path) -> int:
    digits = path.name.partition(".")[0]
    if not digits.isdecimal():
        raise BarnabasError("the name of a segment's file begins with its first offset")
    return int(digits)


def entries(path: Path, *, start: int = 0, limit_bytes: int = _NO_LIMIT) -> Iterator[tuple[int, Entry]]:
    """The whole batches of a file with where they lie, up to what is not a batch; that is told on standard error."""
    from barnabas.records import iter_entries

    position, wanted_bytes = start, _READ_BYTES
    with path.open("rb") as file:
        end = min(os.fstat(file.fileno()).st_size, start + limit_bytes)
        while position < end:
            file.seek(position)
            chunk = file.read(min(wanted_bytes, end - position))
            walk = iter_entries(chunk)
            try:
                for entry in walk:
                    yield position + walk.position - entry.size_bytes, entry
            except RemoteProtocolError as problem:
                raise BarnabasError(f"byte {position + walk.position}: {problem}") from None
            position += walk.position
            if walk.position:
                wanted_bytes = _READ_BYTES
            elif len(chunk) >= min(end - position, _NO_LIMIT):
                return
            else:
                wanted_bytes = max(wanted_bytes * 2, 12 + int.from_bytes(chunk[8:12], "big"))


def _records(entry: Entry) -> list[Record]:
    try:
        return list(entry.records())
    except RemoteProtocolError as problem:
        tell(f"the records of the batch at offset {entry.last_offset} cannot be read: {problem}")
        return []


def _is_valid(entry: Entry) -> bool:
    try:
        entry.check_crc()
    except RemoteProtocolError:
        return False
    return True


def _show_batch(path: Path, position: int, entry: Entry, records: Sequence[Record], options: Options) -> None:
    values = _batch_values(position, entry)
    if options.as_json:
        shown = values | {"file": str(path)}
        if options.is_deep:
            shown["records"] = [_record_values(entry, record, options) for record in records]
        options.show("", shown)
        return
    is_sound = values["isvalid"]
    style: dict[str, Any] = {"fg": "cyan"} if is_sound else {"fg": "red"}
    options.show(" ".join(f"{name}: {_java(value)}" for name, value in values.items()), **style)
    for record in records:
        options.show(_record_line(entry, record, options))


def _batch_values(position: int, entry: Entry) -> dict[str, Any]:
    from barnabas.records.batch import BatchView

    first: dict[str, Any] = {"offset": entry.last_offset}
    if isinstance(entry, BatchView):
        horizon = entry.delete_horizon_ms
        first = {
            "baseOffset": entry.base_offset,
            "lastOffset": entry.last_offset,
            "count": entry.record_count,
            "baseSequence": entry.base_sequence,
            "lastSequence": entry.last_sequence,
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "partitionLeaderEpoch": entry.leader_epoch,
            "isTransactional": entry.is_transactional,
            "isControl": entry.is_control,
            "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
        }
    return first | {
        "position": position,
        _time_name(entry): entry.max_timestamp_ms,
        "size": entry.size_bytes,
        "magic": 2 if isinstance(entry, BatchView) else entry.magic,
        "compresscodec": entry.codec.name.lower(),
        "crc": entry.crc,
        "isvalid": _is_valid(entry),
    }


def _time_name(entry: Entry) -> str:
    from barnabas.records import TimestampType

    names = {
        TimestampType.NONE: "NoTimestampType",
        TimestampType.CREATE_TIME: "CreateTime",
        TimestampType.LOG_APPEND_TIME: "LogAppendTime",
    }
    return names[entry.timestamp_type]


def _record_metadata(entry: Entry, record: Record) -> dict[str, Any]:
    from barnabas.records import BatchView, add_to_sequence

    values: dict[str, Any] = {
        "offset": record.offset,
        _time_name(entry): record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if isinstance(entry, BatchView):
        has_sequence = entry.base_sequence >= 0
        delta = record.offset - entry.base_offset
        values["sequence"] = add_to_sequence(entry.base_sequence, delta) if has_sequence else -1
        values["headerKeys"] = [name for name, _ in record.headers]
    return values


def _record_line(entry: Entry, record: Record, options: Options) -> str:
    from barnabas.cli.dump_decoders import control

    line, prefix = "", "| "
    if not options.skips_metadata:
        metadata = _record_metadata(entry, record)
        keys = metadata.pop("headerKeys", None)
        line = "| " + " ".join(f"{name}: {value}" for name, value in metadata.items())
        if keys is not None:
            line += f" headerKeys: [{','.join(keys)}]"
        if entry.is_control:
            shown_control = control(record)
            line += f" {shown_control.name}{shown_control.separator}{_java(shown_control.data)}"
        prefix = " "
    if options.decode is None or entry.is_control:
        return line
    shown = options.decode(record)
    for name, part in (("key", shown.key), ("payload", shown.payload)):
        if part is not None:
            line, prefix = f"{line}{prefix}{name}: {_java(part)}", " "
    return line


def _record_values(entry: Entry, record: Record, options: Options) -> dict[str, Any]:
    from barnabas.cli.dump_decoders import control

    values = {} if options.skips_metadata else _record_metadata(entry, record)
    if entry.is_control:
        shown_control = control(record)
        return values | {shown_control.name: shown_control.data}
    if options.decode is not None:
        shown = options.decode(record)
        values |= {"key": shown.key, "payload": shown.payload}
    return values


def _java(value: Any) -> str:
    """As Java prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return compact_json(value) if isinstance(value, dict | list) else str(value)
