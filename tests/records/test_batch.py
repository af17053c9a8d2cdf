"""Walking over batches, looking into them and stamping them in place."""

from __future__ import annotations

import pytest
from tests.records import naive
from tests.records.naive import NaiveBatch, NaiveRecord

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.records import (
    BatchView,
    Codec,
    TimestampType,
    add_to_sequence,
    emptied,
    iter_batches,
    iter_records,
)
from barnabas.records._kernel.scan import skip_intact

SOME = [NaiveRecord(5, b"k", b"v"), NaiveRecord(9, None, b"w", (("h", None),), 1), NaiveRecord(7, b"", None, (), 2)]
ONE = naive.encode(NaiveBatch(SOME, base_offset=10))
TWO = ONE + naive.encode(NaiveBatch(SOME, base_offset=13, attributes=4))


def test_walk_gives_every_batch_with_its_header() -> None:
    walk = iter_batches(TWO)
    first, second = walk
    assert (first.base_offset, first.last_offset, first.next_offset) == (10, 12, 13)
    assert (second.base_offset, second.codec, second.record_count) == (13, Codec.ZSTD, 3)
    assert (first.base_timestamp_ms, first.max_timestamp_ms, first.leader_epoch, first.magic) == (5, 9, -1, 2)
    assert first.size_bytes + second.size_bytes == len(TWO) == walk.position
    assert not walk.truncated
    assert repr(first) == "<batch of 3 records, offsets 10 to 12, 88 bytes>"


@pytest.mark.parametrize("left_out", [1, 30, 60, 61, 80])
def test_a_truncated_last_batch_ends_the_walk(left_out: int) -> None:
    walk = iter_batches(TWO[:-left_out])
    assert [batch.base_offset for batch in walk] == [10]
    assert walk.truncated
    assert walk.position == len(ONE)
    assert [record.offset for record in iter_records(TWO[:-left_out])] == [10, 11, 12]


def test_an_empty_buffer_has_no_batches() -> None:
    walk = iter_batches(b"")
    assert list(walk) == []
    assert not walk.truncated


@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    data = bytearray(TWO)
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError, match="bytes"):
        list(iter_batches(data))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_refused(magic: int) -> None:
    data = bytearray(TWO)
    data[16] = magic
    with pytest.raises(RemoteProtocolError, match=f"magic {magic}"):
        list(iter_batches(data))


def test_walk_takes_any_contiguous_buffer() -> None:
    assert len(list(iter_batches(memoryview(bytearray(TWO))))) == 2
    assert len(list(iter_batches(memoryview(TWO).cast("b")))) == 2


def test_every_flipped_bit_after_the_crc_is_found() -> None:
    data = bytearray(ONE)
    for position in range(21, len(data)):
        data[position] ^= 0x10
        try:
            view = BatchView(data)
        except RemoteProtocolError:
            pass
        else:
            with pytest.raises(RemoteProtocolError, match="corrupt"):
                view.check_crc()
        data[position] ^= 0x10
    BatchView(data).check_crc()


def test_stamping_offset_and_epoch_leaves_the_crc_alone() -> None:
    data = bytearray(ONE)
    view = BatchView(data)
    view.stamp(base_offset=2**40, leader_epoch=77)
    assert (view.base_offset, view.leader_epoch) == (2**40, 77)
    again = BatchView(bytes(data))
    again.check_crc()
    assert (again.base_offset, again.leader_epoch, again.crc) == (2**40, 77, BatchView(ONE).crc)


@pytest.mark.parametrize("codec", list(Codec))
def test_stamping_append_time_makes_every_record_read_so(codec: Codec) -> None:
    data = bytearray(naive.encode(NaiveBatch(SOME, attributes=codec)))
    view = BatchView(data)
    view.stamp_log_append_time(123456)
    view.check_crc()
    assert view.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {(record.timestamp_ms, record.timestamp_type) for record in view} == {(123456, 1)}
    assert (view.summarise().min_timestamp_ms, view.summarise().max_timestamp_ms) == (5, 9)
    view.stamp_max_timestamp(9)
    view.check_crc()
    assert [record.timestamp_ms for record in view] == [5, 9, 7]
    assert data == naive.encode(NaiveBatch(SOME, attributes=codec))


def test_stamping_a_producer_renews_the_crc() -> None:
    view = BatchView(bytearray(ONE))
    view.stamp_producer(producer_id=2**40, producer_epoch=3, base_sequence=2**31 - 2)
    view.check_crc()
    assert (view.producer_id, view.producer_epoch, view.base_sequence, view.last_sequence) == (2**40, 3, 2**31 - 2, 0)


def test_a_read_only_buffer_cannot_be_stamped() -> None:
    with pytest.raises(LocalProtocolError, match="writable"):
        BatchView(ONE).stamp(base_offset=1, leader_epoch=1)


@pytest.mark.parametrize(
    ("sequence", "increment", "expected"),
    [(0, 0, 0), (0, 5, 5), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2), (1, 2**31 - 1, 0)],
)
def test_sequences_go_on_at_zero(sequence: int, increment: int, expected: int) -> None:
    assert add_to_sequence(sequence, increment) == expected


