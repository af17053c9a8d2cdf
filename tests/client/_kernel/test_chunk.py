"""Records out of what was fetched, and where in it the program is."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client._kernel.receiving import Chunk, ConsumerRecord, survey
from barnabas.client.errors import CorruptRecordsError, SerializationError
from barnabas.records import Codec, iter_batches, iter_records
from barnabas.records._kernel.collect import RecordColumns
from barnabas.records.arrow import record_arrays
from tests.client.core.consuming.logs import T0, TIME_MS, batch, chunk, fetched, marker


def offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def test_a_record_tells_everything_about_itself() -> None:
    (record,) = chunk(batch(7, [b"value"], epoch=3, key=b"key", headers=[("trace", b"1"), ("none", None)]), at=7)
    assert (record.topic, record.partition, record.offset) == ("clicks", 0, 7)
    assert (record.key, record.value) == (b"key", b"value")
    assert record.headers == (("trace", b"1"), ("none", None))
    assert (record.timestamp_ms, record.timestamp_type) == (TIME_MS + 7, 0)
    assert record.leader_epoch == 3
    assert (record.serialized_key_size, record.serialized_value_size) == (3, 5)
    assert repr(record).startswith("ConsumerRecord(topic='clicks', partition=0, offset=7, ")


def test_null_keys_and_values_have_no_size() -> None:
    (record,) = chunk(batch(0, [None]))
    assert record.key is None
    assert record.value is None
    assert (record.serialized_key_size, record.serialized_value_size) == (-1, -1)


def test_timestamps_of_the_broker_count_for_all_records_of_a_batch() -> None:
    records = list(chunk(batch(0, [b"a", b"b"], log_append_time_ms=99)))
    assert [(record.timestamp_ms, record.timestamp_type) for record in records] == [(99, 1), (99, 1)]


def test_records_can_be_pickled_copied_and_compared() -> None:
    (record,) = chunk(batch(7, [b"value"], epoch=3, headers=[("h", b"1")]), at=7)
    assert pickle.loads(pickle.dumps(record)) == record
    assert copy.copy(record) == record
    assert hash(copy.copy(record)) == hash(record)
    (other,) = chunk(batch(8, [b"value"], epoch=3, headers=[("h", b"1")]), at=8)
    assert record != other
    assert record != "record"
    assert ConsumerRecord("clicks", 0, 7).leader_epoch is None


def test_iterating_and_taking_lists_mix() -> None:
    taken = chunk(batch(0, [b"%d" % i for i in range(5)]), batch(5, [b"%d" % i for i in range(5, 12)]))
    assert next(taken).offset == 0
    assert offsets(taken.take(6)) == [1, 2, 3, 4, 5, 6]
    assert offsets(list(taken)) == [7, 8, 9, 10, 11]
    assert taken.is_exhausted
    assert taken.take(1) == []
    assert taken.record_count == 12


def test_a_record_in_the_hands_of_the_program_is_not_done_with() -> None:
    taken = chunk(batch(0, [b"a", b"b", b"c"], epoch=4))
    assert (taken.handed_offset, taken.next_offset) == (0, 0)
    next(taken)
    assert (taken.handed_offset, taken.next_offset) == (0, 1)
    next(taken)
    assert (taken.handed_offset, taken.next_offset, taken.next_epoch) == (1, 2, 4)
    taken.take(10)
    assert (taken.handed_offset, taken.next_offset) == (1, 3)
    taken.confirm()
    assert taken.handed_offset == 3


def test_the_end_of_an_iteration_is_done_with_everything_markers_too() -> None:
    taken = chunk(batch(0, [b"a"], producer_id=1), marker(1, 1, committed=True, epoch=2))
    assert len(list(taken)) == 1
    assert (taken.handed_offset, taken.next_offset, taken.next_epoch) == (2, 2, 2)


def test_a_halted_chunk_gives_nothing_until_it_is_resumed() -> None:
    taken = chunk(batch(0, [b"a", b"b", b"c"]))
    next(taken)
    taken.halt()
    assert list(taken) == []
    assert taken.take(5) == []
    assert not taken.has_more()
    assert taken.next_offset == 1
    taken.resume()
    assert offsets(list(taken)) == [1, 2]


def test_deserializers_get_topic_headers_and_bytes_and_never_none() -> None:
    seen: list[object] = []

    def read(topic: str, headers: object, data: bytes) -> str:
        seen.append((topic, headers, data))
        return data.decode()

    records = list(chunk(batch(0, [b"1", None], headers=[("h", b"x")]), key_deserializer=read, value_deserializer=read))
    assert [(record.key, record.value) for record in records] == [(None, "1"), (None, None)]
    assert seen == [("clicks", (("h", b"x"),), b"1")]
    assert records[0].serialized_value_size == 1


def test_a_record_that_cannot_be_deserialized_is_named_and_comes_again() -> None:
    def read(topic: str, headers: object, data: bytes) -> int:
        return int(data)

    taken = chunk(batch(5, [b"1", b"x", b"3"]), at=5, value_deserializer=read)
    assert [record.value for record in taken.take(10)] == [1]  # first what is good
    for _ in range(2):
        with pytest.raises(SerializationError, match=r"the value of clicks-0 at offset 6 .*invalid literal") as caught:
            taken.take(10)
        assert (vars(caught.value)["partition"], vars(caught.value)["offset"]) == (T0, 6)
        assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(SerializationError):
        next(taken)
    assert taken.next_offset == 6


def test_values_with_cycles_are_collected() -> None:
    class Box:
        pass

    (record,) = chunk(batch(0, [b"x"]), value_deserializer=lambda topic, headers, data: Box())
    record.value.record = record
    dead = weakref.ref(record.value)
    del record
    gc.collect()
    assert dead() is None


def test_records_of_plain_parts_do_not_burden_the_collector() -> None:
    records = list(chunk(batch(0, [b"a", b"b"])))
    assert not any(gc.is_tracked(record) for record in records)


def test_the_answer_is_let_go_when_its_chunk_is_used_up() -> None:
    data = bytes(batch(0, [b"a"] * 10))
    before = sys.getrefcount(data)
    taken = Chunk("clicks", 0, fetched(data), len(data))
    next(taken)
    assert sys.getrefcount(data) > before
    list(taken)
    assert sys.getrefcount(data) == before


def test_malformed_records_are_reported_at_their_offset_again_and_again() -> None:
    broken = batch(0, [b"aaaa", b"bbbb"])
    broken[-6] ^= 0xFF  # the length of the second value
    taken = chunk(broken, check_crcs=False)
    assert offsets(taken.take(5)) == [0]
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match="clicks-0 at offset 1 cannot be read"):
            taken.take(5)
    assert taken.next_offset == 1


def test_a_batch_that_does_not_unpack_is_reported_again_and_again() -> None:
    good, bad = batch(0, [b"a"]), batch(1, [b"b" * 100], codec=Codec.ZSTD)
    bad[70:80] = bytes(10)
    taken = chunk(good, bad, check_crcs=False)
    assert offsets(taken.take(5)) == [0]
    for _ in range(3):
        with pytest.raises(CorruptRecordsError, match="clicks-0 at offset 1"):
            taken.take(5)


def test_rows_are_counted_exactly_also_in_the_middle_of_a_batch() -> None:
    taken = chunk(batch(0, [b"%d" % i for i in range(10)]), batch(10, [b"x"]), at=2)
    columns = RecordColumns()
    assert next(taken).offset == 2
    assert taken.add_to(columns, 3) == 3
    assert taken.next_offset == 6
    assert offsets(taken.take(1)) == [6]
    assert taken.add_to(columns, 100) == 3
    assert taken.add_to(columns, 100) == 1
    assert taken.add_to(columns, 100) == 0
    _, value, _, offset, _ = record_arrays(columns.take())
    assert offset.to_pylist() == [3, 4, 5, 7, 8, 9, 10]
    assert value.to_pylist() == [b"3", b"4", b"5", b"7", b"8", b"9", b"x"]
    assert taken.is_exhausted
    assert taken.next_offset == 11


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """A log with gaps, nulls, headers and codecs, and where to begin in it."""
    offset = draw(st.integers(0, 1000))
    data = b""
    first = offset
    for _ in range(draw(st.integers(1, 5))):
        values = draw(st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=8))
        gaps = draw(st.lists(st.integers(1, 3), min_size=len(values), max_size=len(values)))
        deltas = [sum(gaps[: number + 1]) - 1 for number in range(len(values))]
        codec = draw(st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD]))
        headers = draw(st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2))
        key = draw(st.none() | st.binary(max_size=4))
        built = batch(offset, values, codec=codec, deltas=deltas, key=key, headers=headers)
        data += built
        offset += deltas[-1] + 1 + draw(st.integers(0, 2))
    return data, draw(st.integers(first, offset))


@settings(max_examples=150, deadline=None)
@given(logs(), st.lists(st.integers(1, 7), max_size=10), st.integers(0, 3))
def test_records_and_columns_are_what_the_log_holds(log: tuple[bytes, int], sizes: list[int], way: int) -> None:
    data, begin = log
    expected = list(iter_records(data, begin))
    taken = chunk(data, at=begin)
    if way == 0:
        records = list(taken)
    else:
        records = []
        for size in sizes:
            records += taken.take(size) if way == 1 else [next(taken)] if taken.has_more() else []
        records += list(taken)
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records] == [
        (r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in expected
    ]
    again, columns = chunk(data, at=begin), RecordColumns()
    for size in sizes:
        again.add_to(columns, size)
    while again.add_to(columns, 1 << 30):
        pass
    key, value, headers, offset, _ = record_arrays(columns.take())
    assert offset.to_pylist() == [r.offset for r in expected]
    assert value.to_pylist() == [r.value for r in expected]
    assert key.to_pylist() == [r.key for r in expected]
    assert [[(h["key"], h["value"]) for h in row] for row in headers.to_pylist()] == [list(r.headers) for r in expected]
    assert taken.next_offset == again.next_offset
    entries, _, behind, _ = survey(data)
    assert entries == len(list(iter_batches(data)))
    assert max(begin, behind) == taken.next_offset


def test_a_survey_looks_at_whole_batches_only() -> None:
    data = bytes(batch(10, [b"a", b"b"], epoch=1)) + bytes(batch(20, [b"c"], epoch=2))
    assert survey(data) == (2, 3, 21, 2)
    assert survey(data[:-1]) == (1, 2, 12, 1)
    assert survey(data[:30]) == (0, 0, -1, -1)
    assert survey(b"") == (0, 0, -1, -1)
