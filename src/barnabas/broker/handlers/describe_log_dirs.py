"""DescribeLogDirs (35): the node's disks, and how much of each partition lies on them.

v3 has an error for the whole answer, v4 the size of the disks, v5 whether a disk takes new partitions (all do).
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Room, Steps
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.storage.directories import LogDirectory
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

API_KEY = ApiKey.DESCRIBE_LOG_DIRS
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0

#: Of memory for a partition in the answer.
_PARTITION_BYTES: Final = 320


def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> Steps[DescribeLogDirsResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    asked: set[TopicPartition] | None = None
    if request.topics is not None:
        asked = set()
        for each in request.topics:
            yield None
            for number in each.partitions:
                asked.add(TopicPartition(each.topic, number))
                yield None
    count = sum(len(directory.logs) for directory in services.logs.directories)
    yield Room(_PARTITION_BYTES * (count if asked is None else min(len(asked), count)))
    response = DescribeLogDirsResponse(results=[])
    for directory in services.logs.directories:
        response.results.append((yield from _describe(directory, asked)))
    return response


def _describe(directory: LogDirectory, asked: set[TopicPartition] | None) -> Steps[DescribeLogDirsResult]:
    if not directory.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition, log in list(directory.logs.items()):
        yield None
        if asked is None or partition in asked:
            topics.setdefault(partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=partition.partition,
                    partition_size=log.size_bytes,
                    offset_lag=max(log.high_watermark - log.log_end_offset, 0),
                    is_future_key=False,
                )
            )
    space = directory.space()
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )
