"""Metadata (3): brokers, topics and who leads their partitions, from the image that this node has applied.

v0 asks for all topics with an empty list, later versions with null. v4 may forbid creating missing topics; v10 tells
topic ids, v12 also asks by them. A missing topic is answered with an error while it is being created; clients ask
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.broker.context import NOT_ASKED, RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Room, Steps, each_of
from barnabas.metadata.authorizer import (
    CLUSTER_NAME,
    AclOperation,
    Resource,
    authorized_operations,
    cluster_authorized_operations,
)
from barnabas.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.metadata.topic_names import is_internal, what_is_wrong_with_name
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API_KEY = ApiKey.METADATA
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0

_FIRST_WITH_LISTENER_ERROR: Final = 6
_FIRST_BY_ID: Final = 12
#: How many missing topics one request may bring about; whoever asks again gets the next.
_MOST_TO_CREATE: Final = 1000
#: What is answered at once: it takes less than a millisecond, and its answer a few kilobytes.
_FEW_TOPICS: Final = 16
_FEW_PARTITIONS: Final = 256
#: About what a topic and one of its partitions take in the answer.
_TOPIC_BYTES: Final = 96
_PARTITION_BYTES: Final = 48

T = TypeVar("T")


def handle(
    services: Services, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Steps[MetadataResponse]:
    answer = _Answer(services, context, request)
    if answer.is_small:
        return _response(services, context, request, answer, answer.few_topics())
    return _answer_in_steps(services, context, request, answer)


def _answer_in_steps(
    services: Services, context: RequestContext, request: MetadataRequest, answer: _Answer
) -> Steps[MetadataResponse]:
    topics = yield from answer.all_topics() if answer.asks_for_all else answer.asked_topics()
    return _response(services, context, request, answer, topics)


def _response(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    answer: _Answer,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    if answer.to_create:
        services.auto_topic_creation.create_topics(answer.to_create, context)
    cluster_operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        cluster_operations = cluster_authorized_operations(services.authorizer, context)
    return MetadataResponse(
        brokers=answer.brokers(),
        cluster_id=services.cluster_id,
        controller_id=answer.controller_id(),
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


class _Answer:
    """One response in the making."""

    def __init__(self, services: Services, context: RequestContext, request: MetadataRequest) -> None:
        self.services = services
        self.context = context
        self.request = request
        self.image: ClusterImage = services.metadata.image
        self.to_create: list[str] = []
        self._may_create_all: bool | None = None
        self._offline: dict[tuple[tuple[int, ...], tuple[Uuid, ...]], list[int]] = {}
        self.asks_for_all = request.topics is None or (context.version == 0 and not request.topics)
        #: Whether so little is asked for that it is answered at once.
        self.is_small = self._is_small()
        self.reachable = {
            broker.broker_id: endpoint
            for broker in self.image.brokers.values()
            if not broker.is_fenced and (endpoint := broker.endpoint(context.listener)) is not None
        }

    def _is_small(self) -> bool:
        topics, asked = self.image.topics, self.request.topics or ()
        if len(topics if self.asks_for_all else asked) > _FEW_TOPICS:
            return False
        if self.asks_for_all:
            return sum([len(topic.partitions) for topic in topics.values()]) <= _FEW_PARTITIONS
        found = [topics.get(each.name) for each in asked if each.name]
        found += [self.image.topic_by_id(each.topic_id) for each in asked if each.topic_id != Uuid.ZERO]
        return sum([len(topic.partitions) for topic in found if topic is not None]) <= _FEW_PARTITIONS

    def brokers(self) -> list[MetadataResponseBroker]:
        return [
            MetadataResponseBroker(
                node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=self.image.brokers[broker_id].rack
            )
            for broker_id, endpoint in sorted(self.reachable.items())
        ]

    def controller_id(self) -> int:
        """Any broker will do: it passes on what the controller must decide. Ours, since the client has found it."""
        return self.services.node_id if self.services.node_id in self.reachable else -1

    def few_topics(self) -> list[MetadataResponseTopic]:
        """At once, and as they are."""
        if self.asks_for_all:
            found = [topic for topic in self.image.topics.values() if self._may_see(topic)]
            return [self._described(topic, self._partitions(topic)) for topic in found]
        ids: dict[Uuid, None] = {}
        names: dict[str, None] = {}
        for each in self.request.topics or ():
            self._note_asked(each, ids, names)
        asked = [self._by_id(topic_id) for topic_id in ids] if ids else [self._by_name(name) for name in names]
        return [
            self._described(each, self._partitions(each)) if isinstance(each, TopicImage) else each for each in asked
        ]

    def _partitions(self, topic: TopicImage) -> list[MetadataResponsePartition]:
        return [self._partition(each) for each in enumerate(topic.partitions)]

    def _note_asked(self, asked: MetadataRequestTopic, ids: dict[Uuid, None], names: dict[str, None]) -> None:
        if self.context.version < _FIRST_BY_ID and (asked.name is None or asked.topic_id != Uuid.ZERO):
            message = f"Metadata v{self.context.version} asks by name, not by id"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        if asked.topic_id != Uuid.ZERO:
            ids[asked.topic_id] = None
        names[asked.name or ""] = None

    def all_topics(self) -> Steps[list[MetadataResponseTopic]]:
        shown: list[TopicImage] = []
        for topic in self.image.topics.values():
            yield None
            if self._may_see(topic):
                shown.append(topic)
        return (yield from self._in_pieces(shown, lambda topic: topic, self._expected_bytes))

    def asked_topics(self) -> Steps[list[MetadataResponseTopic]]:
        """Each once. As soon as one is asked for by id, all are, whatever names stand beside the ids."""
        ids: dict[Uuid, None] = {}
        names: dict[str, None] = {}
        for each in self.request.topics or ():
            yield None
            self._note_asked(each, ids, names)
        topics = self.image.topics
        if ids:
            return (
                yield from self._in_pieces(
                    ids, self._by_id, lambda topic_id: self._expected_bytes(self.image.topic_by_id(topic_id))
                )
            )
        return (
            yield from self._in_pieces(
                names, self._by_name, lambda name: self._expected_bytes(topics.get(name)) + len(name)
            )
        )

    def _in_pieces(
        self,
        asked: Collection[T],
        find: Callable[[T], TopicImage | MetadataResponseTopic],
        expected_bytes: Callable[[T], int],
    ) -> Steps[list[MetadataResponseTopic]]:
        """Each is encoded as soon as it is described: as objects very many would take a lot of memory."""
        yield Room(sum((yield from each_of(asked, expected_bytes))))
        pieces = []
        for each in asked:
            topic = find(each)
            if isinstance(topic, TopicImage):
                topic = self._described(topic, (yield from each_of(enumerate(topic.partitions), self._partition)))
            pieces.append(MetadataResponse.piece(topic, self.context.version))
            yield None
        return pieces

    @staticmethod
    def _expected_bytes(topic: TopicImage | None) -> int:
        if topic is None:
            return _TOPIC_BYTES
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        return _TOPIC_BYTES + len(topic.name) + len(topic.partitions) * (_PARTITION_BYTES + 8 * replicas)

    def _may_see(self, topic: TopicImage) -> bool:
        """Whoever asks for all topics did not ask for this one: it is left out without a word."""
        return self.services.authorizer.is_allowed(
            self.context, AclOperation.DESCRIBE, Resource.TOPIC, topic.name, log_if_denied=not self.asks_for_all
        )

    def _may_create(self, name: str) -> bool:
        is_allowed = self.services.authorizer.is_allowed
        if self._may_create_all is None:
            self._may_create_all = is_allowed(
                self.context, AclOperation.CREATE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False
            )
        return self._may_create_all or is_allowed(self.context, AclOperation.CREATE, Resource.TOPIC, name)

    def _by_id(self, topic_id: Uuid) -> TopicImage | MetadataResponseTopic:
        """The topic, or why it is not described."""
        topic = self.image.topic_by_id(topic_id)
        if topic is not None and self._may_see(topic):
            return topic
        code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id, partitions=[])

    def _by_name(self, name: str) -> TopicImage | MetadataResponseTopic:
        authorizer = self.services.authorizer
        if not authorizer.is_allowed(self.context, AclOperation.DESCRIBE, Resource.TOPIC, name):
            return self._denied(name)
        topic = self.image.topics.get(name)
        if topic is not None:
            return topic
        if what_is_wrong_with_name(name) is not None:
            return self._missing(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if self.request.allow_auto_topic_creation and self.services.settings.auto_create_topics_enable:
            if not self._may_create(name):
                return self._denied(name)
            if len(self.to_create) < _MOST_TO_CREATE:
                self.to_create.append(name)
        return self._missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @staticmethod
    def _denied(name: str) -> MetadataResponseTopic:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code, name=name, is_internal=False, partitions=[])

    def _missing(self, name: str, code: ErrorCode) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=code,
            name=name,
            is_internal=is_internal(name),
            partitions=[],
            topic_authorized_operations=self._operations(name),
        )

    def _described(self, topic: TopicImage, partitions: list[MetadataResponsePartition]) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=partitions,
            topic_authorized_operations=self._operations(topic.name),
        )

    def _operations(self, name: str) -> int:
        if not self.request.include_topic_authorized_operations:
            return NOT_ASKED
        return authorized_operations(self.services.authorizer, self.context, Resource.TOPIC, name)

    def _partition(self, numbered: tuple[int, PartitionImage]) -> MetadataResponsePartition:
        number, partition = numbered
        error = ErrorCode.NONE
        if partition.leader == NO_LEADER:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif partition.leader not in self.reachable:
            is_told = self.context.version >= _FIRST_WITH_LISTENER_ERROR
            error = ErrorCode.LISTENER_NOT_FOUND if is_told else ErrorCode.LEADER_NOT_AVAILABLE
        # Most partitions lie where others do.
        place = partition.replicas, partition.directories
        offline = self._offline.get(place)
        if offline is None:
            offline = self._offline[place] = self.image.offline_replicas(partition, self.reachable)
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=NO_LEADER if error else partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=offline,
        )
