"""What `barnabas top` shows, as values, and how it follows from what was asked: pure, so that a screen can be tested.

A `Sample` is what a cluster said at one moment. Two of them make a `Model`: what changed between them, by the time
between them, is a rate. `None` stands for what is not known, or not yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.cli.top.figures import NodeFigures, together
from barnabas.cli.top.history import EndHistory

#: Whoever waits longer is told of for as long as that, not only when it begins.
_LONG_WAIT_MS: Final = 1000
_MAY_WAIT: Final = frozenset({"Fetch", "FetchConsumer", "FetchFollower", "JoinGroup", "SyncGroup", "ShareFetch"})
#: States of brokers that serve nobody: known to the cluster, or seen from here.
FENCED: Final = "fenced"
SILENT: Final = "no answer"
_Total = Callable[[NodeFigures], float]


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """One partition, as the cluster describes it."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    broker_id: int
    address: str
    is_fenced: bool = False
    #: It did not answer.
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class GroupFacts:
    group_id: str
    state: str
    members: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What the cluster said at one moment."""

    at_ms: int
    cluster_id: str = ""
    controller_id: int | None = None
    brokers: tuple[BrokerSeen, ...] = ()
    partitions: Mapping[TopicPartition, PartitionSeen] = field(default_factory=dict)
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    groups: tuple[GroupFacts, ...] = ()
    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    #: Bytes of data on each broker, by topic.
    sizes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    #: What nodes of ours say of themselves.
    nodes: Mapping[int, NodeFigures] = field(default_factory=dict)
    #: What could not be asked, and why.
    problems: tuple[str, ...] = ()
    #: False if it is known that nobody leads the controllers.
    has_controller: bool = True


@dataclass(frozen=True, slots=True)
class BrokerRow:
    broker_id: int
    address: str
    state: str
    leaders: int
    replicas: int
    #: Replicas of its that are not in sync.
    behind: int
    size_bytes: int | None = None
    bytes_in_s: float | None = None
    bytes_out_s: float | None = None
    requests_s: float | None = None
    idle: float | None = None
    longest_stall_ms: float | None = None


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    partitions: int
    records_s: float | None = None
    bytes_in_s: float | None = None
    bytes_out_s: float | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GroupRow:
    group_id: str
    state: str
    members: int
    lag: int | None = None
    #: How long ago the oldest record was written that the group has not read.
    lag_s: float | None = None
    #: It may be more.
    is_at_least: bool = False


@dataclass(frozen=True, slots=True)
class ApiRow:
    """Requests of one API, of all nodes that tell: how many, and where the time of one goes."""

    name: str
    requests_s: float
    mean_ms: float
    p99_ms: float | None
    queue_ms: float
    local_ms: float
    remote_ms: float
    throttle_ms: float
    response_queue_ms: float
    send_ms: float

    @property
    def may_wait(self) -> bool:
        """Whether clients let it wait for records, or for each other."""
        return self.name in _MAY_WAIT

    @property
    def cost_ms(self) -> float:
        """The mean without what clients let it wait."""
        return self.mean_ms - self.remote_ms if self.may_wait else self.mean_ms


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition that lacks something."""

    name: str
    leader: int | None
    isr: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A screen, before it has a size."""

    at_ms: int
    cluster_id: str = ""
    controller_id: int | None = None
    partition_count: int = 0
    records_s: float | None = None
    brokers: tuple[BrokerRow, ...] = ()
    topics: tuple[TopicRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    #: None where no node tells: of any other Kafka.
    apis: tuple[ApiRow, ...] | None = None
    partitions: tuple[PartitionRow, ...] = ()
    throttled: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    has_controller: bool = True


def model_of(now: Sample, before: Sample | None, history: EndHistory) -> Model:
    """What there is to show of a sample. `history` has the ends of partitions up to this sample."""
    rates = _record_rates(now, before)
    apis, throttled = _requests(now, before)
    return Model(
        at_ms=now.at_ms,
        cluster_id=now.cluster_id,
        controller_id=now.controller_id,
        partition_count=len(now.partitions),
        records_s=None if rates is None else sum(rates.values()),
        brokers=tuple(_broker(each, now, before) for each in now.brokers),
        topics=tuple(_topics(now, before, rates)),
        groups=tuple(_group(each, now, history) for each in now.groups),
        apis=apis,
        partitions=tuple(_lacking(now)),
        throttled=throttled,
        problems=now.problems,
        has_controller=now.has_controller,
    )


def _seconds(now: Sample, before: Sample | None) -> float:
    return 0.0 if before is None else (now.at_ms - before.at_ms) / 1000


def _record_rates(now: Sample, before: Sample | None) -> dict[str, float] | None:
    """Records in a second by topic. A topic that is new began empty; one that was made anew did, too."""
    seconds = _seconds(now, before)
    if before is None or seconds <= 0:
        return None
    rates: dict[str, float] = {}
    for partition, end in now.end_offsets.items():
        start = before.end_offsets.get(partition, end if partition in before.partitions else 0)
        rates[partition.topic] = rates.get(partition.topic, 0.0) + max(0, end - start) / seconds
    return rates


def _state(broker: BrokerSeen, controller_id: int | None) -> str:
    if broker.is_fenced:
        return FENCED
    return SILENT if broker.is_silent else "controller" if broker.broker_id == controller_id else ""


def _broker(broker: BrokerSeen, now: Sample, before: Sample | None) -> BrokerRow:
    number = broker.broker_id
    mine = [each for each in now.partitions.values() if number in each.replicas]
    sizes = now.sizes.get(number)
    figures = now.nodes.get(number)
    then = before.nodes.get(number) if before is not None else None
    seconds = _seconds(now, before)
    return BrokerRow(
        number,
        broker.address,
        _state(broker, now.controller_id),
        sum(each.leader == number for each in mine),
        len(mine),
        sum(number not in each.isr for each in mine),
        None if sizes is None else sum(sizes.values()),
        _rate(figures, then, lambda each: sum(each.bytes_in.values()), seconds),
        _rate(figures, then, lambda each: sum(each.bytes_out.values()), seconds),
        _rate(figures, then, lambda each: sum(api.count for api in each.apis.values()), seconds),
        None if figures is None else figures.idle_since(then),
        None if figures is None else figures.longest_stall_ms,
    )


def _rate(now: NodeFigures | None, before: NodeFigures | None, total: _Total, seconds: float) -> float | None:
    """By how much a counter grows in a second; one that is smaller than it was began anew with its node."""
    if now is None or before is None or seconds <= 0:
        return None
    new, old = total(now), total(before)
    return (new - old if new >= old else new) / seconds


def _topics(now: Sample, before: Sample | None, rates: Mapping[str, float] | None) -> Iterable[TopicRow]:
    counts: dict[str, int] = {}
    for partition in now.partitions:
        counts[partition.topic] = counts.get(partition.topic, 0) + 1
    seconds = _seconds(now, before)
    for name, count in sorted(counts.items()):
        sizes = [each[name] for each in now.sizes.values() if name in each]

        def summed(which: str, topic: str = name) -> float | None:
            then = before.nodes if before is not None else {}
            found = [
                _rate(figures, then.get(number), lambda each: getattr(each, which).get(topic, 0.0), seconds)
                for number, figures in now.nodes.items()
            ]
            known = [each for each in found if each is not None]
            return sum(known) if known else None

        yield TopicRow(
            name,
            count,
            None if rates is None else rates.get(name, 0.0),
            summed("bytes_in"),
            summed("bytes_out"),
            sum(sizes) if sizes else None,
        )


def _group(group: GroupFacts, now: Sample, history: EndHistory) -> GroupRow:
    lags: dict[TopicPartition, int] = {}
    for partition, offset in now.committed.get(group.group_id, {}).items():
        end = now.end_offsets.get(partition)
        if end is not None:
            lags[partition] = max(0, end - offset)
    if not lags:
        return GroupRow(group.group_id, group.state, group.members)
    oldest_s, is_at_least = 0.0, False
    committed = now.committed[group.group_id]
    for partition, lag in lags.items():
        if lag:
            age = history.age(partition, committed[partition], now.at_ms)
            if age.seconds > oldest_s:
                oldest_s, is_at_least = age.seconds, age.is_at_least
    oldest_s = max(oldest_s, _told_lag(group.group_id, now))
    return GroupRow(group.group_id, group.state, group.members, sum(lags.values()), oldest_s, is_at_least)


def _told_lag(group_id: str, now: Sample) -> float:
    """What nodes of ours say. Each knows of the partitions that it has replicas of, so it may be more, but not less."""
    return max((each.group_lag_s.get(group_id, 0.0) for each in now.nodes.values()), default=0.0)


def _requests(now: Sample, before: Sample | None) -> tuple[tuple[ApiRow, ...] | None, tuple[str, ...]]:
    """APIs by what their nodes counted between the samples, and clients that quotas slowed down."""
    if not now.nodes:
        return None, ()
    then = before.nodes if before is not None else {}
    pairs = [(figures, then[number]) for number, figures in now.nodes.items() if number in then]
    seconds = _seconds(now, before)
    throttled = _throttled(now.nodes.values(), pairs, seconds)
    rows = []
    for name in sorted({name for figures, _ in pairs for name in figures.apis}):
        between = together(
            figures.apis[name].since(old.apis.get(name)) for figures, old in pairs if name in figures.apis
        )
        if between.count and seconds > 0:
            *parts, total = (each / between.count for each in between.sums_ms)
            rows.append(ApiRow(name, between.count / seconds, total, between.quantile_ms(0.99), *parts))
    return tuple(rows), throttled


def _throttled(
    nodes: Iterable[NodeFigures], pairs: Sequence[tuple[NodeFigures, NodeFigures]], seconds: float
) -> tuple[str, ...]:
    """Who waits for its quota now, and how long yet; and who was made to wait between the samples. Those most of all
    first."""
    left: dict[str, float] = {}
    for figures in nodes:
        for client, left_ms in figures.throttle_left_ms.items():
            if left_ms > 0:
                left[client] = max(left_ms, left.get(client, 0.0))
    waited: dict[str, float] = {}
    for figures, old in pairs:
        for client, total_ms in figures.throttled_ms.items():
            since_ms = total_ms - old.throttled_ms.get(client, 0.0)
            if since_ms > 0 and left.get(client, 0.0) < _LONG_WAIT_MS:
                waited[client] = waited.get(client, 0.0) + since_ms
    texts = {client: (ms, f"{ms:,.0f} ms in {seconds:.0f} s") for client, ms in waited.items()}
    texts |= {client: (ms, f"waits {ms / 1000:,.1f} s more") for client, ms in left.items() if client not in texts}
    ordered = sorted(texts.items(), key=lambda each: -each[1][0])
    return tuple(f"{client} ({text})" for client, (_, text) in ordered)


def _lacking(now: Sample) -> Iterable[PartitionRow]:
    """Those without a leader first."""
    found = [
        PartitionRow(
            str(partition), each.leader, each.isr, tuple(number for number in each.replicas if number not in each.isr)
        )
        for partition, each in sorted(now.partitions.items())
        if each.leader is None or len(each.isr) < len(each.replicas)
    ]
    return sorted(found, key=lambda each: each.leader is not None)
