"""A log and a list of batches are told the same, and must answer the same.

The list is the twin of the log: it has no segments, no indexes and no files, and finds everything by looking at all
batches. Only what a restart makes of files is taken from the log: where segments begin, and where snapshots lie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.base.error_codes import ErrorCode
from barnabas.records import BatchBuilder, BatchView, Codec, control_type
from barnabas.records.control import ControlType
from barnabas.storage.errors import AppendRefusedError, LogError
from barnabas.storage.leader_epochs import EpochEnd
from barnabas.storage.log import PartitionLog
from barnabas.storage.segment import FileRange
from barnabas.storage.validation import prepare_from_client, prepare_from_coordinator, prepare_from_leader
from barnabas.testing.sim.disk import SimulatedDisk
from tests.storage.logs import NOW_MS, marker, new_disk, open_log, read_all, topic_settings
from tests.sweeps import IS_FULL

WINDOW_BATCHES = 5
PRODUCERS = (1, 2, 3)


@dataclass(frozen=True)
class ModelBatch:
    """What the twin knows of a batch."""

    data: bytes
    first: int
    last: int
    epoch: int
    records: tuple[tuple[int, int], ...]  # offset and timestamp
    producer: int
    producer_epoch: int
    sequence: int
    is_transactional: bool
    outcome: str  # of a marker: commit or abort

    @classmethod
    def of(cls, view: BatchView) -> ModelBatch:
        outcome = ""
        if view.is_control:
            outcome = "commit" if control_type(next(iter(view))) is ControlType.COMMIT else "abort"
        return cls(
            bytes(view.data),
            view.base_offset,
            view.last_offset,
            view.leader_epoch,
            tuple((record.offset, record.timestamp_ms) for record in view),
            view.producer_id,
            view.producer_epoch,
            view.base_sequence,
            view.is_transactional,
            outcome,
        )

    @property
    def last_sequence(self) -> int:
        return self.sequence + self.last - self.first


@dataclass
class ModelProducer:
    epoch: int
    window: list[ModelBatch] = field(default_factory=list)
    transaction: int = -1

    @property
    def next_sequence(self) -> int:
        return self.window[-1].last_sequence + 1 if self.window else 0


@dataclass(frozen=True)
class Ended:
    producer: int
    first: int
    marker: int
    is_aborted: bool


class Model:
    """The twin: batches in a list, and a few offsets."""

    def __init__(self) -> None:
        self.batches: list[ModelBatch] = []
        #: Batches whose files are gone, but which producers and epochs remember.
        self.gone: list[ModelBatch] = []
        self.start = self.end = self.high_watermark = 0
        #: Which epoch begins where, with one mark for each batch.
        self.marks: list[tuple[int, int]] = []
        #: Producers know only what came from here on.
        self.known_from = 0
        #: Of batches before, producers remember only the newest.
        self.window_from = 0

    def append(self, batch: ModelBatch) -> None:
        self.batches.append(batch)
        self.marks = [*(mark for mark in self.marks if mark[0] < batch.first), (batch.first, batch.epoch)]
        self.end = batch.last + 1

    @property
    def visible(self) -> list[ModelBatch]:
        return [batch for batch in self.batches if batch.last >= self.start]

    @property
    def records(self) -> list[tuple[int, int]]:
        return [record for batch in self.batches for record in batch.records if record[0] >= self.start]

    def producers(self) -> tuple[dict[int, ModelProducer], list[Ended]]:
        """What a reading of all batches tells of producers."""
        known: dict[int, ModelProducer] = {}
        ended: list[Ended] = []
        for batch in [*self.gone, *self.batches]:
            if batch.producer < 0 or batch.last < self.known_from:
                continue
            producer = known.setdefault(batch.producer, ModelProducer(batch.producer_epoch))
            if producer.epoch != batch.producer_epoch:
                producer.epoch = batch.producer_epoch
                producer.window = []
            if batch.outcome:
                if producer.transaction >= 0:
                    is_aborted = batch.outcome == "abort"
                    ended.append(Ended(batch.producer, producer.transaction, batch.first, is_aborted))
                producer.transaction = -1
                continue
            if batch.first < self.window_from:
                producer.window = []
            producer.window = [*producer.window, batch][-WINDOW_BATCHES:]
            if batch.is_transactional and producer.transaction < 0:
                producer.transaction = batch.first
        return known, ended

    @property
    def last_stable_offset(self) -> int:
        known, ended = self.producers()
        unstable = [producer.transaction for producer in known.values() if producer.transaction >= 0]
        unstable += [each.first for each in ended if each.marker >= self.high_watermark]
        return max(min([*unstable, self.high_watermark]), self.start)

    def visible_aborts(self) -> list[Ended]:
        """Aborted transactions as far as they can be read: with the first offset that is left of each."""
        opened: dict[int, int] = {}
        aborts = []
        for batch in self.visible:
            if batch.outcome and batch.producer in opened:
                first = opened.pop(batch.producer)
                if batch.outcome == "abort":
                    aborts.append(Ended(batch.producer, first, batch.first, True))
            elif batch.is_transactional and not batch.outcome:
                opened.setdefault(batch.producer, batch.first)
        return aborts

    # Epochs

    def epoch_starts(self) -> list[tuple[int, int]]:
        starts: list[tuple[int, int]] = []
        for offset, epoch in sorted(self.marks):
            if not starts or epoch > starts[-1][1]:
                starts.append((offset, epoch))
        return starts

    def epoch_end(self, epoch: int) -> EpochEnd:
        starts = self.epoch_starts()
        if not starts or epoch < 0 or epoch > starts[-1][1]:
            return EpochEnd(-1, -1)
        largest = max((known for _, known in starts if known <= epoch), default=epoch)
        later = [offset for offset, known in starts if known > epoch]
        return EpochEnd(largest, min(later, default=self.end))

    def epoch_at(self, offset: int) -> int:
        return max((epoch for start, epoch in self.marks if start <= offset), default=-1)

    def start_at(self, offset: int) -> None:
        self.start = max(self.start, offset)
        before = [mark for mark in self.marks if mark[0] <= self.start]
        after = [mark for mark in self.marks if mark[0] > self.start]
        self.marks = [(self.start, max(epoch for _, epoch in before)), *after] if before else after

    # Getting shorter

    def cut(self, offset: int) -> None:
        """All batches that reach `offset` are gone, and what is known of them."""
        self.batches = [batch for batch in self.batches if batch.last < offset]
        self.end = max([batch.last + 1 for batch in self.batches], default=self.end)
        self.marks = [mark for mark in self.marks if mark[0] < self.end]

    def forget_files_before(self, offset: int) -> None:
        self.gone += [batch for batch in self.batches if batch.first < offset]
        self.batches = [batch for batch in self.batches if batch.first >= offset]


timestamps = st.one_of(
    st.integers(NOW_MS - 3_600_000, NOW_MS + 3_000_000), st.sampled_from([-1, 0, 1, NOW_MS, NOW_MS - 10**9])
)
values = st.lists(st.tuples(st.sampled_from([0, 10, 60, 300]), timestamps), min_size=1, max_size=4)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, *Codec])


def build(contents: list[tuple[int, int]], codec: Codec = Codec.NONE, **header: Any) -> bytearray:
    builder = BatchBuilder(100_000, codec=codec, **header)
    for size_bytes, timestamp_ms in contents:
        builder.append(b"v" * size_bytes, b"k", timestamp_ms)
    return builder.build()


class LogMachine(RuleBasedStateMachine):
    log: PartitionLog
    disk: SimulatedDisk

    @initialize(index_bytes=st.sampled_from([64, 10_000]), interval=st.sampled_from([0, 150, 4096]))
    def begin(self, index_bytes: int, interval: int) -> None:
        self.disk = new_disk()
        self.settings = topic_settings(
            segment_index_bytes=index_bytes, index_interval_bytes=interval, file_delete_delay_ms=0
        )
        self.log = open_log(self.disk, self.settings)
        self.model = Model()
        self.epoch = 0
        self.checkpoint = 0
        #: What the file of epochs says: what the log knew when it last brought it up to date.
        self.saved_marks: list[tuple[int, int]] = []

    # Appending

    def _lead(self, data: bytearray) -> None:
        prepared = prepare_from_client(data, self.settings, NOW_MS)
        appended = self.log.append(prepared, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert (appended.first_offset, appended.is_duplicate) == (self.model.end, False)
        assert appended.log_start_offset == self.model.start
        view = prepared.batches[0]
        assert (view.base_offset, view.leader_epoch) == (self.model.end, self.epoch)
        view.check_crc()
        self.model.append(ModelBatch.of(view))
        assert appended.last_offset == self.model.end - 1

    def _refused(self, data: bytearray, code: ErrorCode) -> None:
        with pytest.raises(AppendRefusedError) as refusal:
            self.log.append(prepare_from_client(data, self.settings, NOW_MS), leader_epoch=self.epoch, now_ms=NOW_MS)
        assert refusal.value.code is code

    @rule(contents=values, codec=codecs)
    def append(self, contents: list[tuple[int, int]], codec: Codec) -> None:
        self._lead(build(contents, codec))

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1

    @rule(
        producer=st.sampled_from(PRODUCERS),
        contents=st.lists(st.sampled_from([20, 20, 700]), min_size=1, max_size=2),
        new_epoch=st.booleans(),
        in_txn=st.booleans(),
    )
    def append_idempotent(self, producer: int, contents: list[int], new_epoch: bool, in_txn: bool) -> None:
        known = self.model.producers()[0].get(producer, ModelProducer(0))
        epoch, sequence = known.epoch, known.next_sequence
        if new_epoch and known.transaction < 0:
            epoch, sequence = epoch + 1, 0
        data = build([(size, NOW_MS) for size in contents], **header(producer, epoch, sequence, in_txn))
        if known.transaction >= 0 and not in_txn:
            self._refused(data, ErrorCode.INVALID_TXN_STATE)
        else:
            self._lead(data)

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(1, WINDOW_BATCHES))
    def append_again(self, producer: int, back: int) -> None:
        known = self.model.producers()[0].get(producer)
        if known is None or len(known.window) < back:
            return
        old = known.window[-back]
        count = old.last - old.first + 1
        data = build([(20, NOW_MS)] * count, **header(producer, old.producer_epoch, old.sequence, old.is_transactional))
        prepared = prepare_from_client(data, self.settings, NOW_MS)
        appended = self.log.append(prepared, leader_epoch=self.epoch, now_ms=NOW_MS)
        # Sequences that a follower took over may repeat: then the oldest one answers.
        same = next(
            batch
            for batch in known.window
            if (batch.sequence, batch.last_sequence) == (old.sequence, old.last_sequence)
        )
        assert (appended.first_offset, appended.last_offset, appended.is_duplicate) == (same.first, same.last, True)

    @rule(producer=st.sampled_from(PRODUCERS), ahead=st.integers(1, 3))
    def append_out_of_order(self, producer: int, ahead: int) -> None:
        known = self.model.producers()[0].get(producer)
        if known is None:
            return
        sequence = known.next_sequence + ahead
        if any((each.sequence, each.last_sequence) == (sequence, sequence) for each in known.window):
            return
        self._refused(
            build([(20, NOW_MS)], **header(producer, known.epoch, sequence, known.transaction >= 0)),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )
        if known.epoch:
            self._refused(
                build([(20, NOW_MS)], **header(producer, known.epoch - 1, 0, False)), ErrorCode.INVALID_PRODUCER_EPOCH
            )

    @rule(producer=st.sampled_from(PRODUCERS), committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        known = self.model.producers()[0].get(producer)
        if known is None:
            return
        data = marker(producer, known.epoch, committed=committed)
        prepared = prepare_from_coordinator(data, self.settings)
        appended = self.log.append(prepared, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert appended.first_offset == self.model.end
        self.model.append(ModelBatch.of(prepared.batches[0]))

    @rule(batches=st.lists(st.tuples(st.integers(0, 4), st.booleans(), values, codecs), min_size=1, max_size=4))
    def append_as_follower(self, batches: list[tuple[int, bool, list[tuple[int, int]], Codec]]) -> None:
        data = bytearray()
        offset = self.model.end
        for gap, is_new_epoch, contents, codec in batches:
            self.epoch += is_new_epoch
            one = build(contents, codec, base_offset=offset + gap, leader_epoch=self.epoch)
            offset += gap + len(contents)
            data += one
        prepared = prepare_from_leader(data + b"cut off")
        appended = self.log.append_as_follower(prepared, now_ms=NOW_MS)
        assert appended is not None
        assert appended.first_offset == prepared.batches[0].base_offset
        for view in prepared.batches:
            self.model.append(ModelBatch.of(view))
        assert appended.last_offset == self.model.end - 1

    @rule(share=st.floats(0, 1))
    def move_high_watermark(self, share: float) -> None:
        self.model.high_watermark += round((self.model.end - self.model.high_watermark) * share)
        self.log.set_high_watermark(self.model.high_watermark)

    # Reading

    @rule(data=st.data(), max_bytes=st.integers(0, 3000), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        model = self.model
        offset = data.draw(st.integers(model.start - 1, model.end + 1))
        ends = [model.high_watermark, model.last_stable_offset, model.end]
        end = data.draw(st.one_of(st.sampled_from(ends), st.integers(model.start, model.end)))
        if not model.start <= offset <= model.end:
            with pytest.raises(LogError, match=f"offset {offset} is not between"):
                self.log.read(offset, max_bytes, end_offset=end)
            return
        read = self.log.read(offset, max_bytes, end_offset=end, at_least_one=at_least_one)
        assert (read.high_watermark, read.log_end_offset) == (model.high_watermark, model.end)
        assert read.log_start_offset == model.start
        wanted = [batch for batch in model.batches if offset <= batch.last < end] if offset < end else []
        if not wanted or not (at_least_one or len(wanted[0].data) <= max_bytes):
            assert read.range is None
            return
        assert read.range is not None
        self._check_range(offset, read.range, wanted, max_bytes, at_least_one)

    def _check_range(
        self, offset: int, found: FileRange, wanted: list[ModelBatch], max_bytes: int, at_least_one: bool
    ) -> None:
        content = found.read()
        assert b"".join(batch.data for batch in wanted).startswith(content)
        limit_bytes = max(max_bytes, len(wanted[0].data)) if at_least_one else max_bytes
        assert len(content) <= limit_bytes
        inside, reached_bytes = [], 0
        for batch in wanted:
            if reached_bytes + len(batch.data) > len(content):
                break
            inside.append(batch)
            reached_bytes += len(batch.data)
        if len(content) < limit_bytes:
            # There was room for more: then the segment ends here, or there is nothing more to read.
            assert reached_bytes == len(content)
            segment_starts = [segment.base_offset for segment in self.log.segments]
            assert inside == wanted or any(
                inside[-1].last < start <= wanted[len(inside)].first for start in segment_starts
            )
        self._check_aborted(offset, found, inside)

    def _check_aborted(self, offset: int, found: FileRange, inside: list[ModelBatch]) -> None:
        told = {(each.producer_id, each.last_offset): each for each in self.log.aborted_transactions(offset, found)}
        end = inside[-1].last + 1 if inside else offset
        for each in self.model.visible_aborts():
            if each.first < end and each.marker >= offset:
                assert told[each.producer, each.marker].first_offset <= each.first
        markers = {(batch.producer, batch.first) for batch in self.model.batches if batch.outcome == "abort"}
        assert told.keys() <= markers

    @rule(data=st.data())
    def look_up_a_timestamp(self, data: st.DataObject) -> None:
        known = [timestamp for _, timestamp in self.model.records if timestamp >= 0]
        some = st.sampled_from([*known, 0, NOW_MS])
        target = data.draw(st.one_of(some, some.map(lambda each: each + 1)))
        found = self.log.offset_for_timestamp(target)
        expected = next((record for record in self.model.records if record[1] >= target), None)
        assert (found and (found.offset, found.timestamp_ms)) == expected
        if found:
            assert found.leader_epoch == self.model.epoch_at(found.offset)

    @rule()
    def look_up_the_highest_timestamp(self) -> None:
        found = self.log.offset_of_max_timestamp()
        known = [record for record in self.model.records if record[1] >= 0]
        expected = max(known, key=lambda record: (record[1], -record[0]), default=None)
        assert (found and (found.offset, found.timestamp_ms)) == expected

    # Getting shorter

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)
        assert self.log.active_segment.base_offset == self.model.end

    @precondition(lambda self: self.model.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        first_base = self.log.segments[0].base_offset
        target = data.draw(st.integers(max(first_base, self.model.end - 12), self.model.end))
        self.log.truncate_to(target, NOW_MS)
        self.log.remove_deleted(NOW_MS)
        if target == self.model.end:
            # An epoch without a record at the end is forgotten all the same, as by Kafka.
            self.model.marks = [mark for mark in self.model.marks if mark[0] < target]
            return
        self.model.end = self.log.active_segment.base_offset
        self.model.cut(target)
        self._lower_to_the_end()

    def _lower_to_the_end(self) -> None:
        model = self.model
        model.start = min(model.start, model.end)
        assert self.log.high_watermark == min(model.high_watermark, model.end)
        self.checkpoint = min(self.checkpoint, model.end)
        self._forget_producers(model.end)
        # Whether a marker was replicated is not remembered in snapshots; so all is said to be.
        model.high_watermark = model.end
        self.log.set_high_watermark(model.end)

    def _forget_producers(self, snapshot_limit: int, known_before: list[int] | None = None) -> None:
        """Producers are known from the newest snapshot on, if there is one within the log, or from the log start on."""
        model = self.model
        offsets = self.log.snapshots.offsets if known_before is None else known_before
        usable = [offset for offset in offsets if model.start < offset <= snapshot_limit]
        if usable:
            model.window_from = max(usable)
        else:
            model.known_from = model.window_from = min(model.start, snapshot_limit)

    @precondition(lambda self: len(self.model.batches) > 8)
    @rule(offset=st.integers(0, 3))
    def start_anew(self, offset: int) -> None:
        target = self.model.end + offset
        self.log.start_anew_at(target, NOW_MS)
        self.log.remove_deleted(NOW_MS)
        self.model = Model()
        self.model.start = self.model.end = self.model.high_watermark = target
        self.checkpoint = min(self.checkpoint, target)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        model = self.model
        target = model.start + round((model.high_watermark - model.start) * share)
        assert self.log.advance_log_start(target) == (target > model.start)
        if target > model.start:
            model.start_at(target)
        with pytest.raises(LogError, match="beyond the high watermark"):
            self.log.advance_log_start(model.high_watermark + 1)

    @rule(
        keeps_bytes=st.sampled_from([-1, -1, 0, 1000, 2500]),
        keeps_ms=st.sampled_from([-1, -1, 0, 1_800_000]),
        has_policy=st.booleans(),
    )
    def retain(self, keeps_bytes: int, keeps_ms: int, has_policy: bool) -> None:
        self.log.settings = topic_settings(
            retention_bytes=keeps_bytes,
            retention_ms=keeps_ms,
            file_delete_delay_ms=0,
            cleanup_policy=("delete",) if has_policy else (),
            segment_index_bytes=self.settings.segment_index_bytes,
            index_interval_bytes=self.settings.index_interval_bytes,
        )
        count, start = self._expected_retention(keeps_bytes, keeps_ms, has_policy)
        assert self.log.delete_old_segments(NOW_MS) == count
        self.log.settings = self.settings
        self.log.remove_deleted(NOW_MS)
        assert not [name for name in self.disk.names(self.log.directory) if name.endswith(".deleted")]
        if count:
            self.model.start_at(start)
            self.model.forget_files_before(start)

    def _expected_retention(self, keeps_bytes: int, keeps_ms: int, has_policy: bool) -> tuple[int, int]:
        model = self.model
        starts = [segment.base_offset for segment in self.log.segments]
        parts = [
            (start, end, [batch for batch in model.batches if start <= batch.first < end])
            for start, end in zip(starts, [*starts[1:], model.end], strict=True)
        ]
        left_bytes = sum(len(batch.data) for batch in model.batches)
        by_start = by_time = by_size = 0
        for place, (_, end, inside) in enumerate(parts):
            if end > model.high_watermark or (place == len(parts) - 1 and not inside):
                break
            youngest = max((timestamp for batch in inside for _, timestamp in batch.records), default=-1)
            # The simulated disk says that all files were last written at the time 0.
            age_ms = NOW_MS - (youngest if youngest >= 0 else 0)
            left_bytes -= sum(len(batch.data) for batch in inside)
            if end <= model.start and place == by_start and place < len(parts) - 1:
                by_start += 1
            if has_policy and keeps_ms >= 0 and age_ms > keeps_ms and place == by_time:
                by_time += 1
            if has_policy and keeps_bytes >= 0 and left_bytes >= keeps_bytes and place == by_size:
                by_size += 1
        count = max(by_start, by_time, by_size)
        return count, [*starts, model.end][count]

    # Stopping

    @rule(to_checkpoint=st.booleans())
    def flush(self, to_checkpoint: bool) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.model.end
        if to_checkpoint:
            self.checkpoint = self.model.end

    @rule()
    def restart(self) -> None:
        self.log.close()
        snapshots = self.log.snapshots.offsets
        self.log = open_log(self.disk, self.settings, log_start_offset=self.model.start)
        assert self.log.recovery_point == self.model.end
        self.checkpoint = self.model.end
        self._restarted(self.model.end, snapshots)

    @rule()
    def kill_and_restart(self) -> None:
        self.disk.crash(power=False)
        starts = [segment.base_offset for segment in self.log.segments]
        scanned_from = max([start for start in starts if start <= self.checkpoint], default=starts[0])
        snapshots = self.log.snapshots.offsets
        self.log = open_log(
            self.disk,
            self.settings,
            was_clean=False,
            recovery_point=self.checkpoint,
            log_start_offset=self.model.start,
        )
        model = self.model
        model.marks = [mark for mark in self.saved_marks if mark[0] < scanned_from]
        model.marks += [(batch.first, batch.epoch) for batch in model.batches if batch.first >= scanned_from]
        self._restarted(scanned_from, snapshots)

    def _restarted(self, snapshot_limit: int, snapshots: list[int]) -> None:
        model = self.model
        model.marks = [mark for mark in model.marks if mark[0] < model.end]
        model.start_at(model.start)
        assert self.log.high_watermark == model.start
        self._forget_producers(snapshot_limit, snapshots)
        model.high_watermark = model.end
        self.log.set_high_watermark(model.end)

    # What always holds

    @invariant()
    def offsets_and_sizes(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert log.high_watermark == model.high_watermark
        assert log.last_stable_offset == model.last_stable_offset
        assert log.size_bytes == sum(len(batch.data) for batch in model.batches)

    @invariant()
    def all_batches_can_be_read(self) -> None:
        assert read_all(self.log, 900) == [batch.data for batch in self.model.visible]

    @invariant()
    def readers_of_each_batch_are_told_of_aborts(self) -> None:
        stable = self.model.last_stable_offset
        if not self.model.visible_aborts():
            return
        for batch in self.model.visible:
            if batch.last < stable and batch.is_transactional:
                offset = max(batch.first, self.model.start)
                found = self.log.read(offset, 1, end_offset=stable).range
                assert found is not None
                self._check_aborted(offset, found, [batch])

    @invariant()
    def epochs(self) -> None:
        if not self.log.epochs.dirty:
            self.saved_marks = list(self.model.marks)
        for epoch in range(-1, self.epoch + 2):
            assert self.log.epochs.end_offset_for(epoch, self.log.log_end_offset) == self.model.epoch_end(epoch)

    @invariant()
    def producers(self) -> None:
        found = {
            entry.producer_id: (entry.epoch, entry.last_sequence, entry.last_offset, entry.current_txn_first_offset)
            for entry in self.log.producers.entries()
        }
        expected = {}
        for producer_id, producer in self.model.producers()[0].items():
            newest = producer.window[-1] if producer.window else None
            last = (newest.last_sequence, newest.last) if newest else (-1, -1)
            expected[producer_id] = (producer.epoch, *last, producer.transaction)
        assert found == expected


def header(producer: int, epoch: int, sequence: int, transactional: bool) -> dict[str, Any]:
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "base_sequence": sequence,
        "transactional": transactional,
    }


TestLogAgainstTheModel = LogMachine.TestCase
TestLogAgainstTheModel.settings = settings(
    max_examples=3000 if IS_FULL else 300,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
