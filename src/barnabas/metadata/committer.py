"""Who makes metadata records last: a quorum of one, of three, or another store one day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.wire.stored.cluster_metadata import MetadataRecord


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """Records that will not be lost any more. Offsets count every record of the log, control records too."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    records: Sequence[MetadataRecord]


#: Told of each batch once, in the order of the log.
OnCommit = Callable[[CommittedBatch], None]


class MetadataCommitter(Protocol):
    """The controller's way to the log.

    Records of one call are committed all or none; they get consecutive offsets. The call returns before they are
    committed: the owner is told of that by its `OnCommit`. Raises `BrokerError` with NOT_CONTROLLER when another node
    leads.
    """

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Append the records; returns the offset of the last one."""
        ...
