"""Creating topics, and adding partitions to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.metadata.assignments import assignment_of_new_topic, check_assignment, partition_records
from barnabas.metadata.configs import MAX_CONFIGS_PER_RESOURCE
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.image import ClusterImage, ConfigResourceType
from barnabas.metadata.mutation_quotas import TakesQuota, unbounded
from barnabas.metadata.options import MAX_RECORDS_PER_REQUEST, ControllerOptions
from barnabas.metadata.placement import Placer
from barnabas.metadata.topic_configs import check_topic_configs, effective_topic_configs
from barnabas.metadata.topic_names import CLUSTER_METADATA, collision_key, what_is_wrong_with_name
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.stored.cluster_metadata import ConfigRecord, MetadataRecord, TopicRecord

#: Whether the one who asks may do something to the topic of this name.
Allows = Callable[[str], bool]


def everything(name: str) -> bool:
    return True


def create_topics(
    image: ClusterImage,
    options: ControllerOptions,
    randomness: Random,
    request: CreateTopicsRequest,
    *,
    may_create: Allows = everything,
    may_see_configs: Allows = everything,
    take_quota: TakesQuota = unbounded,
) -> ControllerResult[CreateTopicsResponse]:
    """Each topic is created or refused by itself, but the records of all are one batch.

    As in Kafka, a request to validate is answered with the id that the topic might have got.
    """
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    partitions = sum(_asked_partitions(topic, options) for topic in request.topics)
    if partitions > MAX_RECORDS_PER_REQUEST:
        refusal = _too_large("creating these topics", partitions)
        return ControllerResult(CreateTopicsResponse(topics=[_refused(name, refusal) for name in names]))
    creation = _Creation(image, options, randomness, may_see_configs, take_quota)
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for topic in _once_each(request.topics):
        try:
            _check_once(topic.name, counts)
            if topic.name == CLUSTER_METADATA:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"{topic.name} belongs to the controllers")
            if not may_create(topic.name):
                raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not allowed to create {topic.name}")
            results.append(creation.create(topic))
        except BrokerError as failure:
            results.append(_refused(topic.name, failure))
    if len(creation.records) > MAX_RECORDS_PER_REQUEST:
        refusal = _too_large("creating these topics", len(creation.records))
        return ControllerResult(CreateTopicsResponse(topics=[_refused(name, refusal) for name in names]))
    return ControllerResult(CreateTopicsResponse(topics=results), [] if request.validate_only else creation.records)


def create_partitions(
    image: ClusterImage,
    randomness: Random,
    request: CreatePartitionsRequest,
    *,
    may_alter: Allows = everything,
    take_quota: TakesQuota = unbounded,
) -> ControllerResult[CreatePartitionsResponse]:
    """Topics can only grow. Records stay where they are, so keys may go to other partitions from now on."""
    counts = Counter(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results = []
    for topic in _once_each(request.topics):
        try:
            _check_once(topic.name, counts)
            if not may_alter(topic.name):
                raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not allowed to alter {topic.name}")
            added = _added_partitions(image, randomness, topic, MAX_RECORDS_PER_REQUEST - len(records))
            take_quota(len(added))
            records += added
            results.append(CreatePartitionsTopicResult(name=topic.name))
        except BrokerError as failure:
            results.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=failure.code, error_message=failure.message or failure.code.text
                )
            )
    return ControllerResult(CreatePartitionsResponse(results=results), [] if request.validate_only else records)


class _Creation:
    """The topics of one request in the making."""

    def __init__(
        self,
        image: ClusterImage,
        options: ControllerOptions,
        randomness: Random,
        may_see_configs: Allows,
        take_quota: TakesQuota,
    ) -> None:
        self.image = image
        self.options = options
        self.randomness = randomness
        self.may_see_configs = may_see_configs
        self.take_quota = take_quota
        self.records: list[MetadataRecord] = []

    def create(self, topic: CreatableTopic) -> CreatableTopicResult:
        self._check_name(topic.name)
        configs = self._configs(topic)
        replicas = assignment_of_new_topic(self.image, topic) if topic.assignments else self._placement(topic)
        self.take_quota(len(replicas))
        topic_id = self._new_topic_id()
        self.records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        # Before the partitions, so that whoever creates their logs knows the settings.
        self.records += [
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
            for name, value in configs.items()
        ]
        self.records += partition_records(self.image, topic_id, 0, replicas)
        result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None)
        if not self.may_see_configs(topic.name):
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return result
        result.num_partitions = len(replicas)
        result.replication_factor = len(replicas[0])
        result.configs = self._effective(configs) if configs else self._defaults
        return result

    @cached_property
    def _defaults(self) -> list[CreatableTopicConfigs]:
        """The same for all topics of the request that say nothing, and there may be many."""
        return self._effective({})

    def _effective(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=each.name, value=each.value, read_only=False, config_source=each.source, is_sensitive=False
            )
            for each in effective_topic_configs(configs, self.options)
        ]

    def _check_name(self, name: str) -> None:
        if name in self.image.topics:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the topic {name} exists already")
        problem = what_is_wrong_with_name(name)
        if problem is not None:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        others = self.image.topics.colliding.get(collision_key(name))
        if others:
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the name {name} collides with the topic {others[0]}: "
                "metrics write '.' as '_', so it would be one name",
            )

    def _configs(self, topic: CreatableTopic) -> dict[str, str]:
        if len(topic.configs) > MAX_CONFIGS_PER_RESOURCE:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"topic {topic.name}: more than {MAX_CONFIGS_PER_RESOURCE} settings are named",
            )
        configs = {each.name: each.value for each in topic.configs if each.value is not None}
        empty = [each.name for each in topic.configs if each.value is None]
        if empty:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG, f"topic {topic.name}: {', '.join(empty)} cannot be null; leave it out instead"
            )
        check_topic_configs(topic.name, configs, self.options)
        return configs

    def _placement(self, topic: CreatableTopic) -> list[list[int]]:
        factor, count = topic.replication_factor, topic.num_partitions
        if factor < -1 or factor == 0:
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"topic {topic.name}: a replication factor of {factor} is not possible; "
                "give at least 1, or -1 for the default",
            )
        if count < -1 or count == 0:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name}: {count} partitions are not possible; give at least 1, or -1 for the default",
            )
        placer = Placer(self.image.brokers, self.randomness)
        factor = self.options.default_replication_factor if factor == -1 else factor
        count = self.options.num_partitions if count == -1 else count
        return [placer.place(factor) for _ in range(count)]

    def _new_topic_id(self) -> Uuid:
        while True:
            topic_id = Uuid.random(self.randomness)
            if topic_id not in self.image.topic_names:
                return topic_id


def _asked_partitions(topic: CreatableTopic, options: ControllerOptions) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return options.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def _added_partitions(
    image: ClusterImage, randomness: Random, topic: CreatePartitionsTopic, room: int
) -> list[MetadataRecord]:
    existing = image.topics.get(topic.name)
    if existing is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}")
    first = len(existing.partitions)
    added = topic.count - first
    if added <= 0:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {first} partitions; {topic.count} would not be more, and it can only grow",
        )
    if topic.assignments is not None and len(topic.assignments) != added:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name} gets {added} more partitions, but {len(topic.assignments)} are assigned",
        )
    if added > room:
        raise _too_large("adding these partitions", added)
    replication_factor = len(existing.partitions[0].replicas)
    if topic.assignments is None:
        placer = Placer(image.brokers, randomness)
        replicas = [placer.place(replication_factor) for _ in range(added)]
    else:
        replicas = [each.broker_ids for each in topic.assignments]
        check_assignment(image, topic.name, first, replicas, replication_factor)
    return partition_records(image, existing.topic_id, first, replicas)


_Topic = TypeVar("_Topic", CreatableTopic, CreatePartitionsTopic)


def _once_each(topics: Sequence[_Topic]) -> list[_Topic]:
    return list({topic.name: topic for topic in topics}.values())


def _check_once(name: str, counts: Counter[str]) -> None:
    if counts[name] > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"the request names the topic {name!r} {counts[name]} times")


def _too_large(what: str, count: int) -> BrokerError:
    return BrokerError(
        ErrorCode.POLICY_VIOLATION,
        f"{what} needs more records ({count}) than one request may ({MAX_RECORDS_PER_REQUEST}): ask in smaller steps",
    )


def _refused(name: str, failure: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=failure.code, error_message=failure.message or failure.code.text, configs=[]
    )
