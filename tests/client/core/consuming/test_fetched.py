"""Which of the batches that a fetch has brought are for the program."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.core.consuming.fetched import FetchedRecords
from barnabas.client.errors import CorruptRecordsError
from barnabas.records import BatchView, Codec, emptied
from tests.client.core.consuming.logs import T0, batch, chunk, fetched, marker


def values(source: FetchedRecords) -> list[bytes | None]:
    found = []
    position = source.next_offset
    while (given := source.next_batch()) is not None:
        found += [record.value for record in given.records(position)]
    return found


def test_control_batches_are_passed_over_and_move_the_position() -> None:
    source = fetched(batch(0, [b"a"], producer_id=1), marker(1, 1, committed=True), batch(2, [b"b"]))
    assert values(source) == [b"a", b"b"]
    only_marker = fetched(marker(3, 1, committed=True, epoch=6), at=3)
    assert values(only_marker) == []
    assert (only_marker.next_offset, only_marker.next_epoch) == (4, 6)


def test_batches_below_the_position_are_passed_over() -> None:
    source = fetched(batch(0, [b"a", b"b"]), batch(2, [b"c", b"d"]), at=3)
    assert values(source) == [b"d"]


def test_the_position_moves_over_gaps_that_compaction_left() -> None:
    data = batch(0, [b"a", b"b"], deltas=[0, 5])
    hollow = emptied(BatchView(batch(10, [b"x", b"y"])))
    source = fetched(data, hollow)
    assert values(source) == [b"a", b"b"]
    assert source.next_offset == 12


def test_a_batch_that_was_cut_off_by_the_answers_size_is_left_for_the_next_fetch() -> None:
    whole, cut = batch(0, [b"a"]), batch(1, [b"b"])
    source = fetched(whole, cut[:-3])
    assert values(source) == [b"a"]
    assert source.next_offset == 1


def test_a_wrong_checksum_is_reported_until_somebody_seeks() -> None:
    broken = batch(5, [b"b", b"c"])
    broken[-3] ^= 1
    source = fetched(batch(0, [b"a"], deltas=[4]), broken)
    assert source.next_batch() is not None
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match=r"clicks-0 at offset 5 .*CRC.*reaches to offset 6") as caught:
            source.next_batch()
        assert (caught.value.partition, caught.value.offset) == (T0, 5)


def test_checksums_are_not_looked_at_unless_wanted() -> None:
    broken = batch(0, [b"a"])
    broken[-2] ^= 1
    assert values(fetched(broken, check_crcs=False)) == [b"`"]


def test_messages_of_old_formats_are_read_with_their_own_idea_of_time() -> None:
    def message(offset: int, magic: int, value: bytes) -> bytes:
        body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 77) if magic else b"")
        body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

    records = list(chunk(message(0, 0, b"zero"), message(4, 1, b"one"), bytes(batch(5, [b"two"]))))
    assert [(record.offset, record.value) for record in records] == [(0, b"zero"), (4, b"one"), (5, b"two")]
    assert [record.timestamp_type for record in records] == [-1, 0, 0]
    assert [record.timestamp_ms for record in records][:2] == [-1, 77]


def test_records_of_aborted_transactions_are_left_out_up_to_the_marker() -> None:
    log = (
        batch(0, [b"aborted"], producer_id=1),
        batch(1, [b"other"], producer_id=2),
        batch(2, [b"aborted too"], producer_id=1),
        marker(3, 1, committed=False),
        batch(4, [b"next try"], producer_id=1),
        marker(5, 1, committed=True),
        batch(6, [b"plain"]),
        marker(7, 2, committed=True),
    )
    seen = [b"other", b"next try", b"plain"]
    assert values(fetched(*log, aborted=[(1, 0)])) == seen
    assert values(fetched(*log, aborted=[])) == [b"aborted", b"other", b"aborted too", b"next try", b"plain"]
    assert values(fetched(*log)) == [b"aborted", b"other", b"aborted too", b"next try", b"plain"]


def test_a_compressed_aborted_batch_is_not_even_unpacked() -> None:
    spoiled = batch(0, [b"x" * 100], producer_id=1, codec=Codec.ZSTD)
    spoiled[70:80] = bytes(10)
    taken = chunk(spoiled, marker(1, 1, committed=False), batch(2, [b"b"]), aborted=[(1, 0)], check_crcs=False)
    assert [record.value for record in taken] == [b"b"]


def test_records_that_idempotent_producers_write_outside_of_transactions_are_seen() -> None:
    plain = batch(0, [b"plain"])
    assert values(fetched(plain, aborted=[(1, 0)])) == [b"plain"]


# Transactions as a log of a broker would hold them


@dataclass
class Model:
    """A log that knows the fate of each transaction, and the list of those that were aborted."""

    entries: list[tuple[int, bytearray]] = field(default_factory=list)
    next_offset: int = 0
    open: dict[int, list[int]] = field(default_factory=dict)
    fate: dict[int, bool] = field(default_factory=dict)  # by offset of a record: is it seen?
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, marker's offset

    def write(self, producer: int, count: int, codec: Codec) -> None:
        offset = self.next_offset
        self.entries.append(
            (offset, batch(offset, [b"%d" % (offset + i) for i in range(count)], producer_id=producer, codec=codec))
        )
        self.next_offset += count
        for each in range(offset, offset + count):
            if producer < 0:
                self.fate[each] = True
            else:
                self.open.setdefault(producer, []).append(each)

    def end(self, producer: int, committed: bool) -> None:
        written = self.open.pop(producer, None)
        offset = self.next_offset
        self.entries.append((offset, marker(offset, producer, committed=committed)))
        self.next_offset += 1
        for each in written or ():
            self.fate[each] = committed
        if written and not committed:
            self.aborted.append((producer, written[0], offset))

    def last_stable_offset(self) -> int:
        return min((written[0] for written in self.open.values()), default=self.next_offset)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(-1, 3), st.integers(1, 3), st.sampled_from([Codec.NONE, Codec.LZ4])),
        st.tuples(st.just("end"), st.integers(0, 3), st.booleans(), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(operations, st.integers(0, 60), st.integers(1, 10))
def test_readers_of_committed_records_see_just_those(
    done: list[tuple[str, int, int, Codec]], begin: int, entries_per_fetch: int
) -> None:
    log = Model()
    for what, producer, count, codec in done:
        if what == "write":
            log.write(producer, count, codec)
        else:
            log.end(producer, bool(count))
    stable = log.last_stable_offset()
    position, seen = begin, []
    while position < stable:
        # What a broker answers: whole batches below the stable offset, and the aborted transactions among them.
        answer = [
            (offset, data) for offset, data in log.entries if BatchView(data).next_offset > position and offset < stable
        ][:entries_per_fetch]
        upper = BatchView(answer[-1][1]).next_offset
        aborted = [(who, first) for who, first, last in log.aborted if last >= position and first < upper]
        taken = chunk(*(data for _, data in answer), at=position, aborted=reversed(aborted))
        seen += [record.offset for record in taken]
        assert taken.next_offset == upper
        position = upper
    assert seen == [offset for offset in range(begin, stable) if log.fate.get(offset)]
