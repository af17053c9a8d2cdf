"""A controller whose decisions are carried out: each record travels through its bytes and is replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

from barnabas.base.ids import Uuid
from barnabas.metadata.controller import Controller
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.features import ELR_VERSION, METADATA_VERSION, METADATA_VERSION_BUILT, SUPPORTED, encode_record
from barnabas.metadata.image import ClusterImage, PartitionImage
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.replay import ImageBuilder
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from barnabas.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.stored.cluster_metadata import FeatureLevelRecord, MetadataRecord

T = TypeVar("T")

CLUSTER_ID = "cluster-of-the-tests"


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def new_topic(
    name: str,
    partitions: int = -1,
    replicas: int = -1,
    *,
    assignment: Mapping[int, Sequence[int]] | Iterable[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    pairs = assignment.items() if isinstance(assignment, Mapping) else assignment
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=n, broker_ids=list(ids)) for n, ids in pairs],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def registration(broker_id: int, *, rack: str | None = None, life: int = 1, dirs: int = 1) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid(broker_id * 1000 + life),
        listeners=[Listener(name="PLAINTEXT", host="localhost", port=9092 + broker_id, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED.items()
        ],
        rack=rack,
        log_dirs=[uuid(broker_id * 1_000_000 + 1000 + number) for number in range(dirs)],
    )


class Cluster:
    """Brokers 1 to `brokers`, registered and unfenced."""

    def __init__(
        self,
        brokers: int = 0,
        *,
        seed: int = 1,
        racks: Sequence[str] = (),
        options: ControllerOptions | None = None,
        elr: bool = False,
    ) -> None:
        self.now_ms = 1_000_000
        self.log: list[MetadataRecord] = []
        self.controller = Controller(ClusterImage(), options or ControllerOptions(cluster_id=CLUSTER_ID), Random(seed))
        version = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_BUILT)
        kept = [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)] if elr else []
        self.do(self.controller.activate(1, 0, self.now_ms, [version, *kept]))
        for broker_id in range(1, brokers + 1):
            self.join(broker_id, rack=racks[(broker_id - 1) % len(racks)] if racks else None)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def do(self, outcome: ControllerResult[T]) -> T:
        """Write the records as one batch and replay what a reader would decode."""
        for record in outcome.records:
            decoded, _ = MetadataRecord.decode_framed(encode_record(record))
            assert decoded == record
            self.controller.replay(decoded, len(self.log))
            self.log.append(decoded)
        if outcome.records:
            self.controller.mark()
        return outcome.response

    def replayed(self) -> ClusterImage:
        """What a node makes of the log that starts now."""
        builder = ImageBuilder(ClusterImage())
        for record in self.log:
            builder.replay(record)
        return builder.build(self.image.offset, self.image.epoch)

    # Brokers

    def join(
        self, broker_id: int, *, rack: str | None = None, life: int = 1, previous_epoch: int = -1, version: int = 4
    ) -> None:
        request = registration(broker_id, rack=rack, life=life)
        request.previous_broker_epoch = previous_epoch
        self.do(self.controller.register_broker(request, version, self.now_ms))
        self.beat(broker_id)

    def silence(self, *broker_ids: int) -> None:
        """These are not heard of any more, until they are fenced; all others are."""
        self.now_ms += self.controller.options.broker_session_timeout_ms
        for broker_id, broker in self.image.brokers.items():
            if broker_id not in broker_ids and not broker.is_fenced:
                self.beat(broker_id)
        while self.do(self.controller.fence_expired_brokers(self.now_ms)) is not None:
            pass

    def restart(self, broker_id: int, *, life: int = 2, is_clean: bool) -> None:
        """A broker whose session has ended comes back."""
        epoch = self.image.brokers[broker_id].epoch
        self.join(broker_id, life=life, previous_epoch=epoch if is_clean else -1)

    def beat(self, broker_id: int, *, fence: bool = False, stop: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.image.offset,
            want_fence=fence,
            want_shut_down=stop,
        )
        return self.do(self.controller.heartbeat(request, self.now_ms))

    # Topics

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        return self.do(self.controller.create_topics(request)).topics

    def grow(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> CreatePartitionsTopicResult:
        assignments = None
        if assignment is not None:
            assignments = [CreatePartitionsAssignment(broker_ids=list(each)) for each in assignment]
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=assignments)],
            timeout_ms=1000,
            validate_only=validate_only,
        )
        return self.do(self.controller.create_partitions(request)).results[0]

    def delete(self, *topics: str | Uuid, version: int = 6) -> list[DeletableTopicResult]:
        states = [
            DeleteTopicState(name=None, topic_id=each)
            if isinstance(each, Uuid)
            else DeleteTopicState(name=each, topic_id=Uuid.ZERO)
            for each in topics
        ]
        request = DeleteTopicsRequest(topics=states, timeout_ms=1000)
        return self.do(self.controller.delete_topics(request, version)).responses

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        return self.image.topics[topic].partitions[number]
