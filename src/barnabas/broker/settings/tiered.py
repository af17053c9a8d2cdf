"""Tiered storage: not built."""

from __future__ import annotations

from barnabas.base.settings import LOW, NOT_BUILT, Double, Int, Long, Settings, setting
from barnabas.base.settings.allowed import NOT_EMPTY, at_least, between
from barnabas.base.settings.units import GIB, LONG_MAX, MINUTE_MS


class TieredStorageSettings(Settings, title="Tiered storage", state=NOT_BUILT, refused=False):
    """Old segments kept in another store."""

    remote_log_storage_system_enable: bool = setting(
        "Whether segments may be moved to a remote store.", default=False, refused=True
    )
    remote_log_storage_manager_class_name: str | None = setting(
        "The plug-in that talks to the remote store.", default=None, allowed=NOT_EMPTY
    )
    remote_log_storage_manager_class_path: str | None = setting("Where the classes of that plug-in lie.", default=None)
    remote_log_storage_manager_impl_prefix: str = setting(
        "The prefix of settings that are passed to that plug-in.", default="rsm.config.", allowed=NOT_EMPTY
    )
    remote_log_metadata_manager_class_name: str = setting(
        "The plug-in that remembers which segments are remote.",
        default="org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        allowed=NOT_EMPTY,
    )
    remote_log_metadata_manager_class_path: str | None = setting("Where the classes of that plug-in lie.", default=None)
    remote_log_metadata_manager_impl_prefix: str = setting(
        "The prefix of settings that are passed to that plug-in.", default="rlmm.config.", allowed=NOT_EMPTY
    )
    remote_log_metadata_manager_listener_name: str | None = setting(
        "The listener that the plug-in for metadata connects to.", default=None, allowed=NOT_EMPTY
    )
    remote_log_metadata_custom_metadata_max_bytes: Int = setting(
        "How much a plug-in may store with each remote segment.", default=128, allowed=at_least(0), importance=LOW
    )
    remote_log_index_file_cache_total_size_bytes: Long = setting(
        "How much disk the indexes of remote segments may take.", default=GIB, allowed=at_least(1), importance=LOW
    )
    remote_log_index_file_cache_ttl_ms: Long = setting(
        "How long an unused index of a remote segment stays; -1 for ever.",
        default=15 * MINUTE_MS,
        allowed=at_least(-1),
        importance=LOW,
        internal=True,
    )
    remote_log_manager_thread_pool_size: Int = setting("Threads that move segments.", default=2, allowed=at_least(1))
    remote_log_manager_copier_thread_pool_size: Int = setting(
        "Threads that copy segments to the remote store.", default=10, allowed=at_least(1)
    )
    remote_log_manager_expiration_thread_pool_size: Int = setting(
        "Threads that delete remote segments.", default=10, allowed=at_least(1)
    )
    remote_log_manager_follower_thread_pool_size: Int = setting(
        "Threads that follow remote segments on follower replicas.", default=2, allowed=at_least(1)
    )
    remote_log_manager_task_interval_ms: Long = setting(
        "How often segments to move are searched for.", default=30_000, allowed=at_least(1), importance=LOW
    )
    remote_log_manager_task_retry_backoff_ms: Long = setting(
        "How long a failed move waits at first.", default=500, allowed=at_least(1), importance=LOW, internal=True
    )
    remote_log_manager_task_retry_backoff_max_ms: Long = setting(
        "How long a failed move waits at most.", default=30_000, allowed=at_least(1), importance=LOW, internal=True
    )
    remote_log_manager_task_retry_jitter: Double = setting(
        "By which share the wait after a failed move varies.",
        default=0.2,
        allowed=between(0, 0.5),
        importance=LOW,
        internal=True,
    )
    remote_log_reader_threads: Int = setting(
        "Threads that read from the remote store.", default=10, allowed=at_least(1)
    )
    remote_log_reader_max_pending_tasks: Int = setting(
        "How many remote reads may wait.", default=100, allowed=at_least(1)
    )
    remote_log_manager_copy_max_bytes_per_second: Long = setting(
        "How fast segments may be copied.", default=LONG_MAX, allowed=at_least(1)
    )
    remote_log_manager_copy_quota_window_num: Int = setting(
        "How many samples the rate of copying is measured over.", default=11, allowed=at_least(1)
    )
    remote_log_manager_copy_quota_window_size_seconds: Int = setting(
        "How long one sample of that rate is.", default=1, allowed=at_least(1)
    )
    remote_log_manager_fetch_max_bytes_per_second: Long = setting(
        "How fast remote segments may be read.", default=LONG_MAX, allowed=at_least(1)
    )
    remote_log_manager_fetch_quota_window_num: Int = setting(
        "How many samples the rate of remote reading is measured over.", default=11, allowed=at_least(1)
    )
    remote_log_manager_fetch_quota_window_size_seconds: Int = setting(
        "How long one sample of that rate is.", default=1, allowed=at_least(1)
    )
    remote_fetch_max_wait_ms: Int = setting(
        "How long a fetch waits for the remote store.", default=500, allowed=at_least(1)
    )
    remote_list_offsets_request_timeout_ms: Long = setting(
        "How long a search for offsets waits for the remote store.", default=30_000, allowed=at_least(1)
    )
    log_local_retention_ms: Long = setting(
        "How long a segment stays local after it was copied; -2 means log.retention.ms.",
        default=-2,
        allowed=at_least(-2),
    )
    log_local_retention_bytes: Long = setting(
        "How much stays local after it was copied; -2 means log.retention.bytes.", default=-2, allowed=at_least(-2)
    )
    follower_fetch_last_tiered_offset_enable: bool = setting(
        "Whether a new follower starts at the last offset that is remote.", default=False
    )