def test_attribute_bits() -> None:
    view = BatchView(naive.encode(NaiveBatch(SOME, attributes=0x70, producer_id=1, base_timestamp_ms=1234)))
    assert view.is_transactional
    assert view.is_control
    assert view.has_producer_id
    assert view.delete_horizon_ms == 1234
    plain = BatchView(ONE)
    assert not any((plain.is_transactional, plain.is_control, plain.has_producer_id))
    assert plain.delete_horizon_ms is None
    assert plain.last_sequence == -1


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    view = BatchView(naive.encode(NaiveBatch(SOME, attributes=codec)))
    with pytest.raises(RemoteProtocolError, match=f"codec {codec}"):
        list(view)


def test_deltas_may_reach_two_to_the_31() -> None:
    records = [NaiveRecord(0, None, b""), NaiveRecord(-1, None, b"", (), 2**31 - 1)]
    view = BatchView(naive.encode(NaiveBatch(records, base_offset=7)))
    assert [(record.offset, record.timestamp_ms) for record in view] == [(7, 0), (7 + 2**31 - 1, -1)]
    assert view.last_offset == 7 + 2**31 - 1
    assert view.summarise().first_gap == 1


def test_disorder_of_offsets_is_reported() -> None:
    records = [NaiveRecord(0, b"k", b""), NaiveRecord(0, b"k", b"", (), 2), NaiveRecord(0, b"k", b"", (), 2)]
    summary = BatchView(naive.encode(NaiveBatch(records))).summarise()
    assert (summary.first_gap, summary.first_disorder) == (1, 2)


@pytest.mark.parametrize("codec", list(Codec))
def test_compaction_may_leave_a_batch_without_records(codec: Codec) -> None:
    whole = naive.encode(
        NaiveBatch(SOME, base_offset=10, attributes=codec, producer_id=4, producer_epoch=1, base_sequence=8)
    )
    kept = BatchView(emptied(BatchView(whole)))
    kept.check_crc()
    assert (kept.record_count, kept.size_bytes, list(kept)) == (0, 61, [])
    assert (kept.base_offset, kept.last_offset, kept.producer_id, kept.last_sequence) == (10, 12, 4, 10)
    assert kept.max_timestamp_ms == 9
    assert kept.summarise().record_count == 0
    assert list(iter_records(bytes(kept.data) + whole)) == list(iter_records(whole))


@pytest.mark.parametrize("count", [0, 1, 2, 4, 2**31 - 1])
def test_a_wrong_record_count_is_refused(count: int) -> None:
    view = BatchView(naive.encode(NaiveBatch(SOME, record_count=count)))
    with pytest.raises(RemoteProtocolError):
        view.summarise()
    with pytest.raises(RemoteProtocolError):
        list(view)


def test_bytes_after_the_last_record_are_refused() -> None:
    view = BatchView(naive.encode(NaiveBatch(SOME, trailing=b"\0")))
    with pytest.raises(RemoteProtocolError, match="left after the last record, at byte 27 of the batch's records"):
        view.summarise()
    with pytest.raises(RemoteProtocolError, match="left"):
        list(view)


def test_a_view_outlives_the_view_it_was_made_from() -> None:
    with memoryview(bytearray(TWO)) as released:
        walk = iter_batches(released)
        first = next(walk)
        reader = first.records()
    assert [record.offset for record in reader] == [10, 11, 12]
    assert [batch.base_offset for batch in walk] == [13]
    first.data.release()
    with pytest.raises(ValueError, match="released"):
        first.read_header()


# What recovery looks at first

LONG = b"".join(naive.encode(NaiveBatch(SOME, base_offset=offset)) for offset in (10, 13, 16, 19))


def test_intact_batches_that_follow_each_other_are_stepped_over() -> None:
    size = len(ONE)
    assert skip_intact(LONG, 10, 1000) == (4 * size, 22, 3 * size, 19)
    assert skip_intact(LONG, 10, 22) == (4 * size, 22, 3 * size, 19)
    assert skip_intact(LONG, 10, 21) == (3 * size, 19, 2 * size, 16), "none reaches beyond the end that is asked for"
    assert skip_intact(LONG[:-1], 10, 1000) == (3 * size, 19, 2 * size, 16)
    assert skip_intact(LONG, 9, 1000) == (0, 9, 0, 9)
    assert skip_intact(b"", 10, 1000) == (0, 10, 0, 10)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b"\0\0\0\0\0\0\0\x11"),  # another offset
        (8, b"\xff\xff\xff\xff"),  # a length that cannot be
        (8, b"\0\0\0\x30"),  # too short for a header
        (8, b"\x7f\xff\xff\xff"),  # longer than the buffer
        (16, b"\1"),  # an old format
        (23, b"\xff\xff\xff\xff"),  # a negative delta, under no right CRC either
        (57, b"\xff\xff\xff\xff"),
        (70, b"\xee"),  # a record
    ],
)
def test_whatever_is_wrong_with_a_batch_is_left_to_a_closer_look(at: int, value: bytes) -> None:
    data, size = bytearray(LONG), len(ONE)
    data[2 * size + at : 2 * size + at + len(value)] = value
    assert skip_intact(data, 10, 1000) == (2 * size, 16, size, 13)


def test_a_batch_tells_whether_it_is_intact_and_follows() -> None:
    batch = BatchView(bytearray(ONE))
    assert batch.is_intact()
    assert batch.follows(10, 13)
    assert not batch.follows(10, 12), "it reaches the bound"
    assert not batch.follows(9, 13)
    assert not batch.follows(11, 13)
    assert not BatchView(naive.encode(NaiveBatch(SOME, base_offset=10, last_offset_delta=5))).follows(10, 100)
    batch.data[-1] ^= 1
    assert not batch.is_intact()
    assert batch.follows(10, 2**63 - 1)
