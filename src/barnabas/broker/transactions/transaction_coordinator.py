"""The transaction coordinator of a node: the shards that it leads, and which of them a request is for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.broker.configs.config_resources import effective_topic_settings
from barnabas.broker.coordinators.coordinator_runner import Words, WriteSettings
from barnabas.broker.coordinators.coordinator_service import Answer, CoordinatorService
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.coordinator.transactions import describe
from barnabas.coordinator.transactions.config import TransactionCoordinatorConfig
from barnabas.coordinator.transactions.describe import ListFilter
from barnabas.coordinator.transactions.metadata import TransactionMetadata
from barnabas.coordinator.transactions.requests import TransactionCoordinatorRequest
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.coordinator.writer import PartitionWriter
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.features import TRANSACTION_VERSION
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.records.compression import Codec
from barnabas.wire.messages import describe_transactions, list_transactions
from barnabas.wire.schema import Struct

Q = TypeVar("Q")
R = TypeVar("R", bound=Struct)

_WORDS: Final = Words(logger("barnabas.transactions"), "transactional ids", "transaction metadata")
#: What comes in one turn of the event loop goes into one batch.
_ONE_TURN: Final = -1


class TransactionCoordinatorService(CoordinatorService[TransactionCoordinatorShard]):
    """All transactional ids that this node coordinates."""

    def __init__(
        self,
        settings: BrokerSettings,
        runtime: Runtime,
        node_id: int,
        writer: PartitionWriter,
        new_producer_id: Callable[[], int | None],
        markers: MarkerSender,
    ) -> None:
        partition_count = settings.transaction_state_log_num_partitions
        super().__init__(TRANSACTION_STATE, _WORDS, runtime, node_id, writer, partition_count)
        self._settings = settings
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._config = config_of(settings, self._image)

    # What a shard is

    def configure(self, settings: BrokerSettings) -> None:
        """Settings of the node have changed."""
        self._settings = settings
        self._config = config_of(settings, self._image)
        self._reconfigure()

    def apply(self, image: ClusterImage, delta: ClusterDelta) -> None:
        if delta.features_changed:
            # Before anything is loaded by it.
            self._config = config_of(self._settings, image)
        super().apply(image, delta)
        if delta.features_changed and not self._is_stopped:
            self._reconfigure()

    def _write_settings(self) -> WriteSettings:
        settings = self._settings
        return WriteSettings(
            append_linger_ms=_ONE_TURN,
            commit_timeout_ms=settings.request_timeout_ms,
            load_buffer_bytes=settings.transaction_state_log_load_buffer_size,
            codec=Codec.NONE,
            max_batch_bytes=effective_topic_settings(settings, self._image, TRANSACTION_STATE).max_message_bytes,
        )

    def _new_shard(self, index: int) -> TransactionCoordinatorShard:
        markers = self._markers.for_shard(lambda: self._runners[index].leader_epoch)
        shard = TransactionCoordinatorShard(self._config, self._new_producer_id, markers)
        markers.on_written = partial(self._complete, index, shard)
        return shard

    def _reconfigure_shard(self, shard: TransactionCoordinatorShard) -> None:
        shard.config = self._config

    def _complete(
        self, index: int, shard: TransactionCoordinatorShard, transactional_id: str, metadata: TransactionMetadata
    ) -> None:
        runner = self._runners.get(index)
        if runner is not None and runner.shard is shard:
            runner.submit_when_loaded(lambda loaded: loaded.complete(transactional_id, metadata))

    async def stop(self) -> None:
        await super().stop()
        await self._markers.stop()

    # Requests

    def submit(self, kind: TransactionCoordinatorRequest[Q, R], request: Q, version: int) -> Answer[R]:
        """Ask the coordinator of a transactional id for something, in a version of its API."""
        error = kind.refusal(self._config, request)
        if error is not ErrorCode.NONE:
            return kind.failed(request, error)
        runner = self._find(kind.transactional_id(request))
        if isinstance(runner, ErrorCode):
            return kind.failed(request, runner)
        return runner.submit(partial(kind.operation, request, version))

    # Reading: what is committed, in steps

    @property
    def id_count(self) -> int:
        return sum(len(runner.shard.stored) for runner in self._runners.values())

    def list_ids(self, wanted: ListFilter) -> Iterator[list_transactions.TransactionState | ErrorCode | None]:
        """The ids one after the other, None for each that was not asked for, or an error and no more."""
        now_ms = self._runtime.clock.now_ms()
        for shard in self._serving():
            if isinstance(shard, ErrorCode):
                yield shard
                return
            yield from describe.list_ids(shard, wanted, now_ms)
            yield None

    def described_bytes(self, transactional_id: str) -> int:
        """About how much a description has to say."""
        runner = self._find(transactional_id)
        shard = None if isinstance(runner, ErrorCode) else runner.shard
        return describe.described_bytes(shard, transactional_id)

    def describe(self, transactional_id: str) -> Generator[None, None, describe_transactions.TransactionState]:
        if not transactional_id:
            return describe.describe_failed(transactional_id, ErrorCode.INVALID_REQUEST)
        runner = self._find(transactional_id)
        if isinstance(runner, ErrorCode):
            return describe.describe_failed(transactional_id, runner)
        return (yield from describe.describe(runner.shard, transactional_id))


def config_of(settings: BrokerSettings, image: ClusterImage) -> TransactionCoordinatorConfig:
    """The settings that transactions live by, and the level that the cluster has agreed on."""
    return TransactionCoordinatorConfig(
        max_timeout_ms=settings.transaction_max_timeout_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        transaction_version=image.features.get(TRANSACTION_VERSION, 0),
    )
