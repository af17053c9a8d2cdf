"""Bugs planted on purpose, which the simulation must find: `python -m tests.raft.planted` tells the seeds it takes.

Each is a patch of the machine, the driver or the scenario, and nothing else knows of it. What none of the invariants
notices within `MAX_SEEDS` would show that the simulation is blind there.

    python -m tests.raft.planted                  # a table of all
    python -m tests.raft.planted votes_twice      # one of them, with the story of the seed that found it
    python -m tests.raft.planted --control 500    # the same seeds without a bug: none may fail
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from math import inf
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from barnabas.raft import machine as machine_module
from barnabas.raft.driver import RaftDriver
from barnabas.raft.effects import SaveElection, StartAnew, SyncLog, Truncate
from barnabas.raft.log_view import LogView
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import FetchResult, Vote, VoteResult
from barnabas.raft.ports import FoundReplica
from barnabas.raft.states.electing import Electing
from barnabas.raft.states.follower import Follower
from barnabas.raft.states.leader import Leader
from barnabas.raft.states.unattached import Unattached
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey
from barnabas.raft.voters import QuorumHistory, VoterSet
from barnabas.testing.sim.raft_scenario import RaftRun, RaftScenario
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport, shortest_failing

MAX_SEEDS: Final = 500

Plant = Callable[[], AbstractContextManager[Any]]


class PlantedBug(NamedTuple):
    """A bug, what it is in words, and how many voters show it."""

    plant: Plant
    text: str
    voters: int = 3


BUGS: Final[dict[str, PlantedBug]] = {}


def planted(text: str, *, voters: int = 3) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        BUGS[plant.__name__] = PlantedBug(plant, text, voters)
        return plant

    return register


# Elections


@planted("a replica votes for whoever asks, also twice in an epoch")
@contextmanager
def votes_twice() -> Iterator[None]:
    def grants(self: Unattached, vote: Vote, *, is_up_to_date: bool) -> bool:
        return is_up_to_date

    def vote_for(self: RaftMachine, candidate: ReplicaKey, now_ms: int) -> None:
        self.voted = candidate
        self.become_unattached(self.epoch, now_ms)

    with patch.object(Unattached, "grants", grants), patch.object(RaftMachine, "_vote_for", vote_for):
        yield


@planted("a replica forgets at a restart whom it voted for", voters=5)
@contextmanager
def forgets_its_vote() -> Iterator[None]:
    begin = RaftMachine.__init__

    @wraps(begin)
    def forget(self: RaftMachine, key: ReplicaKey, found: FoundReplica, **rest: Any) -> None:
        begin(self, key, found, **rest)
        self.voted = None

    with patch.object(RaftMachine, "__init__", forget):
        yield


@planted("votes and epochs are told before quorum-state is saved")
@contextmanager
def answers_before_the_vote_is_saved() -> Iterator[None]:
    def save(self: RaftDriver, effect: SaveElection) -> None:
        def work() -> None:
            self._store.save_election(effect.state, kraft_version=effect.kraft_version, voter_ids=effect.voter_ids)

        self._offload(work, lambda _: None, lambda: None)

    with _doing(SaveElection, save):
        yield


@planted("a vote goes to a shorter log")
@contextmanager
def votes_for_a_shorter_log() -> Iterator[None]:
    with patch.object(machine_module, "_is_up_to_date", lambda *_: True):
        yield


@planted("a pre-vote goes to a shorter log")
@contextmanager
def pre_votes_for_a_shorter_log() -> Iterator[None]:
    decide = RaftMachine._on_vote

    def on_vote(self: RaftMachine, vote: Vote, now_ms: int) -> VoteResult:
        if not vote.pre_vote:
            return decide(self, vote, now_ms)
        with patch.object(machine_module, "_is_up_to_date", lambda *_: True):
            return decide(self, vote, now_ms)

    with patch.object(RaftMachine, "_on_vote", on_vote):
        yield


@planted("a candidate counts votes that it was given in an earlier epoch")
@contextmanager
def counts_old_votes() -> Iterator[None]:
    def on_vote_result(self: Electing, vote: Vote, result: VoteResult, now_ms: int) -> None:
        if vote.voter is not None:
            self._inquiry.answered(vote.voter.node_id)
            if result.granted:
                self.granted.add(vote.voter.node_id)
            self.count(now_ms)

    with patch.object(Electing, "on_vote_result", on_vote_result):
        yield


@planted("half of the voters count as a majority", voters=3)
@contextmanager
def half_is_a_majority() -> Iterator[None]:
    with patch.object(VoterSet, "majority", property(lambda self: max(1, len(self) // 2))):
        yield


# Epochs


@planted("a leader does not step down when it hears of a higher epoch")
@contextmanager
def leader_stays_at_a_higher_epoch() -> Iterator[None]:
    change = RaftMachine._change
    begin_epoch = RaftMachine._begin_epoch

    def stay(self: RaftMachine, new: Any, now_ms: int) -> None:
        if not isinstance(self.state, Leader) or new.role is Role.RESIGNED:
            change(self, new, now_ms)

    def keep(self: RaftMachine, epoch: int) -> None:
        if not isinstance(self.state, Leader):
            begin_epoch(self, epoch)

    with patch.object(RaftMachine, "_change", stay), patch.object(RaftMachine, "_begin_epoch", keep):
        yield


@planted("a follower takes a leader of an older epoch")
@contextmanager
def follows_an_older_epoch() -> Iterator[None]:
    hear_of = RaftMachine.hear_of

    def believe(self: RaftMachine, leader: LeaderAndEpoch, address: Address | None, now_ms: int, **rest: Any) -> None:
        if leader.epoch < self.epoch and leader.leader_id >= 0 and address and leader.leader_id != self.key.node_id:
            self.epoch, self.voted = leader.epoch, None
            self.become_follower(leader.leader_id, leader.epoch, address, now_ms)
            return
        hear_of(self, leader, address, now_ms, **rest)

    with patch.object(RaftMachine, "hear_of", believe):
        yield


# Replication


@planted("a follower claims what it has not synced")
@contextmanager
def claims_before_the_sync() -> Iterator[None]:
    def fetch(self: Follower, now_ms: int) -> None:
        self.machine.emit(SyncLog())
        self._asked = self.machine.fetch_request()
        self.machine.send(self.leader_address, self._asked)

    with patch.object(Follower, "_fetch", fetch):
        yield


@planted("a follower is silent while it waits for its disk")
@contextmanager
def does_not_fetch_while_it_syncs() -> Iterator[None]:
    fetch = Follower._fetch

    def wait(self: Follower, now_ms: int) -> None:
        self._sign_at_ms = inf
        fetch(self, now_ms)

    with patch.object(Follower, "_fetch", wait):
        yield


@planted("a leader counts what it has not synced itself")
@contextmanager
def leader_counts_before_the_sync() -> Iterator[None]:
    count = Leader._majority_offset

    def majority(self: Leader, voters: VoterSet) -> int:
        log = self.machine.log
        synced_offset, log.synced_offset = log.synced_offset, log.end_offset
        try:
            return count(self, voters)
        finally:
            log.synced_offset = synced_offset

    with patch.object(Leader, "_majority_offset", majority):
        yield


@planted("a leader commits records of older epochs by counting", voters=5)
@contextmanager
def commits_an_older_epoch_by_counting() -> Iterator[None]:
    advance = Leader.advance

    def count(self: Leader, now_ms: int) -> None:
        start, self.epoch_start_offset = self.epoch_start_offset, -1
        try:
            advance(self, now_ms)
        finally:
            self.epoch_start_offset = start

    with patch.object(Leader, "advance", count):
        yield


@planted("observers count towards the majority")
@contextmanager
def counts_observers() -> Iterator[None]:
    def majority(self: Leader, voters: VoterSet) -> int:
        ends = [self.machine.log.synced_offset, *(each.end_offset for each in self.progress.values())]
        ends = sorted([*ends, -1, -1, -1], reverse=True)
        return ends[voters.majority - 1]

    with patch.object(Leader, "_majority_offset", majority):
        yield


@planted("a leader does not see that a follower's log has diverged")
@contextmanager
def overlooks_divergence() -> Iterator[None]:
    validate = LogView.validate

    def overlook(self: LogView, offset: int, epoch: int) -> Any:
        return None if self.start_offset <= offset <= self.end_offset else validate(self, offset, epoch)

    with patch.object(LogView, "validate", overlook):
        yield


@planted("a follower cuts its log where the leader's epoch ends, though it has no record of that epoch", voters=5)
@contextmanager
def cuts_where_the_leaders_epoch_ends() -> Iterator[None]:
    def cut(self: LogView, diverging: OffsetAndEpoch) -> int:
        return min(diverging.offset, self.end_offset)

    with patch.object(LogView, "truncation_offset", cut):
        yield


@planted("the owner is told of records that were cut off")
@contextmanager
def forgets_a_truncation() -> Iterator[None]:
    def truncate(self: RaftDriver, effect: Truncate) -> None:
        self._store.truncate(effect.offset)

    with _doing(Truncate, truncate):
        yield


@planted("a follower's high watermark is its leader's, whatever it has itself")
@contextmanager
def high_watermark_beyond_the_log() -> Iterator[None]:
    append = Follower._append

    def believe(self: Follower, result: FetchResult) -> bool:
        has_committed = append(self, result)
        if result.high_watermark > self.machine.high_watermark:
            self.machine.high_watermark = result.high_watermark
            return True
        return has_committed

    with patch.object(Follower, "_append", believe):
        yield


# Voters and snapshots


@planted("a voter set stays in force when its record is cut off")
@contextmanager
def keeps_voters_after_truncation() -> Iterator[None]:
    with patch.object(QuorumHistory, "truncate", lambda *_: None):
        yield


@planted("a snapshot is loaded and the log goes on where it was")
@contextmanager
def snapshot_without_a_new_log() -> Iterator[None]:
    def start_anew(self: RaftDriver, effect: StartAnew) -> None:
        def loaded(found: Any) -> None:
            self._told_offset = effect.snapshot_id.end_offset
            self._listener.on_snapshot(found[0])

        self._hold_up(lambda: self._store.read_snapshot(effect.snapshot_id), loaded)

    with _doing(StartAnew, start_anew):
        yield


@planted("a voter comes back with an old disk")
@contextmanager
def voter_with_an_old_disk() -> Iterator[None]:
    with patch.object(RaftRun, "_old_disk_hosts", lambda self: list(self.voter_hosts.values())):
        yield


@contextmanager
def _doing(effect: type, does: Callable[[RaftDriver, Any], None]) -> Iterator[None]:
    """Let drivers that are made meanwhile do this for an effect."""
    begin = RaftDriver.__init__

    @wraps(begin)
    def changed(self: RaftDriver, *arguments: Any, **rest: Any) -> None:
        begin(self, *arguments, **rest)
        self._doing = {**self._doing, effect: lambda asked: does(self, asked)}  # type: ignore[misc]

    with patch.object(RaftDriver, "__init__", changed):
        yield


# Finding them


def find(name: str, *, seeds: Sequence[int] = range(1, MAX_SEEDS + 1)) -> SeedReport | None:
    """The first seed that finds a bug."""
    bug = BUGS[name]
    with ExitStack() as stack:
        stack.enter_context(bug.plant())
        scenario = RaftScenario(ScenarioOptions(bug.voters))
        for seed in seeds:
            report = scenario.run(seed)
            if not report.is_clean:
                return report
    return None


def tell_story(name: str) -> int:
    report = find(name)
    if report is None:
        _say(f"{name}: not found in {MAX_SEEDS} seeds")
        return 1
    with BUGS[name].plant():
        shortest = shortest_failing(RaftScenario(ScenarioOptions(BUGS[name].voters)), report)
    _say(f"{name}: {BUGS[name].text}\nseed {report.seed}: {shortest.broken}: {shortest.problem}\n")
    for line in (*shortest.plan, "", *shortest.story[-60:]):
        _say(line)
    return 0


def tell_table(names: Sequence[str]) -> int:
    missed = 0
    _say(f"{'seeds':>5}  {'bug':34}  broken")
    for name in names:
        report = find(name)
        missed += report is None
        found = "none" if report is None else str(report.seed)
        _say(f"{found:>5}  {name:34}  {'' if report is None else report.broken}")
    return 1 if missed else 0


def tell_control(count: int) -> int:
    failed = 0
    for voters in (3, 5):
        scenario = RaftScenario(ScenarioOptions(voters))
        for seed in range(1, count + 1):
            report = scenario.run(seed)
            if not report.is_clean:
                failed += 1
                _say(f"seed {seed} with {voters} voters: {report.broken}: {report.problem}")
        _say(f"{count} seeds with {voters} voters and no bug: {failed} failed")
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--control"]:
        sys.exit(tell_control(int(sys.argv[2])))
    sys.exit(tell_story(sys.argv[1]) if sys.argv[1:] else tell_table(list(BUGS)))
