"""Compaction against a naive model of it, against Apache Kafka's cleaner, and behaviour by behaviour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records import BatchView, Codec, iter_batches, iter_entries, iter_records
from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.compaction import BatchCleaner, KeyOffsets, TransactionView
from barnabas.storage.producer_state import LastBatch
from tests.oracles import needs_kafka, run_java
from tests.storage import compaction_model as model
from tests.storage.compaction_model import ABORT, COMMIT, START_MS, Batch, Kept, Log, Round, batch

NO_LIMIT_BYTES = 1 << 30
DAY_MS = 86_400_000


def compact(
    log: Log,
    *,
    now_ms: int = START_MS,
    retention_ms: int = DAY_MS,
    first_dirty_offset: int = 0,
    limit_bytes: int = NO_LIMIT_BYTES,
) -> tuple[bytes, list[AbortedTransaction], int]:
    """A round with the code under test: the new bytes, the transactions to be remembered, and where the map ended."""
    data = log.encode()
    keys = KeyOffsets(first_dirty_offset, limit_bytes, log.aborted)
    if keys.add_all(iter_batches(data)):
        keys.pass_to(log.end_offset)
    cleaner = BatchCleaner(
        keys,
        end_offset=log.end_offset,
        now_ms=now_ms,
        delete_retention_ms=retention_ms,
        last_batches=log.last_batches,
        aborted=log.aborted,
    )
    cleaned = b"".join(entry.data for entry in cleaner.clean(iter_batches(data)))
    assert cleaner.stats.bytes_read == len(data)
    assert cleaner.stats.bytes_retained == len(cleaned)
    assert cleaner.stats.batches_read == len(log.batches)
    assert cleaner.stats.records_retained == sum(len(model.decode(batch).records) for batch in model.split(cleaned))
    return cleaned, cleaner.take_aborted(), keys.end_offset


def log_of(data: bytes, log: Log, aborted: Iterable[AbortedTransaction]) -> Log:
    batches = [model.decode(batch) for batch in model.split(data)]
    return replace(log, batches=batches, aborted=list(aborted), data=data)


rounds = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 5, 10, 11, 1000]),
        st.sampled_from([1, 1, 0.5, 0]),
        st.sampled_from([400, 1100, NO_LIMIT_BYTES]),
    ),
    min_size=1,
    max_size=4,
)


@given(model.logs(), rounds, st.sampled_from([0, 10]))
def test_round_after_round_as_in_the_model(log: Log, drawn: list[tuple[int, float, int]], retention_ms: int) -> None:
    now_ms = START_MS
    map_end_offset = 0
    for pass_ms, dirty_from, limit_bytes in drawn:
        now_ms += pass_ms
        # A checkpoint may be old, but never ahead of what was cleaned.
        first_dirty_offset = int(dirty_from * map_end_offset)
        cleaned, aborted, map_end_offset = compact(
            log,
            now_ms=now_ms,
            retention_ms=retention_ms,
            first_dirty_offset=first_dirty_offset,
            limit_bytes=limit_bytes,
        )
        assert first_dirty_offset <= map_end_offset <= log.end_offset
        if limit_bytes == NO_LIMIT_BYTES:
            assert map_end_offset == log.end_offset
        elif first_dirty_offset < log.end_offset:
            assert map_end_offset > first_dirty_offset
        expected = model.clean(log, Round(first_dirty_offset, map_end_offset, now_ms, retention_ms))
        after = log_of(cleaned, log, aborted)
        assert after.batches == expected.batches
        assert after.aborted == expected.aborted
        assert model.state(after) == model.state(log)
        log = after


@given(model.logs())
def test_what_is_left_was_there_and_the_end_stays_known(log: Log) -> None:
    cleaned, _, _ = compact(log)
    before = {record.offset: record for batch in log.batches for record in batch.records}
    after = [record for batch in model.split(cleaned) for record in model.decode(batch).records]
    assert all(before[record.offset] == record for record in after)
    left = list(iter_batches(cleaned))
    assert [batch.next_offset for batch in left[-1:]] == [log.end_offset] * bool(log.batches)
    known = {(batch.producer_id, batch.last_offset) for batch in left}
    assert known >= {(producer_id, last.offset) for producer_id, last in log.last_batches.items() if last.offset >= 0}


@given(model.logs())
def test_a_second_round_at_the_same_time_finds_nothing_to_do(log: Log) -> None:
    once, aborted, _ = compact(log)
    twice, aborted, _ = compact(log_of(once, log, aborted))
    # Only the markers of transactions that lost their last batch in the first round get their horizon in the second.
    without_markers = [[batch for batch in model.split(data) if not batch[22] & 0x20] for data in (once, twice)]
    assert without_markers[0] == without_markers[1]
    assert compact(log_of(twice, log, aborted))[0] == twice


@needs_kafka()
def test_kafkas_own_cleaner_leaves_the_same() -> None:
    lines: list[str] = []
    expected: list[tuple[list[Batch], int, str]] = []

    @settings(max_examples=250, database=None, derandomize=True)
    @given(model.logs(), st.floats(0, 0.7), st.sampled_from([0, 10, 1000]))
    def draw_two_rounds(log: Log, dirty_from: float, pass_ms: int) -> None:
        first_dirty_offset = int(dirty_from * log.end_offset)
        for now_ms in (START_MS, START_MS + pass_ms):
            lines.append(oracle_line(log, first_dirty_offset, now_ms, 10))
            cleaned, aborted, map_end_offset = compact(
                log, now_ms=now_ms, retention_ms=10, first_dirty_offset=first_dirty_offset
            )
            log = log_of(cleaned, log, aborted)
            expected.append((log.batches, map_end_offset, shown(aborted)))

    draw_two_rounds()
    answers = run_java("Compaction.java", "\n".join(lines)).splitlines()
    for line, answer, ours in zip(lines, answers, expected, strict=True):
        assert answered(answer) == ours, line


def oracle_line(log: Log, first_dirty_offset: int, now_ms: int, retention_ms: int) -> str:
    last = ",".join(f"{producer_id}:{each.offset}:{each.epoch}" for producer_id, each in log.last_batches.items())
    return (
        f"{log.encode().hex() or '-'} {first_dirty_offset} {log.end_offset} {now_ms} {retention_ms} 100 "
        f"{shown(log.aborted)} {last or '-'}"
    )


def shown(aborted: list[AbortedTransaction]) -> str:
    return ",".join(f"{each.producer_id}:{each.first_offset}:{each.last_offset}" for each in aborted) or "-"


def answered(line: str) -> tuple[list[Batch], int, str]:
    data, end_offset, aborted = line.split(" ")
    cleaned = b"" if data == "-" else bytes.fromhex(data)
    return [model.decode(batch) for batch in model.split(cleaned)], int(end_offset), aborted


# --- single behaviours


def log_with(*batches: Batch) -> Log:
    return Log(list(batches), end_offset=batches[-1].last_offset + 1 if batches else 0)


def test_an_unchanged_batch_is_passed_on_without_a_copy() -> None:
    data = log_with(batch(0, (b"a", b"1"), (b"b", b"2")), batch(2, (b"c", b"3"))).encode()
    keys = KeyOffsets(0, NO_LIMIT_BYTES)
    keys.add_all(iter_batches(data))
    cleaner = BatchCleaner(keys, end_offset=3, now_ms=0, delete_retention_ms=0)
    for entry, left in zip(iter_batches(data), cleaner.clean(iter_batches(data)), strict=True):
        assert left.data.obj is data
        assert left.data == entry.data


@pytest.mark.parametrize("codec", list(Codec))
def test_the_codec_of_a_batch_that_loses_records_stays(codec: Codec) -> None:
    log = log_with(batch(0, (b"a", b"1" * 500), (b"b", b"2" * 500), attributes=codec), batch(2, (b"a", b"3")))
    (first, _) = iter_batches(compact(log)[0])
    first.check_crc()
    assert first.codec is codec
    assert [(record.offset, record.key) for record in first] == [(1, b"b")]
    assert (first.base_offset, first.last_offset) == (0, 1)


def test_a_tombstone_is_seen_for_a_while_and_then_goes() -> None:
    log = log_with(batch(0, (b"a", b"1")), batch(1, (b"a", None), (b"b", b"2")), batch(3, (b"c", b"3")))
    waiting, _, _ = compact(log, now_ms=1000, retention_ms=50)
    (tombstone, _) = iter_batches(waiting)
    assert tombstone.delete_horizon_ms == 1050
    assert [(record.offset, record.timestamp_ms, record.value) for record in tombstone] == [
        (1, START_MS, None),
        (2, START_MS + 1, b"2"),
    ]
    later = log_of(waiting, log, [])
    assert compact(later, now_ms=1049, retention_ms=50)[0] == waiting
    gone = list(iter_batches(compact(later, now_ms=1050, retention_ms=50)[0]))
    assert [record.offset for left in gone for record in left] == [2, 3]
    assert gone[0].delete_horizon_ms == 1050


def test_a_retention_without_end_does_not_overflow() -> None:
    log = log_with(batch(0, (b"a", None)))
    (tombstone,) = iter_batches(compact(log, retention_ms=2**63 - 1)[0])
    assert tombstone.delete_horizon_ms == 2**63 - 1
    assert [record.timestamp_ms for record in tombstone] == [START_MS]


def test_records_without_a_key_go() -> None:
    cleaned, _, _ = compact(log_with(batch(0, (None, b"1"), (b"a", b"2")), batch(2, (b"b", b"3"))))
    assert [record.offset for record in iter_records(cleaned)] == [1, 2]


def test_beyond_the_end_of_the_map_everything_stays() -> None:
    log = log_with(batch(0, (b"a", b"1"), (b"b" * 5000, b"2"), (b"a", b"3"), (None, b"4")), batch(4, (b"a", b"5")))
    cleaned, _, map_end_offset = compact(log, limit_bytes=2000)
    assert map_end_offset == 1
    assert [record.offset for record in iter_records(cleaned)] == [0, 1, 2, 3, 4]
    # The next round takes up in the middle of the batch, and one key always fits.
    cleaned, _, map_end_offset = compact(log, limit_bytes=2000, first_dirty_offset=1)
    assert map_end_offset == 2
    assert [record.offset for record in iter_records(cleaned)] == [0, 1, 2, 3, 4]
    cleaned, _, map_end_offset = compact(log, limit_bytes=2000, first_dirty_offset=2)
    assert map_end_offset == 5
    assert [record.offset for record in iter_records(cleaned)] == [1, 4]


def test_aborted_records_do_not_supersede() -> None:
    writer = model.Writer(lambda _: None)
    writer.append(0, [(START_MS, b"a", b"good", ())], producer=(-1, -1, -1))
    writer.append(model.TRANSACTIONAL, [(START_MS, b"a", b"bad", ())], producer=(4, 0, 0))
    writer.first_offsets[4] = 1
    writer.end(4, ABORT)
    writer.append(0, [(START_MS, b"b", b"last", ())], producer=(-1, -1, -1))
    log = replace(writer.log, last_batches={4: LastBatch(1, 0)})
    cleaned, aborted, _ = compact(log)
    assert [(left.last_offset, left.record_count) for left in iter_batches(cleaned)] == [(0, 1), (1, 0), (2, 1), (3, 1)]
    assert aborted == log.aborted
    # Once the producer is forgotten, its last batch goes, then its marker gets a horizon, then the marker goes.
    log = replace(log_of(cleaned, log, aborted), last_batches={})
    for offsets, still_aborted in (([0, 2, 3], log.aborted), ([0, 2, 3], []), ([0, 3], [])):
        cleaned, aborted, _ = compact(log, retention_ms=0)
        assert [left.last_offset for left in iter_batches(cleaned)] == offsets
        assert aborted == still_aborted
        log = log_of(cleaned, log, aborted)


def test_a_lost_marker_does_not_abort_what_came_after() -> None:
    view = TransactionView([AbortedTransaction(4, 0, 10, 11)])
    data = replace(batch(0, (b"a", b"1"), attributes=model.TRANSACTIONAL), producer=(4, 0, 0))
    assert view.is_aborted(BatchView(data.encode()))
    later = replace(batch(20, (b"a", b"1"), attributes=model.TRANSACTIONAL), producer=(4, 0, 1))
    assert not view.is_aborted(BatchView(later.encode()))


def test_other_control_records_stay() -> None:
    change = Kept(0, START_MS, b"\0\0\0\2", b"\0\0")
    log = Log([Batch(0, 0, model.CONTROL, START_MS, (change,)), batch(1, (b"a", b"1"))], end_offset=2)
    assert compact(log)[0] == log.encode()


def test_a_commit_marker_waits_for_the_last_batch_of_its_transaction() -> None:
    writer = model.Writer(lambda _: None)
    writer.append(model.TRANSACTIONAL, [(START_MS, b"a", b"1", ())], producer=(4, 0, 0))
    writer.end(4, COMMIT)
    writer.append(0, [(START_MS, b"b", b"2", ())], producer=(-1, -1, -1))
    log = replace(writer.log, last_batches={})
    assert compact(log, retention_ms=0)[0] == log.encode()
    writer.append(0, [(START_MS, b"a", b"3", ())], producer=(-1, -1, -1))
    left = []
    log = replace(writer.log, last_batches={})
    for _ in range(3):
        cleaned, _, _ = compact(log, retention_ms=0)
        log = log_of(cleaned, log, [])
        left.append([(each.last_offset, each.horizon_ms) for each in log.batches])
    assert left == [[(1, None), (2, None), (3, None)], [(1, START_MS), (2, None), (3, None)], [(2, None), (3, None)]]


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_the_data_of_one_transaction_does_not_keep_the_marker_of_the_next(kind: int) -> None:
    writer = model.Writer(lambda _: None)
    writer.append(model.TRANSACTIONAL, [(START_MS, b"a", b"1", ())], producer=(4, 0, 0))
    writer.first_offsets[4] = 0
    writer.end(4, kind)
    writer.end(4, kind)
    writer.append(0, [(START_MS, b"b", b"2", ())], producer=(-1, -1, -1))
    cleaned, _, _ = compact(replace(writer.log, last_batches={}))
    markers = [left for left in iter_batches(cleaned) if left.is_control]
    assert [left.delete_horizon_ms for left in markers] == [None, START_MS + DAY_MS]


def test_messages_of_old_formats() -> None:
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    def old(magic: int, codec: Codec, *records: tuple[int, bytes, bytes | None]) -> bytes:
        builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 16)
        for offset, key, value in records:
            builder.append(offset, timestamp=START_MS, key=key, value=value)
        built = bytearray(builder.build())
        if codec is not Codec.NONE:
            built[:8] = records[-1][0].to_bytes(8, "big")
        return bytes(built)

    single, superseded = old(1, Codec.NONE, (0, b"a", b"1")), old(1, Codec.NONE, (1, b"b", b"2"))
    tombstone = old(0, Codec.NONE, (2, b"c", None))
    wrapper = old(1, Codec.GZIP, (0, b"d", b"4"), (1, b"b", b"5"), (2, b"e", b"6"))
    wrapper = (5).to_bytes(8, "big") + wrapper[8:]
    data = single + superseded + tombstone + wrapper + batch(6, (b"b", b"7")).encode()
    keys = KeyOffsets(0, NO_LIMIT_BYTES)
    assert keys.add_all(iter_entries(data))
    cleaner = BatchCleaner(keys, end_offset=7, now_ms=1000, delete_retention_ms=50)
    left = list(cleaner.clean(iter_entries(data)))
    assert [(entry.magic, [record.offset for record in entry.records()]) for entry in left] == [
        (1, [0]),
        (2, [2]),
        (2, [3, 5]),
        (2, [6]),
    ]
    assert left[0].data == single
    assert isinstance(left[1], BatchView)
    assert left[1].delete_horizon_ms == 1050
    assert cleaner.stats.records_read == 7
    assert cleaner.stats.records_retained == 5
