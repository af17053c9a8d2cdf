"""Three replicas that lead, write, fetch, restart and hear of elections late, beside lists that say what must be.

The lists know nothing of epochs' ends: what a follower may lose is what does not agree with its leader, record by
record, and what it has in the end is what its leader has.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.replication.follower_state import FollowerPhase, FollowerState
from barnabas.replication.leader_state import LeaderState
from barnabas.storage.leader_epochs import EpochEntry
from barnabas.storage.log import PartitionLog
from tests.replication.partitions import state
from tests.replication.replicas import Replica

NODES = (1, 2, 3)
Record = tuple[int, int, bytes]


def common(mine: list[Record], others: list[Record]) -> int:
    """How many records two logs have in common before they differ."""
    count = 0
    for one, other in zip(mine, others, strict=False):
        if one != other:
            break
        count += 1
    return count


def epochs_with_records(log: PartitionLog) -> list[EpochEntry]:
    """Without those at the end that nothing was written in: the next record takes their place."""
    return [each for each in log.epochs.entries if each.start_offset < log.log_end_offset]


class ThreeReplicas(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.replicas = {node: Replica(node, internal_segment_bytes=400) for node in NODES}
        self.epoch = 0
        self.written = 0
        #: What all three had, as the leader saw it: it is committed, and there for ever.
        self.committed: list[Record] = []
        #: Of the leader of each epoch: where each follower was when it last asked and was right.
        self.positions: dict[int, dict[int, int]] = {}
        self.elect(1, {2, 3})

    def elect(self, leader: int, hearing: set[int]) -> None:
        self.positions[self.epoch] = {}
        for node in {leader, *hearing}:
            self.replicas[node].partition.update(state(NODES, leader=leader, epoch=self.epoch))

    @rule(leader=st.sampled_from(NODES), hearing=st.sets(st.sampled_from(NODES)))
    def another_leads(self, leader: int, hearing: set[int]) -> None:
        """Those who do not hear of it go on in their old roles, also as leaders."""
        self.epoch += 1
        self.elect(leader, hearing)

    @rule(node=st.sampled_from(NODES), records=st.integers(1, 3))
    def append(self, node: int, records: int) -> None:
        replica = self.replicas[node]
        if isinstance(replica.partition.role, LeaderState):
            self.written += 1
            replica.append(*(b"%d" % self.written for _ in range(records)))

    @rule(node=st.sampled_from(NODES), max_bytes=st.sampled_from([1, 200, 10_000]))
    def fetch(self, node: int, max_bytes: int) -> None:
        replica = self.replicas[node]
        role = replica.partition.role
        if not isinstance(role, FollowerState):
            return
        leader = self.replicas[role.leader_id]
        before, asked = replica.values, role.next_fetch(max_bytes)
        cut = replica.fetch_from(leader, max_bytes)
        is_led = (
            isinstance(leader.partition.role, LeaderState) and leader.partition.role.leader_epoch == role.leader_epoch
        )
        if not is_led:
            assert replica.values == before
            assert role.phase is not FollowerPhase.FETCHING
            role.go_on()
        elif cut is not None:
            assert replica.log.log_end_offset >= common(before, leader.values)
            assert replica.values == before[: replica.log.log_end_offset]
        else:
            assert replica.values == leader.values[: replica.log.log_end_offset]
            self.note_position(leader, node, asked.fetch_offset)

    def note_position(self, leader: Replica, follower: int, offset: int) -> None:
        role = leader.leading
        positions = self.positions[role.leader_epoch]
        positions[follower] = offset
        if len(positions) == 2 and (reached := min(positions.values())) > leader.log.high_watermark:
            leader.log.set_high_watermark(reached)
            if reached > len(self.committed):
                self.committed = leader.values[:reached]

    @rule(node=st.sampled_from(NODES))
    def restart(self, node: int) -> None:
        before = self.replicas[node].values
        role = self.replicas[node].partition.role
        if isinstance(role, LeaderState):
            # Where the others are it must learn anew.
            self.positions[role.leader_epoch] = {}
        self.replicas[node].restart()
        assert self.replicas[node].values == before

    @precondition(lambda self: self.written)
    @rule(leader=st.sampled_from(NODES))
    def all_hear_and_catch_up(self, leader: int) -> None:
        self.epoch += 1
        self.elect(leader, set(NODES))
        first = self.replicas[leader]
        for node in NODES:
            if node != leader:
                self.replicas[node].catch_up(first)
                assert self.replicas[node].written == first.written
                mine, theirs = self.replicas[node].log, first.log
                assert epochs_with_records(mine) == epochs_with_records(theirs)
                assert mine.producers.entries() == theirs.producers.entries()

    @invariant()
    def what_is_committed_stays(self) -> None:
        for replica in self.replicas.values():
            assert replica.values[: len(self.committed)] == self.committed
            assert replica.log.high_watermark <= len(self.committed)


TestThreeReplicas = ThreeReplicas.TestCase
TestThreeReplicas.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
