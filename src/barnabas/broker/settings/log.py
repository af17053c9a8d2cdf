"""Data on disk: directories, segments, retention, compaction, and what new topics look like."""

from __future__ import annotations

from barnabas.base.settings import (
    HIGH,
    LIVE,
    LOW,
    MEDIUM,
    NO_EFFECT,
    NOT_BUILT,
    READ_AT_START,
    Double,
    Int,
    Long,
    Names,
    Plugin,
    Settings,
    setting,
)
from barnabas.base.settings.allowed import GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL, at_least, between, items, one_of
from barnabas.base.settings.units import DAY_MS, GIB, HOUR_MS, KIB, LONG_MAX, MIB, MINUTE_MS


class LogDirectorySettings(Settings, title="Log directories", importance=HIGH):
    """Where data lies, and how it is brought back after a stop."""

    log_dir: Names = setting(
        "The directories of the data, used when log.dirs is not given.",
        default=("/tmp/kafka-logs",),
        allowed=items(at_least_one=True),
    )
    log_dirs: Names | None = setting(
        "The directories of the data; null means log.dir.",
        default=None,
        allowed=items(at_least_one=True),
        dependents=("log.dir",),
    )
    cordoned_log_dirs: Names = setting(
        "Directories that get no new partitions; * for all.", default=(), allowed=items(), importance=MEDIUM, state=LIVE
    )
    log_dir_failure_timeout_ms: Long = setting(
        "How long a node with a failed directory waits for the controller before it stops.",
        default=30_000,
        allowed=at_least(1),
        importance=LOW,
        state=NOT_BUILT,
        refused=False,
    )
    num_recovery_threads_per_data_dir: Int = setting(
        "Threads for recovery in Kafka; here a bounded pool is shared.", default=2, allowed=at_least(1), state=NO_EFFECT
    )
    log_initial_task_delay_ms: Long = setting(
        "How long after the start the periodic work on logs begins.",
        default=30_000,
        allowed=at_least(0),
        importance=LOW,
        internal=True,
    )


