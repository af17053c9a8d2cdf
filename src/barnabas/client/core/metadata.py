"""What a client should know of the cluster: when to ask, for which topics, and what to believe of the answers.

`Metadata` holds the present `ClusterView` and the policy. It sends nothing: whoever runs it asks `next_update_in_ms`,
sends `request` when that is 0, and hands the outcome to `answered` or `failed`. One request is under way at a time.

`want`, `set_topics` and `request_update` may be called from another thread than the rest: each makes one change that
later steps find whole, and then calls `on_needed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError, check
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.core.cluster_view import (
    NO_LEADER,
    UNKNOWN_EPOCH,
    ClusterView,
    Node,
    PartitionInfo,
    TopicView,
)
from barnabas.net.backoff import grown
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.client.settings import ClientSettings

__all__ = ["ClusterView", "Metadata", "MetadataPolicy", "Node", "PartitionInfo", "TopicView"]

#: Before this version brokers told leader epochs that could be older than the leaders beside them.
RELIABLE_EPOCHS_VERSION: Final = 9
_DEFAULT_IDLE_MS: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPolicy:
    """How often to ask and what to forget. `rebootstrap_trigger_ms` is None where the recovery strategy is none."""

    max_age_ms: int = 300_000
    max_idle_ms: int = _DEFAULT_IDLE_MS
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    rebootstrap_trigger_ms: int | None = 300_000
    allow_auto_topic_creation: bool = True

    @classmethod
    def of(cls, settings: ClientSettings) -> Self:
        """From the settings of a producer, consumer or admin; admins never create topics by asking for them."""
        does_recover = settings.metadata_recovery_strategy.lower() == "rebootstrap"
        creates = getattr(settings, "allow_auto_create_topics", hasattr(settings, "metadata_max_idle_ms"))
        return cls(
            max_age_ms=settings.metadata_max_age_ms,
            max_idle_ms=getattr(settings, "metadata_max_idle_ms", _DEFAULT_IDLE_MS),
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
            rebootstrap_trigger_ms=settings.metadata_recovery_rebootstrap_trigger_ms if does_recover else None,
            allow_auto_topic_creation=creates,
        )


class _Asked(NamedTuple):
    """The request that is under way."""

    is_partial: bool
    topics: frozenset[str]
    wants_all: bool


class _Seen:
    """The newest leader epochs of one topic, in one life of it."""

    __slots__ = ("epochs", "topic_id")

    def __init__(self, topic_id: Uuid) -> None:
        self.topic_id = topic_id
        self.epochs: dict[int, int] = {}


class Metadata:
    """See the module.

    Guarantees: a partition's leader is never replaced by one with a lower epoch, unless the topic was made anew (it
    has another id) or the bootstrap servers have led to another cluster; the view's version grows with each change.
    """

    def __init__(self, policy: MetadataPolicy, *, randomness: Random) -> None:
        self.policy = policy
        self.view = ClusterView()
        #: Called when an update is needed sooner than it was; by whoever caused it, in its thread.
        self.on_needed: Callable[[], None] | None = None
        #: Whether the bootstrap servers are to be asked: at first, and after `rebootstrap` until an answer comes.
        self.is_bootstrapping = True
        #: Why the last attempts failed; None after a success.
        self.last_error: Exception | None = None
        #: How many requests for everything were made, and which of them was the last to be answered.
        self.full_request_count = 0
        self.answered_full_request = 0
        self._randomness = randomness
        self._wanted: dict[str, int] = {}
        self._fixed: frozenset[str] = frozenset()
        self._wants_all = False
        self._new: dict[str, None] = {}
        self._needs_full = True
        self._asked: _Asked | None = None
        self._seen: dict[str, _Seen] = {}
        self._succeeded_at_ms: int | None = None
        self._not_before_ms = 0.0
        self._failure_count = 0
        self._same_count = 0
        self._trying_since_ms: int | None = None
        self._must_rebootstrap = False

    @classmethod
    def of(cls, settings: ClientSettings, *, randomness: Random) -> Self:
        return cls(MetadataPolicy.of(settings), randomness=randomness)

    # What is wanted

    def want(self, topic: str, now_ms: int) -> bool:
        """Keep a topic in the view until it was not wanted for `max_idle_ms`; whether it is new, so that it is asked
        for. Cheap: for a topic that is known it only notes the time."""
        is_new = topic not in self._wanted
        self._wanted[topic] = now_ms
        if not is_new or self._is_fixed(topic):
            return False
        self._begin_new([topic])
        return True

    def set_topics(self, topics: Collection[str] | None) -> int:
        """Keep exactly these in the view, beside those that are wanted; None for all that the cluster has. Returns the
        version to wait past if any of them is new."""
        version = self.view.version
        had, had_all = self._fixed, self._wants_all
        self._wants_all = topics is None
        self._fixed = frozenset(topics or ())
        if self._wants_all:
            if not had_all:
                self.request_update()
        else:
            new = sorted(topic for topic in self._fixed if topic not in had and self.view.entry(topic) is None)
            if new:
                self._begin_new(new)
        return version

    def request_update(self, *, is_asked_for: bool = False) -> int:
        """Ask for all of it again as soon as backoff allows; returns the version to wait past.

        With `is_asked_for` somebody wants to know, and does not try again what failed: only failures are waited for.
        """
        was_needed = self._needs_full
        self._needs_full = True
        if is_asked_for and not self._failure_count:
            was_needed = was_needed and not self._not_before_ms
            self._not_before_ms = 0.0
        if not was_needed:
            self._tell_needed()
        return self.view.version

    def topics(self) -> list[str] | None:
        """What is kept in the view; None for everything."""
        return None if self._wants_all else sorted({*self._fixed, *list(self._wanted)})

    @property
    def updated_at_ms(self) -> int | None:
        """When an answer about everything last came; None for never."""
        return self._succeeded_at_ms

    # When, and what to ask

    def next_update_in_ms(self, now_ms: int) -> float:
        """How long until `request` should be sent: 0 for now, infinite while one is under way."""
        if self._asked is not None:
            return math.inf
        due_ms = 0.0 if self._needs_full or self._new or self._succeeded_at_ms is None else self._age_left_ms(now_ms)
        return max(due_ms, self._not_before_ms - now_ms, 0.0)

    def request(self, now_ms: int) -> MetadataRequest:
        """What to send now: for new topics alone if nothing else is needed, otherwise for everything."""
        check(self._asked is None, "a request for metadata is under way already")
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms
        for topic in list(self._new):
            if not self._keeps(topic):
                del self._new[topic]
        new = sorted(self._new)
        is_stale = self._succeeded_at_ms is None or not self._age_left_ms(now_ms)
        is_partial = bool(new) and not (self._needs_full or is_stale)
        self._forget_idle(now_ms)
        names = new if is_partial else self.topics()
        if not is_partial:
            self._needs_full = False
            self.full_request_count += 1
        self._asked = _Asked(is_partial, frozenset(names or new), names is None)
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        return MetadataRequest(topics=asked, allow_auto_topic_creation=self.policy.allow_auto_topic_creation)

    # What came of it

    def answered(self, response: MetadataResponse, now_ms: int, version: int = MetadataRequest.VERSIONS.high) -> None:
        """Take in the answer to `request`, which was sent in `version`. An answer that tells nothing is a failure."""
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            self._must_rebootstrap = code is ErrorCode.REBOOTSTRAP_REQUIRED
            self.failed(now_ms, BrokerError(code))
            return
        if not response.brokers:
            self.failed(now_ms, BarnabasError("the answer names no brokers: the node may still be starting"))
            return
        asked = self._asked or _Asked(False, frozenset(), True)
        self._asked = None
        before = self.view
        if self.is_bootstrapping and response.cluster_id != before.cluster_id:
            self._seen.clear()  # in the same cluster, one that lags behind would lead back to logs of old
        self.is_bootstrapping = False
        for name in asked.topics:
            self._new.pop(name, None)
        topics = self._merged_topics(response, asked, version)
        nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers}
        self.view = ClusterView(
            before.version + 1, response.cluster_id, nodes.get(response.controller_id), nodes, topics.values()
        )
        self._seen = {name: seen for name, seen in self._seen.items() if name in topics}
        is_same = nodes == before.nodes and self.view.entries() == before.entries()
        self._note_success(now_ms, asked.is_partial, is_same)

    @property
    def failure_count(self) -> int:
        """How often in a row it was asked for in vain."""
        return self._failure_count

    def unreachable(self, now_ms: int, error: Exception) -> None:
        """A node could not be connected to. Another may be tried at once: nodes have waits of their own."""
        self.last_error = error
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms

    def failed(self, now_ms: int, error: Exception) -> None:
        """No answer came, or none of use. What was wanted is still wanted, after a wait that grows."""
        if self._asked is not None and not self._asked.is_partial:
            self._needs_full = True
        self._asked = None
        self.unreachable(now_ms, error)
        self._not_before_ms = now_ms + self._grown_ms(self._failure_count)
        self._failure_count += 1

    def leader_hints(self, hints: Iterable[tuple[TopicPartition, int, int]], endpoints: Iterable[Node] = ()) -> int:
        """Leaders and epochs that an answer to Produce or Fetch told beside its error, with their addresses; how many
        were news. A hint without a higher epoch, an address, or a partition that is known is passed over."""
        named = {node.node_id: node for node in endpoints}
        nodes = {**self.view.nodes, **named}
        changed: dict[str, dict[int, PartitionInfo]] = {}
        count = 0
        for tp, leader_id, epoch in hints:
            known = self.view.partition(tp)
            if known is None or leader_id not in nodes or epoch < 0 or epoch <= self._newest_epoch(tp):
                continue
            self._seen.setdefault(tp.topic, _Seen(self.view.topic_id(tp.topic))).epochs[tp.partition] = epoch
            news = replace(known, leader_id=leader_id, leader_epoch=epoch, error_code=ErrorCode.NONE)
            changed.setdefault(tp.topic, dict(self.view.entry(tp.topic).by_number))[tp.partition] = news  # type: ignore[union-attr]
            count += 1
        if count:
            self._replace_partitions(changed, nodes)
        return count

    def _replace_partitions(
        self, changed: Mapping[str, Mapping[int, PartitionInfo]], nodes: Mapping[int, Node]
    ) -> None:
        topics = [
            replace(each, partitions=tuple(changed[each.name].values())) if each.name in changed else each
            for each in self.view.entries()
        ]
        view = self.view
        self.view = ClusterView(view.version + 1, view.cluster_id, view.controller, nodes, topics)

    def epoch_seen(self, tp: TopicPartition, leader_epoch: int) -> bool:
        """Some answer carried a leader epoch; whether it is newer than ours, so that metadata is asked for again. Until
        then nobody leads: who led before, and has not heard of its successor, would answer from a log of old."""
        known, entry = self.view.partition(tp), self.view.entry(tp.topic)
        if leader_epoch <= self._newest_epoch(tp) or known is None or entry is None:
            return False
        self._seen.setdefault(tp.topic, _Seen(self.view.topic_id(tp.topic))).epochs[tp.partition] = leader_epoch
        unknown = replace(known, leader_id=NO_LEADER, leader_epoch=UNKNOWN_EPOCH)
        self._replace_partitions({tp.topic: {**entry.by_number, tp.partition: unknown}}, self.view.nodes)
        self.request_update()
        return True

    # Starting again from the bootstrap servers

    @property
    def can_rebootstrap(self) -> bool:
        return self.policy.rebootstrap_trigger_ms is not None

    def should_rebootstrap(self, now_ms: int) -> bool:
        """Whether a broker asked for it, or no update succeeded for too long."""
        trigger_ms = self.policy.rebootstrap_trigger_ms
        if trigger_ms is None or self._asked is not None:
            return False
        since_ms = self._trying_since_ms
        is_overdue = since_ms is not None and now_ms - since_ms >= trigger_ms
        return self._must_rebootstrap or (is_overdue and not self.is_bootstrapping)

    def rebootstrap(self, now_ms: int) -> None:
        """Ask the bootstrap servers next; they may lead to another cluster. The view stays until then."""
        self._must_rebootstrap = False
        self.is_bootstrapping = True
        self._needs_full = True
        self._trying_since_ms = now_ms
        self._not_before_ms = 0.0

    # How

    def _is_fixed(self, topic: str) -> bool:
        return (self._wants_all or topic in self._fixed) and self.view.entry(topic) is not None

    def _begin_new(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._new[topic] = None
        if not self._failure_count:
            self._not_before_ms = 0.0
        self._same_count = 0
        self._tell_needed()

    def _tell_needed(self) -> None:
        if self.on_needed is not None:
            self.on_needed()

    def _age_left_ms(self, now_ms: int) -> float:
        return max(0.0, (self._succeeded_at_ms or 0) + self.policy.max_age_ms - now_ms)

    def _grown_ms(self, count: int) -> float:
        return grown(self.policy.retry_backoff_ms, self.policy.retry_backoff_max_ms, count, self._randomness)

    def _forget_idle(self, now_ms: int) -> None:
        for topic, used_at_ms in list(self._wanted.items()):
            if used_at_ms + self.policy.max_idle_ms <= now_ms and topic not in self._new:
                del self._wanted[topic]

    def _keeps(self, topic: str) -> bool:
        return self._wants_all or topic in self._wanted or topic in self._fixed

    def _newest_epoch(self, tp: TopicPartition) -> int:
        seen = self._seen.get(tp.topic)
        return UNKNOWN_EPOCH if seen is None else seen.epochs.get(tp.partition, UNKNOWN_EPOCH)

    def _merged_topics(self, response: MetadataResponse, asked: _Asked, version: int) -> dict[str, TopicView]:
        topics: dict[str, TopicView] = {}
        if asked.is_partial:
            topics = {each.name: each for each in self.view.entries() if self._keeps(each.name)}
        for told in response.topics:
            if told.name is not None and self._keeps(told.name):
                topics[told.name] = self._topic(told.name, told, version)
        return topics

    def _topic(self, name: str, told: MetadataResponseTopic, version: int) -> TopicView:
        if told.error_code:
            code = ErrorCode.of(told.error_code)
            if code.retriable:
                self._needs_full = True
            if (
                code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                and name in self._seen
                and not any(self._seen[name].topic_id)
            ):
                # Without ids nothing else would tell the next topic of this name, with low epochs, from this one.
                del self._seen[name]
            return TopicView(name, told.topic_id, told.is_internal, (), code)
        seen = self._seen.get(name)
        if seen is None or seen.topic_id != told.topic_id:
            seen = self._seen[name] = _Seen(told.topic_id)
        old = self.view.entry(name)
        is_reliable = version >= RELIABLE_EPOCHS_VERSION
        in_order = sorted(told.partitions, key=lambda each: each.partition_index)
        partitions = tuple(self._partition(name, each, old, seen, is_reliable) for each in in_order)
        return TopicView(name, told.topic_id, told.is_internal, partitions)

    def _partition(
        self, topic: str, told: MetadataResponsePartition, old: TopicView | None, seen: _Seen, is_reliable: bool
    ) -> PartitionInfo:
        number, epoch = told.partition_index, told.leader_epoch if is_reliable else UNKNOWN_EPOCH
        if epoch >= 0:
            if epoch < seen.epochs.get(number, UNKNOWN_EPOCH):
                # An answer of a broker that lags behind. If this is all that is known, its leader is of no use.
                kept = old.by_number.get(number) if old is not None and old.topic_id == seen.topic_id else None
                return kept or partition_info(topic, told, NO_LEADER, UNKNOWN_EPOCH)
            seen.epochs[number] = epoch
        else:
            seen.epochs.pop(number, None)
        if told.error_code and ErrorCode.of(told.error_code).retriable:
            self._needs_full = True
        return partition_info(topic, told, told.leader_id, epoch)

    def _note_success(self, now_ms: int, is_partial: bool, is_same: bool) -> None:
        self._failure_count = 0
        self._trying_since_ms = None
        self.last_error = None
        if not is_partial:
            self._succeeded_at_ms = now_ms
            self.answered_full_request = self.full_request_count
        # Who asks again and again without learning anything, as for a topic that does not exist, asks less often.
        self._same_count = self._same_count + 1 if is_same else 0
        self._not_before_ms = now_ms + self._grown_ms(self._same_count)
        if self._new:
            self._not_before_ms = 0.0


def partition_info(
    topic: str, told: MetadataResponsePartition, leader_id: int | None = None, epoch: int | None = None
) -> PartitionInfo:
    """What an answer says of a partition; with another leader where the answer is not to be believed."""
    return PartitionInfo(
        topic,
        told.partition_index,
        told.leader_id if leader_id is None else leader_id,
        told.leader_epoch if epoch is None else epoch,
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        tuple(told.offline_replicas),
        ErrorCode.of(told.error_code),
    )
