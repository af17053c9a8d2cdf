"""The controller: every decision about the cluster, without any waiting.

A request is turned into records and an answer. Whoever runs the controller writes the records to the log, replays them
here at once, and gives the answer when they are committed. So the next request sees what the last one decided, and when
another controller takes over, what was not committed is forgotten with `roll_back`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata import brokers, configs, producer_ids, topic_deletion, topics
from barnabas.metadata.committer import CommittedBatch
from barnabas.metadata.configs import AllowsResource, BrokerConfigRules, every_resource
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.features import LOWEST_METADATA_VERSION, METADATA_VERSION, METADATA_VERSION_BUILT
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.internal_topics import creatable_topic
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.outcome import Outcome
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.topics import Allows, everything
from barnabas.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.stored.cluster_metadata import (
    AbortTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)

__all__ = ["Controller", "Outcome"]


class _Decided(NamedTuple):
    """What a batch made of the state before it."""

    before: ClusterImage
    image: ClusterImage
    delta: ClusterDelta


class Controller:
    """The state of the cluster with all that was decided, committed or not, and what can be asked of it.

    `options` may be replaced when the settings of the node change. Methods raise `BrokerError` where the answer has no
    room for an error of its own.
    """

    def __init__(self, image: ClusterImage, options: ControllerOptions, randomness: Random) -> None:
        self.options = options
        self._randomness = randomness
        self._committed = image
        #: The state before the batch that is being replayed, and the newest.
        self._base = self._image = image
        self._builder: ImageBuilder | None = None
        self._last_offset = self._image.offset
        self._epoch = self._image.epoch
        #: Whether records were replayed since `_image` was made.
        self._is_image_old = False
        #: What became of batches that are not committed yet, oldest first.
        self._uncommitted: deque[_Decided] = deque()
        self._sessions = brokers.BrokerSessions()

    # State

    @property
    def image(self) -> ClusterImage:
        """The cluster as decided so far."""
        if self._builder is not None and self._is_image_old:
            self._image = self._builder.build(self._last_offset, self._epoch)
            self._is_image_old = False
        return self._image

    @property
    def committed_image(self) -> ClusterImage:
        """The cluster as far as it cannot be forgotten any more."""
        return self._committed

    @property
    def next_offset(self) -> int:
        """Where the next record will be written."""
        return self._last_offset + 1

    def replay(self, record: MetadataRecord, offset: int) -> None:
        """Apply a record that was written to the log. Nothing else changes the state."""
        if self._builder is None:
            self._base = self._image
            self._builder = ImageBuilder(self._base)
        self._builder.replay(record)
        self._is_image_old = True
        self._last_offset = offset
        if type(record) is RegisterBrokerRecord:
            self._sessions.registered(record.broker_id, record.broker_epoch, offset)

    def load(self, image: ClusterImage) -> None:
        """Begin with what the log and its snapshot say; all of it is committed."""
        self._committed = self._base = self._image = image
        self._builder = None
        self._is_image_old = False
        self._uncommitted.clear()
        self._last_offset, self._epoch = image.offset, image.epoch

    def activate(
        self, epoch: int, next_offset: int, now_ms: int, bootstrap: Sequence[MetadataRecord] = ()
    ) -> Outcome[None]:
        """This node leads the quorum from now on and will write at `next_offset`.

        A transaction that a former controller left open is aborted. An empty log begins with the bootstrap records.
        """
        self._epoch = epoch
        self._last_offset = next_offset - 1
        image = self.image
        self._sessions.begin(image, now_ms)
        records: list[MetadataRecord] = []
        if image.pending is not None:
            records.append(AbortTransactionRecord(reason="the controller that began it is gone"))
        version = image.features.metadata_version
        if version is None:
            if not any(isinstance(each, FeatureLevelRecord) and each.name == METADATA_VERSION for each in bootstrap):
                raise BrokerError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    "the metadata log is empty and no bootstrap record says which metadata.version it begins with: "
                    "format the directory first",
                )
            records += bootstrap
        elif not LOWEST_METADATA_VERSION <= version <= METADATA_VERSION_BUILT:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster is at metadata.version {version}; "
                f"{LOWEST_METADATA_VERSION} to {METADATA_VERSION_BUILT} are supported",
            )
        return Outcome(None, records)

    def mark(self) -> None:
        """A batch ends here: remember the state, so that `commit` can name it."""
        image = self.image
        if self._builder is not None:
            self._uncommitted.append(_Decided(self._base, image, self._builder.delta))
            self._builder = None

    def decided(self, base: ClusterImage, batch: CommittedBatch) -> tuple[ClusterImage, ClusterDelta] | None:
        """What `batch` makes of `base`, if that is known here: then whoever follows the log need not find out again.

        An offset and an epoch name one record of the log for ever, so the batch is the one that was decided here. What
        it did to the state counts for `base` only if it is the very state that it was done to.
        """
        for before, image, delta in self._uncommitted:
            if image.offset >= batch.base_offset:
                is_this = image.offset <= batch.last_offset and image.epoch == batch.epoch
                if is_this and base.has_state_of(before):
                    return replace(image, offset=batch.last_offset), delta
                return None
        return None

    def commit(self, offset: int) -> None:
        """All up to `offset` is committed."""
        while self._uncommitted and self._uncommitted[0].image.offset <= offset:
            self._committed = self._uncommitted.popleft().image

    def roll_back(self) -> None:
        """Another controller leads: forget what was not committed. Whoever waits for it must be told NOT_CONTROLLER."""
        self.load(self._committed)
        self._sessions = brokers.BrokerSessions()

    # Topics

    def create_topics(
        self, request: CreateTopicsRequest, *, may_create: Allows = everything, may_see_configs: Allows = everything
    ) -> Outcome[CreateTopicsResponse]:
        return topics.create_topics(
            self.image,
            self.options,
            self._randomness,
            request,
            may_create=may_create,
            may_see_configs=may_see_configs,
        )

    def create_missing_topics(self, names: Sequence[str]) -> Outcome[CreateTopicsResponse]:
        """Create topics on first use: internal ones as they must be, others as the defaults say."""
        wanted = [creatable_topic(name, self.options) for name in names]
        return self.create_topics(CreateTopicsRequest(topics=wanted))

    def create_partitions(
        self, request: CreatePartitionsRequest, *, may_alter: Allows = everything
    ) -> Outcome[CreatePartitionsResponse]:
        return topics.create_partitions(self.image, self._randomness, request, may_alter=may_alter)

    def delete_topics(
        self,
        request: DeleteTopicsRequest,
        version: int,
        *,
        may_describe: Allows = everything,
        may_delete: Allows = everything,
    ) -> Outcome[DeleteTopicsResponse]:
        return topic_deletion.delete_topics(
            self.image, self.options, request, version, may_describe=may_describe, may_delete=may_delete
        )

    # Settings

    def incremental_alter_configs(
        self,
        request: IncrementalAlterConfigsRequest,
        broker_rules: BrokerConfigRules,
        *,
        may_alter: AllowsResource = every_resource,
    ) -> Outcome[IncrementalAlterConfigsResponse]:
        return configs.incremental_alter_configs(self.image, self.options, request, broker_rules, may_alter=may_alter)

    def alter_configs(
        self,
        request: AlterConfigsRequest,
        broker_rules: BrokerConfigRules,
        *,
        may_alter: AllowsResource = every_resource,
    ) -> Outcome[AlterConfigsResponse]:
        return configs.alter_configs(self.image, self.options, request, broker_rules, may_alter=may_alter)

    # Brokers

    def register_broker(self, request: BrokerRegistrationRequest, now_ms: int) -> Outcome[BrokerRegistrationResponse]:
        return brokers.register_broker(self.image, self.options, self._sessions, request, self.next_offset, now_ms)

    def broker_is_gone(self, broker_id: int) -> None:
        """The last life of a broker has ended for certain, so nobody need wait for its session to end."""
        self._sessions.forget(broker_id)

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Outcome[BrokerHeartbeatResponse]:
        return brokers.heartbeat(self.image, self.options, self._sessions, request, self.next_offset, now_ms)

    def fence_expired_brokers(self, now_ms: int) -> Outcome[int | None]:
        """Fence one silent broker, if there is one; ask again until the answer is None."""
        return brokers.fence_expired_brokers(self.image, self.options, self._sessions, now_ms)

    def unregister_broker(self, broker_id: int) -> Outcome[None]:
        return brokers.unregister_broker(self.image, broker_id)

    # Producer ids

    def allocate_producer_ids(self, broker_id: int = -1, broker_epoch: int = -1) -> Outcome[tuple[int, int]]:
        """A block of ids that no producer has had: the first, and how many."""
        return producer_ids.allocate_producer_ids(self.image, broker_id, broker_epoch)