class LogSettings(Settings, title="Log", state=LIVE, importance=HIGH):
    """Defaults of topics that do not say otherwise, and the periodic work on logs."""

    log_segment_bytes: Int = setting(
        "At which size a segment is closed and a new one begun.", default=GIB, allowed=at_least(MIB)
    )
    log_roll_ms: Long | None = setting(
        "After how long a segment is closed even if small; null means log.roll.hours.",
        default=None,
        dependents=("log.roll.hours",),
    )
    log_roll_hours: Int = setting(
        "After how many hours a segment is closed even if small; log.roll.ms wins.",
        default=168,
        allowed=at_least(1),
        state=READ_AT_START,
    )
    log_roll_jitter_ms: Long | None = setting(
        "By how much at most rolling happens earlier, so that not all logs roll at once; null means the hours.",
        default=None,
        dependents=("log.roll.jitter.hours",),
    )
    log_roll_jitter_hours: Int = setting(
        "By how many hours at most rolling happens earlier; log.roll.jitter.ms wins.",
        default=0,
        allowed=at_least(0),
        state=READ_AT_START,
    )
    log_retention_ms: Long | None = setting(
        "How long data is kept, -1 for ever; null means log.retention.minutes.",
        default=None,
        dependents=("log.retention.minutes", "log.retention.hours"),
    )
    log_retention_minutes: Int | None = setting(
        "How many minutes data is kept, -1 for ever; null means log.retention.hours.", default=None, state=READ_AT_START
    )
    log_retention_hours: Int = setting(
        "How many hours data is kept, -1 for ever; the finer units win.", default=168, state=READ_AT_START
    )
    log_retention_bytes: Long = setting(
        "How large a partition may grow before its oldest segments go; -1 for no limit.", default=-1
    )
    log_retention_check_interval_ms: Long = setting(
        "How often logs are searched for segments to delete.",
        default=5 * MINUTE_MS,
        allowed=at_least(1),
        importance=MEDIUM,
        state=READ_AT_START,
    )
    log_cleanup_policy: Names = setting(
        "What happens to old data: it is deleted, compacted, both, or neither if empty.",
        default=("delete",),
        allowed=items("compact", "delete"),
        importance=MEDIUM,
    )
    log_index_size_max_bytes: Int = setting(
        "The largest size of an index file.", default=10 * MIB, allowed=at_least(4), importance=MEDIUM
    )
    log_index_interval_bytes: Int = setting(
        "After how many bytes of data the next index entry follows.",
        default=4 * KIB,
        allowed=at_least(0),
        importance=MEDIUM,
    )
    log_flush_interval_messages: Long = setting(
        "After how many records a partition is synced to disk.", default=LONG_MAX, allowed=at_least(1)
    )
    log_flush_interval_ms: Long | None = setting(
        "How long a record may stay unsynced; null means log.flush.scheduler.interval.ms.",
        default=None,
        dependents=("log.flush.scheduler.interval.ms",),
    )
    log_flush_scheduler_interval_ms: Long = setting(
        "How often logs are searched for data to sync.", default=LONG_MAX, state=READ_AT_START
    )
    log_flush_offset_checkpoint_interval_ms: Int = setting(
        "How often the recovery point of each log is written down.",
        default=60_000,
        allowed=at_least(0),
        state=READ_AT_START,
    )
    log_flush_start_offset_checkpoint_interval_ms: Int = setting(
        "How often the start offset of each log is written down.",
        default=60_000,
        allowed=at_least(0),
        state=READ_AT_START,
    )
    log_segment_delete_delay_ms: Long = setting(
        "How long the file of a deleted segment stays, for readers that still use it.",
        default=60_000,
        allowed=at_least(0),
    )
    log_preallocate: bool = setting(
        "Whether the space of a segment is reserved when it is created.",
        default=False,
        importance=MEDIUM,
        state=NO_EFFECT,
    )
    log_message_timestamp_type: str = setting(
        "Whether records keep the time of their producer or get the time of the append.",
        default="CreateTime",
        allowed=one_of("CreateTime", "LogAppendTime"),
        importance=MEDIUM,
    )
    log_message_timestamp_before_max_ms: Long = setting(
        "How far in the past the time of a record may lie.", default=LONG_MAX, allowed=at_least(0), importance=MEDIUM
    )
    log_message_timestamp_after_max_ms: Long = setting(
        "How far in the future the time of a record may lie.", default=HOUR_MS, allowed=at_least(0), importance=MEDIUM
    )
    message_max_bytes: Int = setting(
        "The largest record batch that is accepted.", default=1_048_588, allowed=at_least(0)
    )
    compression_type: str = setting(
        "How data is compressed on disk: as the producer did it, with one codec, or not at all.",
        default="producer",
        allowed=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_gzip_level: Int = setting(
        "Level for gzip; -1 for its own default.", default=-1, allowed=GZIP_LEVEL, importance=MEDIUM
    )
    compression_lz4_level: Int = setting("Level for lz4.", default=9, allowed=LZ4_LEVEL, importance=MEDIUM)
    compression_zstd_level: Int = setting("Level for zstd.", default=3, allowed=ZSTD_LEVEL, importance=MEDIUM)


class CleanerSettings(Settings, title="Log cleaner", state=LIVE):
    """Compaction."""

    log_cleaner_enable: bool = setting(
        "Whether the log cleaner runs; without it compacted topics grow without end.", default=True, state=READ_AT_START
    )
    log_cleaner_threads: Int = setting(
        "Threads of the cleaner in Kafka; here it runs in the shared pool.",
        default=1,
        allowed=at_least(0),
        state=NO_EFFECT,
    )
    log_cleaner_io_max_bytes_per_second: Double = setting(
        "How many bytes per second the cleaner may read and write together.",
        default=1.7976931348623157e308,
        state=NO_EFFECT,
    )
    log_cleaner_dedupe_buffer_size: Long = setting(
        "Memory for the table of keys, over all cleaner threads.", default=128 * MIB
    )
    log_cleaner_io_buffer_size: Int = setting(
        "Memory for reading and writing, over all cleaner threads.",
        default=512 * KIB,
        allowed=at_least(0),
        state=NO_EFFECT,
    )
    log_cleaner_io_buffer_load_factor: Double = setting(
        "How full the table of keys may get, as a share of its size.", default=0.9
    )
    log_cleaner_backoff_ms: Long = setting(
        "How long the cleaner rests when there is nothing to clean.", default=15_000, allowed=at_least(0)
    )
    log_cleaner_min_cleanable_ratio: Double = setting(
        "Which share of a log must be dirty before it is compacted.", default=0.5, allowed=between(0, 1)
    )
    log_cleaner_delete_retention_ms: Long = setting(
        "How long the marker of a deleted key stays in a compacted topic.", default=DAY_MS, allowed=at_least(0)
    )
    log_cleaner_min_compaction_lag_ms: Long = setting(
        "How long a record at least stays uncompacted.", default=0, allowed=at_least(0)
    )
    log_cleaner_max_compaction_lag_ms: Long = setting(
        "How long a record at most stays uncompacted.", default=LONG_MAX, allowed=at_least(1)
    )


class TopicCreationSettings(Settings, title="Topics", importance=HIGH):
    """How topics come and go."""

    auto_create_topics_enable: bool = setting("Whether asking for an unknown topic creates it.", default=True)
    delete_topic_enable: bool = setting("Whether topics can be deleted.", default=True)
    num_partitions: Int = setting(
        "How many partitions a topic gets when nobody says.", default=1, allowed=at_least(1), importance=MEDIUM
    )
    default_replication_factor: Int = setting(
        "How many replicas a partition gets when nobody says.", default=1, importance=MEDIUM
    )
    create_topic_policy_class_name: Plugin | None = setting(
        "A plug-in that may refuse the creation of a topic.",
        default=None,
        importance=LOW,
        state=NOT_BUILT,
        refused=True,
    )
    alter_config_policy_class_name: Plugin | None = setting(
        "A plug-in that may refuse a change of settings.", default=None, importance=LOW, state=NOT_BUILT, refused=True
    )
