"""A compacted log against a dict: whatever is done to it, the newest value of every key is there, at its offset."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.storage.cleaner import CleaningJob, plan_for
from barnabas.storage.validation import prepare_from_client
from barnabas.testing.sim.disk import SimulatedDisk
from tests.storage.logs import NOW_MS, batch, open_log, topic_settings
from tests.storage.test_cleaner import Record, newest, records

SETTINGS = topic_settings(
    cleanup_policy=["compact"], min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=0, internal_segment_bytes=600
)


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Random(1))
        self.log = open_log(self.disk, SETTINGS)
        self.model: dict[int, Record] = {}
        self.clean_until = 0

    @rule(keys=st.lists(st.integers(0, 4), min_size=1, max_size=6), is_tombstone=st.booleans())
    def append(self, keys: list[int], is_tombstone: bool) -> None:
        for number in keys:
            key, value = b"k%d" % number, None if is_tombstone else b"value at %d" % self.log.log_end_offset * 4
            prepared = prepare_from_client(batch([value], key=key), SETTINGS, NOW_MS)
            self.model[self.log.append(prepared, leader_epoch=0, now_ms=NOW_MS).first_offset] = key, value
        self.log.set_high_watermark(self.log.log_end_offset)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @precondition(lambda self: len(self.log.segments) > 1)
    @rule(limit_bytes=st.sampled_from([200, 1 << 20]))
    def compact(self, limit_bytes: int) -> None:
        job = CleaningJob(self.log, plan_for(self.log, self.clean_until, NOW_MS), limit_bytes, NOW_MS)
        cleaned = job.run()
        end_offset = self.log.log_end_offset
        assert job.apply_to(self.log, cleaned, NOW_MS)
        self.log.remove_deleted(NOW_MS)
        self.clean_until = cleaned.end_offset
        left = records(self.log)
        assert left.items() <= self.model.items()
        assert newest(left) == newest(self.model)
        assert self.log.log_end_offset == end_offset
        self.model = left

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(self.log.log_start_offset, self.log.log_end_offset - back), NOW_MS)
        self.model = {offset: each for offset, each in self.model.items() if offset < self.log.log_end_offset}
        self.clean_until = min(self.clean_until, self.log.log_end_offset)

    @rule(ahead=st.integers(0, 8))
    def delete_records(self, ahead: int) -> None:
        start = min(self.log.log_start_offset + ahead, self.log.high_watermark)
        self.log.advance_log_start(start)
        self.log.delete_old_segments(NOW_MS)
        self.model = {offset: each for offset, each in self.model.items() if offset >= start}

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        start = self.log.log_start_offset
        if is_clean:
            self.log.close()
        else:
            self.disk.crash(power=False)
        self.log = open_log(self.disk, SETTINGS, was_clean=is_clean, log_start_offset=start)
        self.log.set_high_watermark(self.log.log_end_offset)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        found = {offset: each for offset, each in records(self.log).items() if offset >= self.log.log_start_offset}
        assert found == self.model


TestCompactedLog = CompactedLog.TestCase
TestCompactedLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
