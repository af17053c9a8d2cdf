"""Checks what is to be appended, and brings it into the form in which it will lie in the log: the first step of two.

It is pure, and `prepare_from_client` may take long (it decompresses, checks every record, perhaps compresses anew), so
it can run away from the event loop. The second step, `PartitionLog.append`, gives the offsets and writes.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import RemoteProtocolError
from barnabas.records._kernel.walk import RecordSummary
from barnabas.records.batch import APPEND_TIME_BIT, BatchView, iter_batches
from barnabas.records.builder import BatchBuilder, recoded
from barnabas.records.compression import DEFAULT_LIMIT_BYTES, Codec, DecompressionLimitError
from barnabas.records.control import read_marker
from barnabas.storage.errors import AppendRefusedError, RecordError
from barnabas.storage.settings import TopicSettings

_NO_TIMESTAMP_MS: Final = -1
# So that no offset delta leads beyond what 64 bits can tell.
_LARGEST_OFFSET: Final = 2**63 - 2**32
_MAGIC_AT: Final = 16
# Looking at more records one by one takes too long where others wait.
_FEW_RECORDS: Final = 1000
# How many wrong records of a batch are named.
_MOST_RECORD_ERRORS: Final = 100

Buffer = bytes | bytearray | memoryview


class TakesLongError(Exception):
    """Checking a batch takes longer than whoever has little time may spend on it: it is to be checked elsewhere."""


class PreparedAppend(NamedTuple):
    """Batches that fit the topic's rules, in one writable piece, and what the append needs to know of them.

    `append_time_ms` is the time that the records were stamped with, -1 where they keep their own.
    """

    data: memoryview
    batches: list[BatchView]
    max_timestamp_ms: int
    append_time_ms: int = _NO_TIMESTAMP_MS
    is_from_coordinator: bool = False
    #: The feature level under which a marker was sent.
    transaction_version: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.data)


def prepare_from_client(
    records: Buffer, settings: TopicSettings, now_ms: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> PreparedAppend:
    """Check the one batch that a producer may send at a time against the rules of its topic.

    With a lower `limit_bytes` than usual, a batch that decompresses to more raises `DecompressionLimitError`, and one
    whose many records must be looked at one by one `TakesLongError`: whoever has little time now can have it checked
    elsewhere.
    """
    batch = _only_batch(records)
    if (summary := _summary_if_welcome(batch, settings, now_ms)) is not None:
        return PreparedAppend(batch.data, [batch], summary.max_timestamp_ms)
    if batch.base_offset:
        raise _invalid(f"the base offset of a producer's batch is 0, not {batch.base_offset}")
    _check_sizes(batch.size_bytes, settings)
    _check_crc(batch)
    _check_header(batch)
    if batch.is_control:
        raise _invalid("producers may not write control batches")
    return _apply_topic_rules(batch, settings, now_ms, limit_bytes)


def _summary_if_welcome(batch: BatchView, settings: TopicSettings, now_ms: int) -> RecordSummary | None:
    """What most batches need, in few steps: one that passes here would pass all that follows, and stay as it is."""
    rules, size_bytes = settings.append_rules, batch.size_bytes
    if not rules.keeps_form or size_bytes > rules.max_batch_bytes:
        return None
    found = batch.summarise_if_usual()
    if found is None:
        return None
    is_welcome = rules.admits(size_bytes, found.first_null_key, found.min_timestamp_ms, found.max_timestamp_ms, now_ms)
    return found if is_welcome else None


def prepare_from_coordinator(records: Buffer, settings: TopicSettings, transaction_version: int = 0) -> PreparedAppend:
    """Take a batch that this node made itself, such as a transaction marker or the state of a group."""
    batch = _only_batch(records)
    _check_control(batch)
    _check_sizes(batch.size_bytes, settings)
    append_time_ms = _NO_TIMESTAMP_MS
    if settings.message_timestamp_type == "LogAppendTime":
        # It was made just now, so its own time is that of the append.
        append_time_ms = batch.max_timestamp_ms
        batch.stamp_log_append_time(append_time_ms)
    return PreparedAppend(
        batch.data,
        [batch],
        batch.max_timestamp_ms,
        append_time_ms,
        is_from_coordinator=True,
        transaction_version=transaction_version,
    )


def prepare_from_leader(records: Buffer) -> PreparedAppend:
    """Check batches that were fetched from the leader, which gave them offsets. A cut-off last one is left out."""
    view = _writable(records)
    walk = iter_batches(view)
    try:
        batches = list(walk)
    except RemoteProtocolError as error:
        raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    next_offset = batches[0].base_offset if batches else 0
    for batch in batches:
        _check_crc(batch)
        _check_control(batch)
        if not 0 <= batch.base_offset <= _LARGEST_OFFSET:
            raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, f"there is no offset {batch.base_offset}")
        if batch.base_offset < next_offset:
            raise AppendRefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {batch.base_offset} comes after offset {next_offset - 1}"
            )
        next_offset = batch.next_offset
    max_timestamp_ms = max((each.max_timestamp_ms for each in batches), default=_NO_TIMESTAMP_MS)
    return PreparedAppend(view[: walk.position], batches, max_timestamp_ms)


def _writable(records: Buffer) -> memoryview:
    view = memoryview(records)
    return memoryview(bytearray(view)) if view.readonly else view


def _only_batch(records: Buffer) -> BatchView:
    view = records if isinstance(records, memoryview) and not records.readonly else _writable(records)
    try:
        return BatchView(view)
    except RemoteProtocolError as error:
        problem = error
    if len(view) > _MAGIC_AT and view[_MAGIC_AT] < 2:
        raise _invalid(f"only batches of format 2 are taken, not messages of format {view[_MAGIC_AT]}")
    try:
        walk = iter_batches(view)
        # Two are enough to know, and there may be very many.
        count = len(list(islice(walk, 2)))
    except RemoteProtocolError as error:
        raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if count == 1 and not walk.truncated:
        raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, str(problem))
    held = ("none", "one and a part of another", "more")[count]
    raise _invalid(f"exactly one batch is expected, these {len(view)} bytes hold {held}")


def _check_sizes(size_bytes: int, settings: TopicSettings) -> None:
    if size_bytes > settings.max_message_bytes:
        raise AppendRefusedError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size_bytes} bytes exceeds the topic's max.message.bytes of {settings.max_message_bytes}",
        )
    if size_bytes > settings.segment_limit_bytes:
        raise AppendRefusedError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {size_bytes} bytes exceeds the topic's segment.bytes of {settings.segment_limit_bytes}",
        )


def _check_crc(batch: BatchView) -> None:
    try:
        batch.check_crc()
    except RemoteProtocolError as error:
        raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def _check_control(batch: BatchView) -> None:
    """What a control batch says must be readable before it is in the log: the state of producers follows from it."""
    if batch.is_control:
        try:
            read_marker(batch)
        except RemoteProtocolError as error:
            raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def _check_header(batch: BatchView) -> None:
    if batch.record_count < 1 or batch.last_offset_delta != batch.record_count - 1:
        raise _invalid(f"{batch.record_count} records cannot have the last offset delta {batch.last_offset_delta}")
    if batch.has_producer_id and batch.base_sequence < 0:
        raise _invalid(f"the batch of producer {batch.producer_id} has the sequence {batch.base_sequence}")
    if batch.attributes & APPEND_TIME_BIT:
        raise AppendRefusedError(
            ErrorCode.INVALID_TIMESTAMP, "only the broker may say that timestamps are those of the append"
        )


def _apply_topic_rules(batch: BatchView, settings: TopicSettings, now_ms: int, limit_bytes: int) -> PreparedAppend:
    problem = None
    try:
        summary = batch.summarise(limit_bytes)
    except RemoteProtocolError as error:
        if isinstance(error, DecompressionLimitError) and limit_bytes < DEFAULT_LIMIT_BYTES:
            raise
        problem = str(error)
    if problem is not None:
        # Not from within: the refusal would hold on to what was decompressed.
        raise _invalid(problem)
    is_long = limit_bytes < DEFAULT_LIMIT_BYTES and batch.record_count > _FEW_RECORDS
    if summary.first_null_key >= 0 and "compact" in settings.cleanup_policy:
        _check_time(is_long)
        _refuse_null_keys(batch, summary.first_null_key)
    takes_append_time = settings.message_timestamp_type == "LogAppendTime"
    oldest_ms = now_ms - settings.message_timestamp_before_max_ms
    newest_ms = now_ms + settings.message_timestamp_after_max_ms
    if not takes_append_time and not oldest_ms <= summary.min_timestamp_ms <= summary.max_timestamp_ms <= newest_ms:
        _check_time(is_long)
        _refuse_timestamps(batch, oldest_ms, newest_ms)
    if summary.first_gap >= 0 or settings.compression_type != "producer":
        _check_time(is_long)
        batch = _in_topics_form(batch, settings, is_renumbered=summary.first_gap >= 0)
        _check_sizes(batch.size_bytes, settings)
    if takes_append_time:
        batch.stamp_log_append_time(now_ms)
        return PreparedAppend(batch.data, [batch], now_ms, now_ms)
    max_timestamp_ms = summary.max_timestamp_ms
    if batch.max_timestamp_ms != max_timestamp_ms:
        batch.stamp_max_timestamp(max_timestamp_ms)
    return PreparedAppend(batch.data, [batch], max_timestamp_ms)


def _in_topics_form(batch: BatchView, settings: TopicSettings, *, is_renumbered: bool) -> BatchView:
    codec = batch.codec if settings.compression_type == "producer" else _TOPIC_CODECS[settings.compression_type]
    if is_renumbered:
        return _renumbered(batch, codec, settings)
    return batch if codec is batch.codec else BatchView(recoded(batch, codec, _level(codec, settings)))


_TOPIC_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def _level(codec: Codec, settings: TopicSettings) -> int | None:
    levels = {
        Codec.GZIP: settings.compression_gzip_level,
        Codec.LZ4: settings.compression_lz4_level,
        Codec.ZSTD: settings.compression_zstd_level,
    }
    return levels.get(codec)


def _renumbered(batch: BatchView, codec: Codec, settings: TopicSettings) -> BatchView:
    """Records whose offsets a producer did not count up from 0 get the offsets that they should have."""
    builder = BatchBuilder(
        settings.max_message_bytes,
        codec=codec,
        level=_level(codec, settings),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        allow_oversized=True,
    )
    for record in batch:
        builder.append(record.value, record.key, record.timestamp_ms, record.headers)
    return BatchView(builder.build())


def _check_time(is_long: bool) -> None:
    if is_long:
        raise TakesLongError


def _refuse_null_keys(batch: BatchView, first: int) -> None:
    wrong = (
        RecordError(index, "a compacted topic needs a key")
        for index, record in islice(enumerate(batch), first, None)
        if record.key is None
    )
    errors = list(islice(wrong, _MOST_RECORD_ERRORS))
    raise AppendRefusedError(ErrorCode.INVALID_RECORD, "a compacted topic takes no records without keys", errors)


def _refuse_timestamps(batch: BatchView, oldest_ms: int, newest_ms: int) -> None:
    """Records without a timestamp are welcome; only if another one is out of range is the batch refused."""
    wrong = (
        RecordError(index, f"the timestamp {record.timestamp_ms} is not between {oldest_ms} and {newest_ms}")
        for index, record in enumerate(batch)
        if record.timestamp_ms != _NO_TIMESTAMP_MS and not oldest_ms <= record.timestamp_ms <= newest_ms
    )
    errors = list(islice(wrong, _MOST_RECORD_ERRORS))
    if errors:
        raise AppendRefusedError(
            ErrorCode.INVALID_TIMESTAMP, "a record's timestamp is outside what the topic accepts", errors
        )


def _invalid(message: str) -> AppendRefusedError:
    return AppendRefusedError(ErrorCode.INVALID_RECORD, message)
