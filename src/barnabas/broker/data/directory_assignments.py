"""This broker tells the controller in which of its directories each replica lies (Kafka's AssignmentsManager).

With one directory the controller knows it beforehand; with several the broker chooses, and without this the controller
could not tell which partitions a failed disk takes along. A replica whose log turns out to be corrupt is told as lost,
as if it lay in a directory that has failed: others lead then, and it is not in sync any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.log_context import logger
from barnabas.broker.controller.controller_channel import ControllerChannel, broker_caller
from barnabas.metadata.features import DIRECTORY_ASSIGNMENT
from barnabas.metadata.image import LOST_DIRECTORY, ClusterImage
from barnabas.storage.errors import LogError
from barnabas.storage.manager import LogManager
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

_log = logger("barnabas.broker")

#: So many in one request, as with Kafka.
_MOST_PER_REQUEST: Final = 2250
_BACKOFF_MS: Final = 500


class _Replica(NamedTuple):
    topic_id: Uuid
    partition: int


class AssignmentsManager:
    """`directory_ids` are those of this broker's directories by path; `epoch` is -1 until it is registered."""

    def __init__(
        self,
        controller: ControllerChannel,
        node_id: int,
        epoch: Callable[[], int],
        logs: LogManager,
        directory_ids: Mapping[str, Uuid],
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._caller = broker_caller(node_id)
        self._epoch = epoch
        self._logs = logs
        self._directory_ids = directory_ids
        self._to_tell: dict[_Replica, Uuid] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def apply(self, image: ClusterImage, changed: Iterable[TopicPartition]) -> None:
        """Some partitions are as `image` says; those of them that lie elsewhere are told."""
        if (image.features.metadata_version or 0) < DIRECTORY_ASSIGNMENT:
            return
        for name in changed:
            state, topic = image.partition(*name), image.topics.get(name.topic)
            if state is None or topic is None or self._node_id not in state.replicas:
                continue
            replica, actual = _Replica(topic.topic_id, name.partition), self._directory_of(name)
            if actual is None and len(state.replicas) > 1 and self._logs.is_corrupt(name):
                actual = LOST_DIRECTORY  # whose only replica is lost has nobody else to turn to
            if actual is None or state.directory_of(self._node_id) == actual:
                self._to_tell.pop(replica, None)
            else:
                self._to_tell[replica] = actual
        if self._to_tell and self._task is None and not self._is_over:
            self._task = asyncio.get_running_loop().create_task(self._tell_all(), name="tell directories of replicas")

    def _directory_of(self, name: TopicPartition) -> Uuid | None:
        try:
            log = self._logs.get(name)
        except LogError:
            return None
        return None if log is None else self._directory_ids.get(self._logs.directory_of(log).path)

    @property
    def queued_count(self) -> int:
        return len(self._to_tell)

    async def _tell_all(self) -> None:
        try:
            while self._to_tell:
                if self._epoch() < 0 or not await self._tell_some():
                    await asyncio.sleep(_BACKOFF_MS / 1000)
        finally:
            self._task = None

    async def _tell_some(self) -> bool:
        """Whether the controller has heard of it."""
        told = dict(islice(self._to_tell.items(), _MOST_PER_REQUEST))
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id, broker_epoch=self._epoch(), directories=_by_directory(told)
        )
        try:
            version = api(ApiKey.ASSIGN_REPLICAS_TO_DIRS).served.high
            response = cast(AssignReplicasToDirsResponse, await self._controller.submit(request, version, self._caller))
            if response.error_code:
                raise BrokerError(ErrorCode.of(response.error_code))
        except BarnabasError as refusal:
            _log.info("the controller does not know yet where %d replicas lie: %s", len(told), refusal)
            return False
        for replica, directory in told.items():
            # What is refused is of partitions that have gone since, and what has moved since is told again.
            if self._to_tell.get(replica) == directory:
                del self._to_tell[replica]
        return True

    async def stop(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _by_directory(replicas: Mapping[_Replica, Uuid]) -> list[DirectoryData]:
    found: dict[Uuid, dict[Uuid, list[PartitionData]]] = {}
    for (topic_id, partition), directory in replicas.items():
        topics = found.setdefault(directory, {})
        topics.setdefault(topic_id, []).append(PartitionData(partition_index=partition))
    return [
        DirectoryData(
            id=directory,
            topics=[TopicData(topic_id=topic_id, partitions=those) for topic_id, those in topics.items()],
        )
        for directory, topics in found.items()
    ]
