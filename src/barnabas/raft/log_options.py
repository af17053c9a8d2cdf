"""What a replica of the log is told about its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.raft.batches import MAX_BATCH_BYTES
from barnabas.storage.directories import METADATA_PARTITION
from barnabas.storage.settings import TopicSettings

_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftLogOptions:
    """How the log is cut into segments, what of it is kept, and what belongs to it outside its directory.

    `note_path` is the file of the committed offset; None puts it beside the directory. `directory_id` stands in it: the
    note of another one does not count. `lock_path` is the lock to take; None if the owner of the directory holds it.
    Of `retention_bytes` (log and snapshots together) and `retention_ms`, -1 is no limit.
    """

    segment_bytes: int = 1024 * _MIB
    segment_ms: int = _WEEK_MS
    max_batch_bytes: int = MAX_BATCH_BYTES
    retention_bytes: int = 100 * _MIB
    retention_ms: int = _WEEK_MS
    delete_delay_ms: int = 60_000
    partition: TopicPartition = METADATA_PARTITION
    topic_id: Uuid = Uuid.METADATA_TOPIC
    directory_id: Uuid | None = None
    note_path: str | None = None
    lock_path: str | None = None
    #: False where safety from a loss of power is not wanted: then nothing is ever synced.
    sync: bool = True

    def as_topic_settings(self) -> TopicSettings:
        """The log in the terms of any other: nothing expires by itself, only what a snapshot covers goes."""
        return TopicSettings(
            internal_segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            retention_ms=-1,
            retention_bytes=-1,
            max_message_bytes=self.max_batch_bytes,
            file_delete_delay_ms=self.delete_delay_ms,
        )
