"""Where the metadata log of a node lies, and what its settings say of it."""

from __future__ import annotations

from barnabas.base.ids import Uuid
from barnabas.broker.settings import BrokerSettings
from barnabas.raft.committed_offset import NOTE_FILE
from barnabas.raft.log_options import RaftLogOptions
from barnabas.storage.directories import LOCK_FILE, METADATA_PARTITION
from barnabas.storage.files import join


def metadata_log_directory(settings: BrokerSettings) -> str:
    return join(settings.metadata_dir, str(METADATA_PARTITION))


def metadata_log_options(settings: BrokerSettings, directory_id: Uuid | None) -> RaftLogOptions:
    # A directory of its own has a lock of its own; else it is one of those that the logs' owner has locked.
    is_alone = settings.metadata_dir not in settings.data_dirs
    return RaftLogOptions(
        segment_bytes=settings.internal_metadata_log_segment_bytes or settings.metadata_log_segment_bytes,
        segment_ms=settings.metadata_log_segment_ms,
        max_batch_bytes=settings.internal_metadata_max_batch_size_in_bytes,
        retention_bytes=settings.metadata_max_retention_bytes,
        retention_ms=settings.metadata_max_retention_ms,
        delete_delay_ms=settings.internal_metadata_delete_delay_millis,
        directory_id=directory_id,
        note_path=join(settings.metadata_dir, NOTE_FILE),
        lock_path=join(settings.metadata_dir, LOCK_FILE) if is_alone else None,
    )
