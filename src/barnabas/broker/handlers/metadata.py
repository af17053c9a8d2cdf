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
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource, authorized_operations
from barnabas.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.metadata.topic_names import is_internal, what_is_wrong_with_name
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.metadata import (
    MetadataRequest,
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
#: About what a topic and one of its partitions take in the answer.
_TOPIC_BYTES: Final = 96
_PARTITION_BYTES: Final = 48

T = TypeVar("T")


def handle(services: Services, context: RequestContext, request: MetadataRequest) -> Steps[MetadataResponse]:
    answer = _Answer(services, context, request)
    asks_for_all = request.topics is None or (context.version == 0 and not request.topics)
    topics = yield from answer.all_topics() if asks_for_all else answer.asked_topics()
    if answer.to_create:
        services.auto_topic_creation.create_topics(answer.to_create, context)
    cluster_operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        cluster_operations = authorized_operations(services.authorizer, context, Resource.CLUSTER, CLUSTER_NAME)
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
        self.reachable = {
            broker.broker_id: endpoint
            for broker in self.image.brokers.values()
            if not broker.is_fenced and (endpoint := broker.endpoint(context.listener)) is not None
        }

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

    def all_topics(self) -> Steps[list[MetadataResponseTopic]]:
        shown: list[TopicImage] = []
        for topic in self.image.topics.values():
            yield None
            if self._may(AclOperation.DESCRIBE, topic):
                shown.append(topic)
        return (yield from self._in_pieces(shown, self._described, self._expected_bytes))

    def asked_topics(self) -> Steps[list[MetadataResponseTopic]]:
        """Each once. As soon as one is asked for by id, all are, whatever names stand beside the ids."""
        ids: dict[Uuid, None] = {}
        names: dict[str, None] = {}
        for each in self.request.topics or ():
            yield None
            if self.context.version < _FIRST_BY_ID and (each.name is None or each.topic_id != Uuid.ZERO):
                message = f"Metadata v{self.context.version} asks by name, not by id"
                raise BrokerError(ErrorCode.INVALID_REQUEST, message)
            if each.topic_id != Uuid.ZERO:
                ids[each.topic_id] = None
            names[each.name or ""] = None
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
        describe: Callable[[T], Steps[MetadataResponseTopic]],
        expected_bytes: Callable[[T], int],
    ) -> Steps[list[MetadataResponseTopic]]:
        """Each is encoded as soon as it is described: as objects very many would take a lot of memory."""
        yield Room(sum((yield from each_of(asked, expected_bytes))))
        pieces = []
        for each in asked:
            topic = yield from describe(each)
            pieces.append(MetadataResponse.piece(topic, self.context.version))
            yield None
        return pieces

    @staticmethod
    def _expected_bytes(topic: TopicImage | None) -> int:
        if topic is None:
            return _TOPIC_BYTES
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        return _TOPIC_BYTES + len(topic.name) + len(topic.partitions) * (_PARTITION_BYTES + 8 * replicas)

    def _may(self, operation: AclOperation, topic: TopicImage) -> bool:
        return self.services.authorizer.is_allowed(self.context, operation, Resource.TOPIC, topic.name)

    def _by_id(self, topic_id: Uuid) -> Steps[MetadataResponseTopic]:
        topic = self.image.topic_by_id(topic_id)
        if topic is None or not self._may(AclOperation.DESCRIBE, topic):
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[]
            )
        return (yield from self._described(topic))

    def _by_name(self, name: str) -> Steps[MetadataResponseTopic]:
        authorizer = self.services.authorizer
        if not authorizer.is_allowed(self.context, AclOperation.DESCRIBE, Resource.TOPIC, name):
            return self._missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = self.image.topics.get(name)
        if topic is not None:
            return (yield from self._described(topic))
        if what_is_wrong_with_name(name) is not None:
            return self._missing(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if self.request.allow_auto_topic_creation and self.services.settings.auto_create_topics_enable:
            if not authorizer.is_allowed(self.context, AclOperation.CREATE, Resource.TOPIC, name):
                return self._missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if len(self.to_create) < _MOST_TO_CREATE:
                self.to_create.append(name)
        return self._missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _missing(self, name: str, code: ErrorCode) -> MetadataResponseTopic:
        return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name), partitions=[])

    def _described(self, topic: TopicImage) -> Steps[MetadataResponseTopic]:
        operations = NOT_ASKED
        if self.request.include_topic_authorized_operations:
            operations = authorized_operations(self.services.authorizer, self.context, Resource.TOPIC, topic.name)
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=(yield from each_of(enumerate(topic.partitions), self._partition)),
            topic_authorized_operations=operations,
        )

    def _partition(self, numbered: tuple[int, PartitionImage]) -> MetadataResponsePartition:
        number, partition = numbered
        error = ErrorCode.NONE
        if partition.leader == NO_LEADER:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif partition.leader not in self.reachable:
            is_told = self.context.version >= _FIRST_WITH_LISTENER_ERROR
            error = ErrorCode.LISTENER_NOT_FOUND if is_told else ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=NO_LEADER if error else partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=[each for each in partition.replicas if each not in self.reachable],
        )
