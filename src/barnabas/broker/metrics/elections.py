"""Who was elected, seen in the metadata: leaders that were not in sync, and those from the eligible ones."""

from __future__ import annotations

from barnabas.metadata.image import NO_LEADER, ClusterImage
from barnabas.metadata.loader import MetadataUpdate
from barnabas.raft.types import LeaderAndEpoch


class ElectionWatch:
    """A publisher of the metadata. It counts from when it was made."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self.unclean_count = 0
        self.eligible_count = 0

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        before, self._image = self._image, update.image
        for name in update.delta.partitions_changed:
            old, new = before.partition(*name), update.image.partition(*name)
            if old is None or new is None or new.leader in (NO_LEADER, old.leader) or new.leader in old.isr:
                continue
            if new.leader in old.eligible_leader_replicas:
                self.eligible_count += 1
            else:
                self.unclean_count += 1

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        """Nothing: it does not matter who leads."""
