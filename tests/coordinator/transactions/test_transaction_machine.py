"""Producers, zombies, time and fail-overs in any order, against a naive account of what was promised."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.transactions.metadata import TransactionMetadata
from barnabas.coordinator.transactions.states import NEXT_STATES, TransactionState
from tests.coordinator.transactions.driver import Bench

OK = ErrorCode.NONE
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class TransactionMachine(RuleBasedStateMachine):
    """One transactional id. `given` is who was told that it may write, in this order; all but the last are zombies."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.given: list[Identity] = []
        #: How the transaction of an identity was promised to end.
        self.promised: dict[Identity, bool] = {}
        self.before: TransactionMetadata | None = None

    # What happens

    def _someone(self, back: int) -> Identity:
        return self.given[-1 - min(back, len(self.given) - 1)] if self.given else Identity(1, 0)

    def _gives(self, producer_id: int, epoch: int) -> None:
        identity = Identity(producer_id, epoch)
        assert 0 <= epoch < 32_767, "nobody is given the last epoch"
        if not self.given or self.given[-1] != identity:
            assert identity not in self.given, "what a zombie has is given to nobody"
            self.given.append(identity)

    @rule()
    def a_new_producer(self) -> None:
        before = self.bench.shard.stored.get("x")
        error, *identity = self.bench.init("x")
        assert error in (OK, ErrorCode.CONCURRENT_TRANSACTIONS)
        if error is OK:
            assert before is None or before.state.may_expire
            self._gives(*identity)

    @rule(back=st.integers(0, 2))
    def a_producer_goes_on(self, back: int) -> None:
        who = self._someone(back)
        error, *identity = self.bench.init("x", *who)
        if error is OK:
            self._gives(*identity)

    @rule(back=st.integers(0, 2), partition=st.integers(0, 3), version=st.sampled_from([3, 4]))
    def partitions_are_added(self, back: int, partition: int, version: int) -> None:
        who = self._someone(back)
        (error,) = self.bench.add("x", *who, partition, version=version)
        if error is OK:
            assert who == self._current(), "a zombie has added a partition"
            assert self.bench.metadata("x").state is TransactionState.ONGOING

    @rule(back=st.integers(0, 2), commit=st.booleans(), version=st.sampled_from([4, 5]))
    def a_transaction_ends(self, back: int, commit: bool, version: int) -> None:
        who = self._someone(back)
        before = self.bench.shard.stored.get("x")
        error, *identity = self.bench.end("x", *who, commit=commit, version=version)
        if error is not OK:
            assert self.bench.shard.stored.get("x") == before, "what was refused has changed something"
            return
        assert before is not None
        after = self.bench.metadata("x")
        if after == before:
            # Asked again: what is told is what has happened.
            assert after.state is COMPLETE[commit]
        else:
            assert who == Identity(before.producer_id, before.producer_epoch), "a zombie has ended a transaction"
            self.promised[Identity(after.producer_id, after.producer_epoch)] = commit
        if version == 5:
            self._gives(*identity)

    @precondition(lambda self: self.bench.markers.sent)
    @rule()
    def markers_are_written(self) -> None:
        sent = self.bench.markers.sent["x"]
        self.bench.write_markers()
        self._completed(sent)

    def _completed(self, sent: TransactionMetadata) -> None:
        after = self.bench.metadata("x")
        is_commit = sent.state is TransactionState.PREPARE_COMMIT
        assert after.state is COMPLETE[is_commit]
        promised = self.promised.get(Identity(sent.producer_id, sent.producer_epoch))
        assert promised in (None, is_commit), "it did not end as its producer was told"
        assert not after.partitions

    @rule()
    def another_coordinator(self) -> None:
        before = self.bench.shard.stored.get("x")
        self.bench.reload()
        assert self.bench.shard.stored.get("x") == before

    @rule(seconds=st.sampled_from([1, 30, 100]))
    def time_passes(self, seconds: int) -> None:
        self.bench.advance(seconds * 1000)

    @precondition(lambda self: self.given and self.bench.metadata("x").state is TransactionState.EMPTY)
    @rule()
    def the_epochs_are_nearly_used_up(self) -> None:
        metadata = self.bench.metadata("x")
        if metadata.producer_epoch < 32_764:
            self.bench.write("x", replace(metadata, producer_epoch=32_764))
            self.given.append(Identity(metadata.producer_id, 32_764))
        self.before = None

    @rule(level=st.sampled_from([1, 2]))
    def the_level_changes(self, level: int) -> None:
        self.bench.config = self.bench.shard.config = replace(self.bench.config, transaction_version=level)

    # What holds at any time

    def _current(self) -> Identity:
        metadata = self.bench.metadata("x")
        return Identity(metadata.producer_id, metadata.producer_epoch)

    @invariant()
    def only_moves_of_the_table(self) -> None:
        after = self.bench.shard.stored.get("x")
        before, self.before = self.before, after
        if before is None or after is None or before.state is after.state:
            return
        reached = {before.state}
        for _ in range(3):
            # One rule may be several moves.
            reached |= {following for state in reached for following in NEXT_STATES[state]}
        assert after.state in reached

    @invariant()
    def what_is_prepared_has_its_markers_on_their_way(self) -> None:
        metadata = self.bench.shard.stored.get("x")
        is_prepared = metadata is not None and metadata.state.is_prepared
        assert ("x" in self.bench.markers.sent) == is_prepared

    @invariant()
    def epochs_are_epochs(self) -> None:
        metadata = self.bench.shard.stored.get("x")
        assert metadata is None or 0 <= metadata.producer_epoch <= 32_767


TransactionMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestTransactions = TransactionMachine.TestCase
