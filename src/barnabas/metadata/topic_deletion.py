"""Deleting topics, by name or by id."""

from __future__ import annotations

from collections import Counter

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.image import ClusterImage, TopicImage
from barnabas.metadata.mutation_quotas import TakesQuota, unbounded
from barnabas.metadata.options import MAX_RECORDS_PER_REQUEST, ControllerOptions
from barnabas.metadata.topics import Allows, everything
from barnabas.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.stored.cluster_metadata import MetadataRecord, RemoveTopicRecord

_FIRST_WITH_DISABLED_ERROR = 3


def delete_topics(
    image: ClusterImage,
    options: ControllerOptions,
    request: DeleteTopicsRequest,
    version: int,
    *,
    may_describe: Allows = everything,
    may_delete: Allows = everything,
    take_quota: TakesQuota = unbounded,
) -> ControllerResult[DeleteTopicsResponse]:
    """Remove topics with all their settings. Their logs go when brokers see it."""
    asked = request.topics or [DeleteTopicState(name=name, topic_id=Uuid.ZERO) for name in request.topic_names]
    if not options.delete_topic_enable:
        # Clients of older versions do not know the error and would not tell it to anybody.
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= _FIRST_WITH_DISABLED_ERROR else ErrorCode.INVALID_REQUEST
        refusal = BrokerError(code, "deleting topics is switched off by delete.topic.enable")
        return ControllerResult(DeleteTopicsResponse(responses=[_refused(each, refusal) for each in asked]))
    deletion = _Deletion(image, asked, may_describe, may_delete)
    results = []
    records: list[MetadataRecord] = []
    for each in deletion.once_each():
        try:
            topic = deletion.find(each)
            if len(records) == MAX_RECORDS_PER_REQUEST:
                raise BrokerError(
                    ErrorCode.POLICY_VIOLATION,
                    f"one request may delete at most {MAX_RECORDS_PER_REQUEST} topics: ask in smaller steps",
                )
            take_quota(len(topic.partitions))
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
        except BrokerError as failure:
            results.append(_refused(each, failure, deletion.told_name(each, failure.code)))
    return ControllerResult(DeleteTopicsResponse(responses=results), records)


class _Deletion:
    """Which topics a request means. One that is named twice, also once by name and once by id, is not deleted."""

    def __init__(
        self, image: ClusterImage, asked: list[DeleteTopicState], may_describe: Allows, may_delete: Allows
    ) -> None:
        self.image = image
        self.asked = asked
        self.may_describe = may_describe
        self.may_delete = may_delete
        self._names = Counter(each.name for each in asked if each.name is not None)
        self._ids = Counter(each.topic_id for each in asked if each.name is None)

    def once_each(self) -> list[DeleteTopicState]:
        return list({(each.name, each.topic_id): each for each in self.asked}.values())

    def find(self, asked: DeleteTopicState) -> TopicImage:
        name, topic_id = asked.name, asked.topic_id
        if name is None:
            return self._by_id(topic_id)
        if topic_id != Uuid.ZERO:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"name the topic {name} by its name or its id, not by both")
        if self._names[name] > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the request names the topic {name} more than once")
        topic = self.image.topics.get(name)
        # Who may not even see it does not learn whether it is there.
        if not self.may_describe(name) or (topic is not None and not self.may_delete(name)):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not allowed to delete {name}")
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        if topic.topic_id in self._ids:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"the request names the topic {name} both by its name and by its id"
            )
        return topic

    def told_name(self, asked: DeleteTopicState, code: ErrorCode) -> str | None:
        """The name of a topic that somebody may see, asked to delete by its id, and may not delete."""
        topic = self.image.topic_by_id(asked.topic_id) if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else None
        return topic.name if topic is not None and self.may_describe(topic.name) else asked.name

    def _by_id(self, topic_id: Uuid) -> TopicImage:
        if topic_id == Uuid.ZERO:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a topic to delete has neither a name nor an id")
        if self._ids[topic_id] > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the request names the topic id {topic_id} more than once")
        topic = self.image.topic_by_id(topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
        if not self.may_describe(topic.name):
            # It has the id: the name is not told.
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not allowed to delete the topic {topic_id}")
        if not self.may_delete(topic.name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not allowed to delete {topic.name}")
        if topic.name in self._names:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"the request names the topic {topic.name} both by its name and by its id"
            )
        return topic


def _refused(asked: DeleteTopicState, failure: BrokerError, name: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name if asked.name is None else asked.name,
        topic_id=asked.topic_id,
        error_code=failure.code,
        error_message=failure.message or failure.code.text,
    )
