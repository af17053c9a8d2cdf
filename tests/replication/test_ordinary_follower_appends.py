"""Ordinary batches that a follower appends by compiled code, beside a follower that goes by the rules alone: the same
bytes in the same files, the same producers, indexes and answers, also where the disk refuses a write.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from barnabas.records import Codec
from barnabas.replication.follower_state import FollowerState
from barnabas.storage.errors import LogError
from tests.broker.produce_twins import state_of_log
from tests.replication.partitions import NOW_MS, batch
from tests.replication.replicas import BACKOFF_MS, Replica, elect
from tests.sweeps import IS_FULL

STEPS = 80
SETTINGS: list[dict[str, Any]] = [
    {},
    {"internal_segment_bytes": 700},
    {"index_interval_bytes": 1, "segment_index_bytes": 48},
    {"flush_messages": 5},
    {"segment_ms": 40, "segment_jitter_ms": 10},
]


class Twins:
    """A leader, a follower with compiled appends and one without; `compiled` counts what the first one took."""

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.random = Random(seed)
        self.leader = Replica(1, **settings)
        # Of one node id, since chance is made of it: the time at which a segment is too old has some.
        self.followers = [Replica(2, **settings), Replica(2, **settings)]
        elect(self.leader, 0, *self.followers)
        self.epoch = 0
        self.sequences = {7: 0, 8: 0}
        self.now_ms = NOW_MS
        self.compiled = 0

    def write(self) -> None:
        producer_id = self.random.choice([-1, -1, 7, 8])
        values = [self.random.randbytes(self.random.randint(0, 60)) for _ in range(self.random.randint(1, 4))]
        how: dict[str, Any] = {}
        if producer_id >= 0:
            how = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": self.sequences[producer_id]}
            self.sequences[producer_id] += len(values)
        self.leader.append(*values, codec=self.random.choice([Codec.NONE, Codec.NONE, Codec.GZIP]), **how)

    def elect(self) -> None:
        self.epoch += 1
        elect(self.leader, self.epoch, *self.followers)

    def fetch(self) -> None:
        self.now_ms += self.random.choice([0, 1, 30])
        asked = [each.following.next_fetch(1_000_000) for each in self.followers]
        assert asked[0] == asked[1]
        data = self.leader.answer(asked[0])
        records = bytearray(data.records or b"")
        if records and self.random.random() < 0.1:
            records[self.random.randrange(len(records))] ^= 1 << self.random.randrange(8)
        if records and self.random.random() < 0.1:
            del records[self.random.randrange(len(records)) :]
        is_refused = self.random.random() < 0.1
        outcomes = []
        for place, (follower, each) in enumerate(zip(self.followers, asked, strict=True)):
            data.records = memoryview(bytearray(records))
            with patch.object(FollowerState, "_has_appended", self._counted() if place == 0 else _never):
                if is_refused:
                    follower.disk.fail_next(errno.ENOSPC, name="write_at", count=1)
                outcomes.append(self._taken(follower, each, data))
        assert outcomes[0] == outcomes[1]

    def _taken(self, follower: Replica, asked: Any, data: Any) -> str:
        try:
            return repr(follower.following.take(asked, data, self.now_ms, BACKOFF_MS))
        except LogError as failure:
            return f"{failure.code}: {failure}"

    def _counted(self) -> Any:
        whole = FollowerState._has_appended

        def has_appended(role: FollowerState, records: Any, now_ms: int) -> bool:
            is_appended = whole(role, records, now_ms)
            self.compiled += is_appended
            return is_appended

        return has_appended

    def compare(self) -> None:
        one, other = self.followers
        assert state_of_log(one.log) == state_of_log(other.log)
        assert one.following.appended_bytes == other.following.appended_bytes
        assert one.disk.contents() == other.disk.contents()


def _never(role: FollowerState, records: Any, now_ms: int) -> bool:
    return False


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: next(iter(each), "plain"))
@pytest.mark.parametrize("seed", range(100 if IS_FULL else 6))
def test_both_have_the_same(seed: int, settings: dict[str, Any]) -> None:
    twins = Twins(seed, settings)
    for _ in range(STEPS):
        twins.random.choices([twins.write, twins.fetch, twins.elect], [6, 10, 0.3])[0]()
        twins.compare()
    assert twins.compiled, "nothing was appended by compiled code: the test compares nothing"
    for each in twins.followers:
        with suppress(LogError):  # a write that was to fail may not have come yet
            each.log.close()
    twins.compare()


def test_what_the_compiled_way_leaves_to_the_rules() -> None:
    a, b = Replica(1), Replica(2)
    elect(a, 0, b)
    a.append(b"a")
    data = memoryview(bytearray(bytes(a.written)))
    log = b.log
    assert not log.append_from_leader(data, 1, NOW_MS), "another epoch"
    assert not log.append_from_leader(memoryview(bytes(data)), 0, NOW_MS), "memory that cannot be written to"
    assert not log.append_from_leader(memoryview(bytearray(batch([b"a"])) + data), 0, NOW_MS), "two batches"
    assert not log.append_from_leader(data[:40], 0, NOW_MS), "a part of one"
    assert not log.append_from_leader(memoryview(bytearray()), 0, NOW_MS)
    assert log.log_end_offset == 0
