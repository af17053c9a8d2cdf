"""Whatever request fails, its answer can be encoded, and tells the error for everything that was asked."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.steps import at_once
from barnabas.broker.context import RequestContext
from barnabas.broker.error_responses import error_response
from barnabas.broker.handlers import BROKER
from barnabas.wire import Struct
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.schema import Array
from tests.broker.connections import FakeConnection, context_of
from tests.wire.values import build

SERVED = [ApiKey[name.upper()] for name in BROKER]
CODE = ErrorCode.UNKNOWN_SERVER_ERROR


def context(key: ApiKey, version: int) -> RequestContext:
    return context_of(key, version, FakeConnection())


def codes(struct: Struct, version: int) -> list[int]:
    """All error codes of a response that its version carries."""
    found = []
    for each in struct.FIELDS:
        value = getattr(struct, each.name)
        if version not in each.versions or value is None:
            continue
        if each.name == "error_code":
            found.append(value)
        elif isinstance(each.type, Array) and value and isinstance(value[0], Struct):
            found += [code for inner in value for code in codes(inner, version)]
    return found


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.camel_name)
def test_every_api_can_tell_that_it_failed(key: ApiKey) -> None:
    entry = api(key)
    random = Random(key)
    told = 0
    for version in entry.served:
        for _ in range(20):
            request = build(entry.request, version, entry.is_flexible(version), random)
            response = at_once(error_response(context(key, version), request, CODE, "it broke"))
            decoded = entry.response.decode(response.encode(version), version)
            assert set(codes(decoded, version)) <= {CODE}
            told += len(codes(decoded, version))
    assert told


def test_each_partition_that_was_to_be_written_gets_the_error() -> None:
    data = [PartitionProduceData(index=3, records=None), PartitionProduceData(index=5, records=None)]
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="clicks", partition_data=data)])
    response = at_once(error_response(context(ApiKey.PRODUCE, 9), request, CODE, None))
    (topic,) = response.responses  # type: ignore[attr-defined]
    assert topic.name == "clicks"
    assert [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses] == [
        (3, CODE, -1),
        (5, CODE, -1),
    ]


def test_an_old_offset_fetch_tells_the_error_per_partition() -> None:
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 4])])
    response = at_once(error_response(context(ApiKey.OFFSET_FETCH, 1), request, CODE, None))
    (topic,) = response.topics  # type: ignore[attr-defined]
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, CODE), (4, CODE)]
