"""Topics and their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from barnabas.base.ids import Uuid
from barnabas.client.admin.configs import ConfigEntry, ConfigSource, setting_text
from barnabas.client.admin.driver import NOT_DONE, Part, RequestSpec, broker_error, raise_if_error, several
from barnabas.client.admin.routes import AnyNode, ControllerStrategy
from barnabas.client.admin.topic_descriptions import TopicDescription, describe
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

T = TypeVar("T", str, Uuid)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 leaves a number to the broker; `assignments` names the replicas of each partition."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created. Brokers before 2.4 tell only the name, those before 2.8 no id."""

    name: str
    topic_id: Uuid
    num_partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, ConfigEntry] | None


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic of the cluster."""

    name: str
    topic_id: Uuid
    is_internal: bool


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic shall have. `assignments` names the replicas of each that is added."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicCalls(Part):
    """Calls about topics."""

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics, and return what was made of each; with `validate_only`, what would be. A name alone leaves all
        else to the broker.

        Errors are TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, INVALID_CONFIG and others,
        as `BrokerError` for one topic and `KeyedError` for several.
        """
        call = await self._driver.begin("create_topics", timeout)
        wanted = [NewTopic(each) if isinstance(each, str) else each for each in several(topics)]
        by_name = {topic.name: topic for topic in wanted}

        def build(spec: RequestSpec[str]) -> CreateTopicsRequest:
            chosen = [by_name[name] for name in spec.keys]
            if spec.version < 4 and any(_leaves_numbers_open(topic) for topic in chosen):
                raise spec.unsupported(
                    CreateTopicsRequest,
                    "that leaves no numbers to the broker: give partitions and replication factor",
                )
            return CreateTopicsRequest(
                topics=[_creatable(topic) for topic in chosen],
                timeout_ms=spec.timeout_ms,
                validate_only=validate_only,
            )

        def read(
            spec: RequestSpec[str], response: CreateTopicsResponse
        ) -> Iterable[tuple[str, CreatedTopic | Exception]]:
            for each in response.topics:
                if each.error_code:
                    yield each.name, broker_error(each.error_code, each.error_message)
                else:
                    yield each.name, _created(each)

        return await self._driver.ask_each(
            call, by_name, ControllerStrategy(), CreateTopicsRequest, build, read, may_pass=NOT_DONE
        )

    async def delete_topics(self, topics: Iterable[str | Uuid], *, timeout: float | None = None) -> None:
        """Delete topics by name or id. UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID if there is no such topic.

        Brokers before 2.8 know no ids: `UnsupportedRequestError`.
        """
        call = await self._driver.begin("delete_topics", timeout)

        def build(spec: RequestSpec[str | Uuid]) -> DeleteTopicsRequest:
            if spec.version >= 6:
                states = [
                    DeleteTopicState(name=None, topic_id=each)
                    if isinstance(each, Uuid)
                    else DeleteTopicState(name=each, topic_id=Uuid.ZERO)
                    for each in spec.keys
                ]
                return DeleteTopicsRequest(topics=states, timeout_ms=spec.timeout_ms)
            names = [each for each in spec.keys if not isinstance(each, Uuid)]
            if len(names) < len(spec.keys):
                raise spec.unsupported(DeleteTopicsRequest, "topics can be deleted by id from 6 on; give their names")
            return DeleteTopicsRequest(topic_names=names, timeout_ms=spec.timeout_ms)

        def read(
            spec: RequestSpec[str | Uuid], response: DeleteTopicsResponse
        ) -> Iterable[tuple[str | Uuid, Exception | None]]:
            asked = set(spec.keys)
            for each in response.responses:
                error = broker_error(each.error_code, each.error_message) if each.error_code else None
                # The answer to an id also tells the name, where the caller may see it.
                yield each.topic_id if each.topic_id in asked else each.name or each.topic_id, error

        await self._driver.ask_each(
            call, topics, ControllerStrategy(), DeleteTopicsRequest, build, read, may_pass=NOT_DONE
        )

    async def list_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicListing]:
        """All topics that the caller may see, by name, sorted."""
        call = await self._driver.begin("list_topics", timeout)

        def read(response: MetadataResponse) -> dict[str, TopicListing]:
            raise_if_error(response.error_code)
            found = {
                each.name: TopicListing(each.name, each.topic_id, each.is_internal)
                for each in response.topics
                if each.name is not None and (include_internal or not each.is_internal)
            }
            return dict(sorted(found.items()))

        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return await self._driver.ask_one(call, AnyNode(), MetadataRequest, lambda spec: request, read)

    async def describe_topics(
        self,
        topics: Iterable[T],
        *,
        include_authorized_operations: bool = False,
        page_partitions: int = 2000,
        timeout: float | None = None,
    ) -> dict[T, TopicDescription]:
        """Topics by name or id with their partitions. UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID for one that does
        not exist; asking never creates it. One answer of a broker tells of at most `page_partitions`.
        """
        call = await self._driver.begin("describe_topics", timeout)
        return await describe(self._driver, call, list(several(topics)), include_authorized_operations, page_partitions)

    async def create_partitions(
        self,
        counts: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Add partitions to topics, up to a total count; INVALID_PARTITIONS if that is not more than there are.

        Records keep their places: the same key may go to another partition from then on.
        """
        call = await self._driver.begin("create_partitions", timeout)
        wanted = {name: NewPartitions(each) if isinstance(each, int) else each for name, each in counts.items()}

        def build(spec: RequestSpec[str]) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name, count=wanted[name].total_count, assignments=_added_replicas(wanted[name])
                    )
                    for name in spec.keys
                ],
                timeout_ms=spec.timeout_ms,
                validate_only=validate_only,
            )

        def read(spec: RequestSpec[str], response: CreatePartitionsResponse) -> Iterable[tuple[str, Exception | None]]:
            for each in response.results:
                yield each.name, broker_error(each.error_code, each.error_message) if each.error_code else None

        await self._driver.ask_each(
            call, wanted, ControllerStrategy(), CreatePartitionsRequest, build, read, may_pass=NOT_DONE
        )


def _leaves_numbers_open(topic: NewTopic) -> bool:
    return topic.assignments is None and (topic.num_partitions == -1 or topic.replication_factor == -1)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(broker_ids))
            for number, broker_ids in (topic.assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=name, value=setting_text(value)) for name, value in topic.configs.items()],
    )


def _created(each: CreatableTopicResult) -> CreatedTopic:
    is_told = each.num_partitions >= 0
    configs = {
        one.name: ConfigEntry(one.name, one.value, ConfigSource(one.config_source), one.is_sensitive, one.read_only)
        for one in each.configs or ()
    }
    return CreatedTopic(
        name=each.name,
        topic_id=each.topic_id,
        num_partitions=each.num_partitions if is_told else None,
        replication_factor=each.replication_factor if is_told else None,
        configs=configs if is_told and each.configs is not None else None,
    )


def _added_replicas(wanted: NewPartitions) -> list[CreatePartitionsAssignment] | None:
    if wanted.assignments is None:
        return None
    return [CreatePartitionsAssignment(broker_ids=list(broker_ids)) for broker_ids in wanted.assignments]
