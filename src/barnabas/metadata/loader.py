"""From committed records to images of the cluster, and on to those who act by them.

Below both roles of a node lies one loader: brokers bring their partitions to its images, the controller takes over from
its newest one. A change counts as a whole: while a metadata transaction is open nobody is told of it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from barnabas.metadata.batches import decode_values
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.replay import ImageBuilder
from barnabas.raft.types import CommittedBatch, LeaderAndEpoch, Snapshot


class MetadataUpdate(NamedTuple):
    """One change, as it stands in the log."""

    image: ClusterImage
    delta: ClusterDelta
    size_bytes: int
    append_time_ms: int


class MetadataPublisher(Protocol):
    """Acts on what changed. Both must return at once; what takes longer is begun."""

    def on_metadata_update(self, update: MetadataUpdate) -> None: ...

    def on_controller_change(self, leader: LeaderAndEpoch) -> None: ...


class MetadataLoader:
    """The listener of the quorum. Publishers are told in the order in which they came, of what is committed later."""

    def __init__(self) -> None:
        self._image = ClusterImage()
        self._builder: ImageBuilder | None = None
        self._offset = -1
        self._epoch = -1
        self._size_bytes = 0
        self._publishers: list[MetadataPublisher] = []
        #: The newest batch, or what a snapshot says of it.
        self.last_append_ms = 0

    @property
    def offset(self) -> int:
        """Of the last record that was taken."""
        return self._offset

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record; `pending` tells whether that is within a transaction."""
        if self._builder is not None:
            self._image = self._builder.build(self._offset, self._epoch)
            self._builder = None
        return self._image

    def publish_to(self, publisher: MetadataPublisher) -> ClusterImage:
        """Tell it of all that changes from now on; what it should begin with."""
        self._publishers.append(publisher)
        return self.image

    # What the quorum calls

    def on_snapshot(self, snapshot: Snapshot) -> None:
        builder = ImageBuilder(ClusterImage())
        for record in decode_values(snapshot.values):
            builder.replay(record)
        self._offset, self._epoch = snapshot.snapshot_id.end_offset - 1, snapshot.snapshot_id.epoch
        self._builder = builder
        self._size_bytes = 0
        self.last_append_ms = snapshot.last_contained_ms

    def on_commit(self, batch: CommittedBatch) -> None:
        # While nobody listens, as during a start, the batches become one image.
        builder = self._builder = self._builder or ImageBuilder(self._image)
        for record in decode_values(batch.values, batch.base_offset):
            builder.replay(record)
        self._offset, self._epoch = batch.last_offset, batch.epoch
        self._size_bytes += batch.size_bytes
        self.last_append_ms = batch.append_time_ms
        if self._publishers and not builder.in_transaction:
            update = MetadataUpdate(self.image, builder.delta, self._size_bytes, batch.append_time_ms)
            self._size_bytes = 0
            for publisher in self._publishers:
                publisher.on_metadata_update(update)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        for publisher in self._publishers:
            publisher.on_controller_change(leader)
