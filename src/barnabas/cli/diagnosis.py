"""Why a partition has no leader, or takes no records, and what can be done: decided from what the cluster says.

Nothing is asked here; `cli/why.py` gathers the facts and shows what is found. The rules are those by which the
controller elects: a leader comes from the in-sync replicas, else from the eligible leader replicas, else, if nobody is
left in either, it is the last one that led, once it is back. Anybody else may lead only by an unclean election.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

__all__ = ["Advice", "BrokerFacts", "ClusterFacts", "Diagnosis", "PartitionFacts", "Verdict", "diagnose"]


class Verdict(Enum):
    """How a partition is. The worse, the earlier."""

    NO_LEADER = "no leader"
    WRITES_REFUSED = "acks=all refused"
    UNDER_REPLICATED = "under-replicated"
    #: A transaction that should have ended keeps read_committed waiting.
    HELD_BACK = "read_committed held back"
    WELL = "well"


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker that has a replica, or should. `answers` is None if it was not asked."""

    broker_id: int
    address: str = ""
    is_registered: bool = True
    is_fenced: bool = False
    answers: bool | None = None
    failed_directories: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        return self.is_registered and not self.is_fenced and self.answers is not False


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What does not depend on the partition. `bootstrap` stands in the commands that are advised."""

    bootstrap: str
    brokers: Mapping[int, BrokerFacts] = field(default_factory=dict)
    has_active_controller: bool = True

    def broker(self, broker_id: int) -> BrokerFacts:
        return self.brokers.get(broker_id) or BrokerFacts(broker_id, is_registered=False)


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition as the cluster describes it. `elr` and `last_known_elr` are None if it does not tell."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    #: Replicas that cannot be read: their broker is away, or their directory.
    offline: frozenset[int] = frozenset()
    min_insync_replicas: int = 1

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def needed(self) -> int:
        """How many must be in sync for acks=all: no partition needs more than it has."""
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def out_of_sync(self) -> list[int]:
        return [each for each in self.replicas if each not in self.isr]


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do, and the command that does it, if there is one."""

    text: str
    command: str = ""
    loses_records: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is so, and what to do about it."""

    verdict: Verdict
    sentences: tuple[str, ...]
    advice: tuple[Advice, ...] = ()


def diagnose(partition: PartitionFacts, cluster: ClusterFacts) -> Diagnosis:
    """The whole verdict on one partition."""
    case = _Case(partition, cluster)
    if partition.leader is None:
        found = case.without_leader()
    elif len(partition.isr) < partition.needed:
        found = case.with_writes_refused()
    elif partition.out_of_sync:
        found = case.under_replicated()
    else:
        found = case.well()
    if cluster.has_active_controller:
        return found
    command = f"barnabas metadata-quorum --bootstrap-server {cluster.bootstrap} describe --status"
    first = Advice("Start controllers until a majority of them runs; who they are:", command)
    return replace(found, sentences=(*found.sentences, _NO_CONTROLLER), advice=(first, *found.advice))


class _Case:
    """One partition in one cluster."""

    def __init__(self, partition: PartitionFacts, cluster: ClusterFacts) -> None:
        self._partition = partition
        self._cluster = cluster

    # Nobody leads

    def without_leader(self) -> Diagnosis:
        partition = self._partition
        complete = list(dict.fromkeys((*partition.isr, *(partition.elr or ()))))
        last = list(partition.last_known_elr or ()) if not complete else []
        may_lead = complete or last
        sentences = [f"Nobody leads {partition.name}: it is neither written nor read."]
        if not self._cluster.has_active_controller:
            return Diagnosis(Verdict.NO_LEADER, tuple(sentences))
        ready = [each for each in may_lead if self._is_ready(each)]
        if ready:
            are = _verb(ready, "is", "are")
            sentences.append(f"{_brokers(ready).capitalize()} may lead and {are} there: one is about to be elected.")
            return Diagnosis(Verdict.NO_LEADER, tuple(sentences), (Advice("Ask again in a moment.", self._why()),))
        if complete:
            sentences.append(
                f"Only {_brokers(complete, 'or')} {_verb(complete, 'has', 'have')} all that was acknowledged, "
                f"and {_verb(complete, 'it is not', 'none of them is')} there:"
            )
        elif last:
            sentences.append(
                "No replica is known to have all that was acknowledged: each stopped uncleanly, or lost its disk. "
                f"{_brokers(last).capitalize()} led last, and is elected when it is back:"
            )
        else:
            sentences.append(
                "No replica is known to have all that was acknowledged, and nobody knows who led last: only an unclean "
                "election can make one lead."
            )
        sentences += [f"- {self._state(each)}" for each in may_lead]
        others = [each for each in partition.replicas if each not in may_lead]
        if others:
            sentences.append("The other replicas may lack records, so they do not lead by themselves:")
            sentences += [f"- {self._state(each)}" for each in others]
        return Diagnosis(Verdict.NO_LEADER, tuple(sentences), (*self._revive(may_lead, complete), *self._unclean()))

    def _revive(self, may_lead: list[int], complete: list[int]) -> list[Advice]:
        cost = "nothing is lost" if complete else "only what its disk had not taken when it stopped is lost"
        on_disk = [each for each in may_lead if self._has_failed_directory(each)]
        astray = [each for each in may_lead if self._is_astray(each)]
        away = [each for each in may_lead if each not in on_disk and each not in astray]
        found = self._look_after(astray)
        if away:
            found.append(
                Advice(
                    f"Start {_brokers(away, 'or')} again, with its old directories: it leads at once, and {cost}.",
                    "barnabas server start config/kraft/server.properties",
                )
            )
        found += [
            Advice(f"Bring back {self._directories(each)} of broker {each}, and restart it: it leads, and {cost}.")
            for each in on_disk
        ]
        return found

    def _unclean(self) -> list[Advice]:
        """The last resort: it is told who could lead now, since nobody else can be chosen."""
        partition = self._partition
        ready = [each for each in partition.replicas if self._is_ready(each)]
        if not ready:
            return []
        return [
            Advice(
                f"Only if they never come back: let {_brokers(ready, 'or')} lead. What it lacks is lost for ever.",
                f"barnabas leader-election --bootstrap-server {self._cluster.bootstrap} --election-type unclean "
                f"--topic {partition.topic} --partition {partition.partition}",
                loses_records=True,
            )
        ]

    # Somebody leads

    def with_writes_refused(self) -> Diagnosis:
        partition = self._partition
        sentences = [
            f"Writes to {partition.name} with acks=all are refused with NOT_ENOUGH_REPLICAS: {self._in_sync()}, and "
            f"min.insync.replicas={partition.min_insync_replicas} asks for {partition.needed}.",
            "Writes with acks=1 are taken, but nobody reads them before enough replicas are in sync.",
            *self._leader_trouble(),
            *self._missing(),
        ]
        lowered = len(partition.isr)
        advice = self._return()
        if lowered:
            advice.append(
                Advice(
                    f"Only if you would rather write than be safe: be content with {lowered}. A record is then lost "
                    f"with {_brokers(partition.isr)}.",
                    f"barnabas configs --bootstrap-server {self._cluster.bootstrap} --alter --topic {partition.topic} "
                    f"--add-config min.insync.replicas={lowered}",
                    loses_records=True,
                )
            )
        return Diagnosis(Verdict.WRITES_REFUSED, tuple(sentences), tuple(advice))

    def under_replicated(self) -> Diagnosis:
        partition = self._partition
        spare = len(partition.isr) - partition.needed
        sentences = [
            f"{partition.name} is written and read, but not all replicas are in sync: {self._in_sync()}.",
            *self._leader_trouble(),
            *self._missing(),
        ]
        if spare == 0:
            sentences.append("If one more is lost, acks=all is refused." if partition.needed > 1 else _ALONE)
        return Diagnosis(Verdict.UNDER_REPLICATED, tuple(sentences), tuple(self._return()))

    def well(self) -> Diagnosis:
        partition = self._partition
        count = len(partition.replicas)
        sentences = [
            f"{partition.name} is well: broker {partition.leader} leads it (epoch {partition.leader_epoch}), "
            + (
                f"all {count} replicas are in sync, and acks=all needs {partition.needed} of them."
                if count > 1
                else "and has the only replica: what that broker loses is lost."
            )
        ]
        trouble = self._leader_trouble()
        advice = []
        if not trouble and partition.replicas and partition.leader != partition.replicas[0]:
            preferred = partition.replicas[0]
            sentences.append(f"Broker {preferred} is preferred as its leader; it takes over again within minutes.")
            advice.append(
                Advice(
                    "If it shall be now:",
                    f"barnabas leader-election --bootstrap-server {self._cluster.bootstrap} --election-type preferred "
                    f"--topic {partition.topic} --partition {partition.partition}",
                )
            )
        return Diagnosis(Verdict.WELL, (*sentences, *trouble), tuple(advice))

    def _leader_trouble(self) -> list[str]:
        """A leader that does not answer is replaced when the controller gives it up."""
        leader = self._partition.leader
        if leader is None or self._cluster.broker(leader).is_there:
            return []
        return [f"But its leader has trouble: {self._state(leader)}."]

    def _missing(self) -> list[str]:
        missing = self._partition.out_of_sync
        return ["Not in sync:", *(f"- {self._state(each)}" for each in missing)] if missing else []

    def _return(self) -> list[Advice]:
        """How those that are not in sync come back."""
        missing = self._partition.out_of_sync
        on_disk = [each for each in missing if self._has_failed_directory(each)]
        astray = [each for each in missing if self._is_astray(each)]
        others = [each for each in missing if each not in on_disk and each not in astray]
        away = [each for each in others if not self._cluster.broker(each).is_there]
        behind = [each for each in others if each not in away]
        found = self._look_after(astray)
        if away:
            found.append(
                Advice(
                    f"Start {_brokers(away)} again; {_verb(away, 'it catches', 'they catch')} up by "
                    f"{_verb(away, 'itself', 'themselves')}.",
                    "barnabas server start config/kraft/server.properties",
                )
            )
        found += [Advice(f"Bring back {self._directories(each)} of broker {each}, and restart it.") for each in on_disk]
        if behind:
            found.append(
                Advice(
                    f"Wait for {_brokers(behind)} to catch up; how much each has, the leader first:",
                    f"barnabas log-dirs --bootstrap-server {self._cluster.bootstrap} --describe "
                    f"--topic-list {self._partition.topic} "
                    f"--broker-list {','.join(map(str, (self._partition.leader, *behind)))}",
                )
            )
        return found

    def _look_after(self, astray: list[int]) -> list[Advice]:
        """Their processes are there, so starting them is not what they need."""
        return [
            Advice(
                f"Wait a moment for broker {each}, then see its log: it may not reach the controllers."
                if self._cluster.broker(each).answers
                else f"Look after broker {each}: if its process hangs, end it and start it again."
            )
            for each in astray
        ]

    # Words

    def _is_astray(self, broker_id: int) -> bool:
        """It answers though it is fenced, or it is not fenced though it does not answer."""
        broker = self._cluster.broker(broker_id)
        return broker.is_registered and broker.answers is not None and broker.answers == broker.is_fenced

    def _is_ready(self, broker_id: int) -> bool:
        return self._cluster.broker(broker_id).is_there and broker_id not in self._partition.offline

    def _has_failed_directory(self, broker_id: int) -> bool:
        """Its replica cannot be had, though the broker can."""
        return self._cluster.broker(broker_id).is_there and broker_id in self._partition.offline

    def _directories(self, broker_id: int) -> str:
        failed = self._cluster.broker(broker_id).failed_directories
        return ", ".join(failed) if failed else "the directory"

    def _state(self, broker_id: int) -> str:
        broker = self._cluster.broker(broker_id)
        name = f"broker {broker_id}"
        if not broker.is_registered:
            return f"{name} is not registered: it has not started since it was forgotten, or never did"
        if broker.is_fenced and broker.answers:
            return (
                f"{name} is fenced, though it answers at {broker.address}: it starts, or cannot reach the controllers"
            )
        if broker.is_fenced:
            return f"{name} is fenced{self._silence(broker)}: it has stopped, or its machine is away"
        if broker.answers is False:
            return (
                f"{name} counts as alive{self._silence(broker)}: it hangs or is cut off, and is fenced when its "
                "session ends (broker.session.timeout.ms)"
            )
        if broker_id in self._partition.offline:
            return f"{name} runs, but {self._directories(broker_id)} with this replica has failed"
        return f"{name} runs: it catches up, or is shutting down"

    def _silence(self, broker: BrokerFacts) -> str:
        return f", and does not answer at {broker.address}" if broker.answers is False and broker.address else ""

    def _in_sync(self) -> str:
        partition = self._partition
        those = f" ({_brokers(partition.isr)})" if partition.isr else ""
        count = f"{len(partition.isr)} of {len(partition.replicas)} replicas"
        return f"{count} {_verb(partition.isr, 'is', 'are')} in sync{those}"

    def _why(self) -> str:
        partition = self._partition
        return f"barnabas why {partition.topic}:{partition.partition} --bootstrap-server {self._cluster.bootstrap}"


_NO_CONTROLLER: Final = (
    "No controller is active: nobody can be elected, and who is in sync cannot change, until a majority of controllers "
    "runs."
)
_ALONE: Final = "Its leader is alone: what is written now is lost with that broker's disk."


def _brokers(ids: Iterable[int], word: str = "and") -> str:
    """'broker 1', 'brokers 1 and 2', 'brokers 1, 2 and 3'."""
    *others, last = ids
    return f"brokers {', '.join(map(str, others))} {word} {last}" if others else f"broker {last}"


def _verb(ids: Iterable[int], one: str, many: str) -> str:
    return one if len(list(ids)) == 1 else many
