"""Stories of a leader as text: what happens stands as it is, what comes of it follows.

    set min=2 lag=30000                   settings, before anything else
    image 1,2,3 isr=1,2 epoch=0 version=0 what the metadata log says (epoch: the leader's; version: the partition's)
    broker 2 epoch=7 fenced stopping      how a broker is registered from now on
    at 3000                               time passes until then (ms)
    expiration                            the task that looks for followers that lag behind
    produce a 3 acks=1                    token `a` writes 3 records; with acks=all it waits until they are committed
    produce a 3 later                     the same, but it has more to write before it waits: until `wait a`
    timeout a                             `a` does not wait any longer
    fetch 2 5 epoch=0 broker=102 last=0 start=0    follower 2 fetches at 5
    delete d 4                            `d` deletes records below 4, and waits until they are gone
    lookup latest                         where a consumer would begin
    accept / accept version=5 isr=1,2     the controller accepts the oldest proposal
    refuse CODE                           it refuses it
    show                                  = the state

    < a ...                               what a token was told, or what a request gave
    ! alter ...                           a proposal to the controller

A file has the whole dialogue. The test plays the lines that ask and compares everything.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.error_codes import ErrorCode
from barnabas.replication.isr import CommittedPartitionState, PendingPartitionChange
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import LATEST, Partition
from barnabas.replication.purgatory import DelayedDeleteRecords, DelayedProduce
from barnabas.replication.roles import Isolation
from barnabas.storage.errors import LogError
from tests.replication.leader_bench import ScriptedPorts, accepted, live_broker
from tests.replication.partitions import append, partition, state
from tests.stories import StoryPlayer, options


def play(script: str) -> str:
    """The dialogue that the asking lines of a script lead to; comments and blank lines stay."""
    return LeaderPlayer().played(script)


class LeaderPlayer(StoryPlayer):
    OUTPUT = ("<", "=", "!")

    def __init__(self) -> None:
        self.ports = ScriptedPorts()
        self.settings: dict[str, int] = {}
        self.partition: Partition | None = None
        self.news: list[str] = []
        self.waiting: dict[str, DelayedProduce | DelayedDeleteRecords] = {}
        self.unwaited: dict[str, tuple[LeaderState, int]] = {}
        self._told = 0

    def step(self, words: list[str]) -> Iterator[str]:
        try:
            yield from self._step(words)
        except LogError as refusal:
            yield f"< {refusal.code.name}"
        yield from self._proposals()
        yield from self.news
        self.news = []

    def _proposals(self) -> Iterator[str]:
        for _, change in self.ports.submitted[self._told :]:
            proposal = change.proposal
            members = ",".join(f"{each}:{epoch}" for each, epoch in proposal.isr)
            yield (
                f"! alter isr={members} leader_epoch={proposal.leader_epoch} "
                f"version={proposal.partition_epoch} recovery={proposal.leader_recovery_state}"
            )
        self._told = len(self.ports.submitted)

    @property
    def leader(self) -> LeaderState:
        assert self.partition is not None
        return self.partition.leading()

    def _step(self, words: list[str]) -> Iterator[str]:
        match words:
            case ["set", *pairs]:
                settings = options(pairs)
                self.ports.replica_lag_time_max_ms = int(settings.get("lag", 30_000))
                self.settings = {"min_insync_replicas": int(settings.get("min", 1))}
            case ["image", replicas, *pairs]:
                self._image(replicas, options(pairs))
            case ["broker", broker_id, *pairs]:
                given = options(pairs)
                epoch = int(given["epoch"]) if "epoch" in given else None
                self.ports.brokers[int(broker_id)] = live_broker(
                    int(broker_id), epoch, fenced="fenced" in given, stopping="stopping" in given
                )
                if self.partition is not None:
                    self.leader.brokers_changed()
            case ["at", moment]:
                self.ports.now_ms = int(moment)
            case ["expiration"]:
                self.leader.maybe_shrink_isr()
            case ["produce", token, count, *pairs]:
                self._produce(token, int(count), options(pairs))
            case ["wait", token]:
                self._wait(token, *self.unwaited.pop(token))
            case ["delete", token, offset]:
                self._delete(token, int(offset))
            case ["timeout", token]:
                waiting = self.waiting[token]
                waiting.expire()
                self._settled(token, waiting)
            case ["fetch", replica, offset, *pairs]:
                yield self._fetch(int(replica), int(offset), options(pairs))
            case ["lookup", "latest"]:
                assert self.partition is not None
                found = self.partition.offset_for_timestamp(LATEST, Isolation.READ_UNCOMMITTED)
                yield f"< offset={found.offset} epoch={found.leader_epoch}"
            case ["accept", *pairs]:
                yield self._accept(options(pairs))
            case ["refuse", code]:
                yield self._refuse(ErrorCode[code])
            case ["show"]:
                yield self._shown()
            case _:
                raise ValueError(f"not understood: {' '.join(words)}")

    def _image(self, replicas: str, given: dict[str, str]) -> None:
        image = state(
            numbers(replicas),
            isr=numbers(given["isr"]) if "isr" in given else None,
            leader=int(given.get("leader", 1)),
            epoch=int(given.get("epoch", 0)),
            partition_epoch=int(given.get("version", 0)),
            recovery=int(given.get("recovery", 0)),
        )
        if self.partition is None:
            self.partition = partition(image, self.ports, **self.settings)
        else:
            self.partition.update(image)

    def _produce(self, token: str, count: int, given: dict[str, str]) -> None:
        assert self.partition is not None
        leader, acks_all = self.leader, given.get("acks", "all") == "all"
        appended = append(self.partition, *[b"x"] * count, acks_all=acks_all)
        if not acks_all:
            self.news.append(f"< {token} {appended.first_offset}..{appended.last_offset}")
            return
        if "later" in given:
            self.unwaited[token] = leader, appended.last_offset + 1
        else:
            self._wait(token, leader, appended.last_offset + 1)

    def _wait(self, token: str, leader: LeaderState, required_offset: int) -> None:
        delayed = DelayedProduce(lambda: self._settled(token, delayed))
        self.waiting[token] = delayed
        delayed.add(leader, required_offset)
        if delayed.is_over:
            self._settled(token, delayed)

    def _delete(self, token: str, offset: int) -> None:
        assert self.partition is not None
        leader = self.leader
        start = self.partition.delete_records(offset)
        delayed = DelayedDeleteRecords(lambda: self._settled(token, delayed))
        self.waiting[token] = delayed
        delayed.add(leader, start if offset < 0 else offset)
        if delayed.is_over:
            self._settled(token, delayed)

    def _settled(self, token: str, waiting: DelayedProduce | DelayedDeleteRecords) -> None:
        for outcome in waiting.outcomes.values():
            if isinstance(outcome, tuple):
                self.news.append(f"< {token} {outcome[0].name} low={outcome[1]}")
            else:
                self.news.append(f"< {token} {outcome.name}")

    def _fetch(self, replica: int, offset: int, given: dict[str, str]) -> str:
        assert self.partition is not None
        leader_epoch = int(given.get("epoch", self.partition.leader_epoch))
        broker_epoch = int(given.get("broker", live_broker(replica).epoch))
        leader = self.partition.leading(leader_epoch)
        leader.follower(replica, broker_epoch, leader_epoch)
        read = leader.read(
            offset,
            1 << 20,
            Isolation.LOG_END,
            last_fetched_epoch=int(given.get("last", -1)),
            replica=replica,
            replica_log_start_offset=int(given.get("start", 0)),
            broker_epoch=broker_epoch,
        )
        if read.diverging is not None:
            return f"< diverging epoch={read.diverging.epoch} end={read.diverging.end_offset}"
        data = "records" if read.range is not None else "nothing"
        return f"< {data} hw={read.high_watermark} start={read.log_start_offset}"

    def _oldest(self) -> tuple[LeaderState, PendingPartitionChange]:
        self._told -= 1
        return self.ports.submitted.pop(0)

    def _accept(self, given: dict[str, str]) -> str:
        leader, change = self._oldest()
        outcome = accepted(change)
        if "version" in given:
            outcome = outcome._replace(partition_epoch=int(given["version"]))
        if "isr" in given:
            outcome = outcome._replace(isr=numbers(given["isr"]))
        if "epoch" in given:
            outcome = outcome._replace(leader_epoch=int(given["epoch"]))
        return "= taken" if leader.altered(change, outcome) else "= no news"

    def _refuse(self, code: ErrorCode) -> str:
        leader, change = self._oldest()
        if not leader.refused(change, code):
            return "= not sent again"
        self.ports.submit(leader, change)
        return "= sent again"

    def _shown(self) -> str:
        leader = self.leader
        isr_state = leader.isr_state
        kind = "committed" if isinstance(isr_state, CommittedPartitionState) else "pending"
        return (
            f"= hw={leader.log.high_watermark} end={leader.log.log_end_offset} start={leader.low_watermark} "
            f"isr={listed(leader.isr)} maximal={listed(leader.maximal_isr)} {kind} version={leader.partition_epoch}"
        )


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


def listed(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
