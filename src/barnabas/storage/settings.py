"""What can be set for a topic."""

from __future__ import annotations

from functools import cached_property

from barnabas.base.settings import (
    LIVE,
    NO_EFFECT,
    NOT_BUILT,
    Double,
    Int,
    Long,
    Names,
    Registry,
    Settings,
    rule,
    setting,
)
from barnabas.base.settings.allowed import (
    GZIP_LEVEL,
    LZ4_LEVEL,
    ZSTD_LEVEL,
    at_least,
    between,
    items,
    items_like,
    one_of,
)
from barnabas.base.settings.units import DAY_MS, GIB, HOUR_MS, KIB, LONG_MAX, MIB
from barnabas.storage._kernel.appending import AppendRules

THROTTLED_REPLICAS = items_like(r"[0-9]+:[0-9]+|\*", "each partition:broker, or *")


class TopicSettings(Settings, title="Topic", state=LIVE):
    """What can be set for each topic; a topic that says nothing follows the broker."""

    cleanup_policy: Names = setting(
        "What happens to old data: it is deleted, compacted, both, or neither if empty.",
        default=("delete",),
        allowed=items("compact", "delete"),
        server_default="log.cleanup.policy",
    )
    retention_ms: Long = setting(
        "How long data is kept; -1 for ever.",
        default=7 * DAY_MS,
        allowed=at_least(-1),
        server_default="log.retention.ms",
    )
    retention_bytes: Long = setting(
        "How large a partition may grow before its oldest segments go; -1 for no limit.",
        default=-1,
        server_default="log.retention.bytes",
    )
    segment_bytes: Int = setting(
        "At which size a segment is closed and a new one begun.",
        default=GIB,
        allowed=at_least(MIB),
        server_default="log.segment.bytes",
    )
    segment_ms: Long = setting(
        "After how long a segment is closed even if small.",
        default=7 * DAY_MS,
        allowed=at_least(1),
        server_default="log.roll.ms",
    )
    segment_jitter_ms: Long = setting(
        "By how much at most rolling happens earlier, so that not all logs roll at once.",
        default=0,
        allowed=at_least(0),
        server_default="log.roll.jitter.ms",
    )
    segment_index_bytes: Int = setting(
        "The largest size of an index file.",
        default=10 * MIB,
        allowed=at_least(4),
        server_default="log.index.size.max.bytes",
    )
    index_interval_bytes: Int = setting(
        "After how many bytes of data the next index entry follows.",
        default=4 * KIB,
        allowed=at_least(0),
        server_default="log.index.interval.bytes",
    )
    flush_messages: Long = setting(
        "After how many records a partition is synced to disk; 1 syncs every batch.",
        default=LONG_MAX,
        allowed=at_least(1),
        server_default="log.flush.interval.messages",
    )
    flush_ms: Long = setting(
        "How long a record may stay unsynced.",
        default=LONG_MAX,
        allowed=at_least(0),
        server_default="log.flush.interval.ms",
    )
    file_delete_delay_ms: Long = setting(
        "How long the file of a deleted segment stays, for readers that still use it.",
        default=60_000,
        allowed=at_least(0),
        server_default="log.segment.delete.delay.ms",
    )
    preallocate: bool = setting(
        "Whether the space of a segment is reserved when it is created.",
        default=False,
        state=NO_EFFECT,
        server_default="log.preallocate",
    )
    max_message_bytes: Int = setting(
        "The largest record batch that is accepted.",
        default=1_048_588,
        allowed=at_least(0),
        server_default="message.max.bytes",
    )
    message_timestamp_type: str = setting(
        "Whether records keep the time of their producer or get the time of the append.",
        default="CreateTime",
        allowed=one_of("CreateTime", "LogAppendTime"),
        server_default="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: Long = setting(
        "How far in the past the time of a record may lie.",
        default=LONG_MAX,
        allowed=at_least(0),
        server_default="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: Long = setting(
        "How far in the future the time of a record may lie.",
        default=HOUR_MS,
        allowed=at_least(0),
        server_default="log.message.timestamp.after.max.ms",
    )
    compression_type: str = setting(
        "How data is compressed on disk: as the producer did it, with one codec, or not at all.",
        default="producer",
        allowed=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        server_default="compression.type",
    )
    compression_gzip_level: Int = setting(
        "Level for gzip; -1 for its own default.",
        default=-1,
        allowed=GZIP_LEVEL,
        server_default="compression.gzip.level",
    )
    compression_lz4_level: Int = setting(
        "Level for lz4.", default=9, allowed=LZ4_LEVEL, server_default="compression.lz4.level"
    )
    compression_zstd_level: Int = setting(
        "Level for zstd.", default=3, allowed=ZSTD_LEVEL, server_default="compression.zstd.level"
    )
    min_cleanable_dirty_ratio: Double = setting(
        "Which share of a log must be dirty before it is compacted.",
        default=0.5,
        allowed=between(0, 1),
        server_default="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: Long = setting(
        "How long a record at least stays uncompacted.",
        default=0,
        allowed=at_least(0),
        server_default="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms: Long = setting(
        "How long a record at most stays uncompacted.",
        default=LONG_MAX,
        allowed=at_least(1),
        server_default="log.cleaner.max.compaction.lag.ms",
    )
    delete_retention_ms: Long = setting(
        "How long the marker of a deleted key stays in a compacted topic.",
        default=DAY_MS,
        allowed=at_least(0),
        server_default="log.cleaner.delete.retention.ms",
    )
    min_insync_replicas: Int = setting(
        "How many replicas must have a record before acks=all is answered.",
        default=1,
        allowed=at_least(1),
        server_default="min.insync.replicas",
    )
    unclean_leader_election_enable: bool = setting(
        "Whether a replica that is behind may lead when no other is left, which loses data.",
        default=False,
        server_default="unclean.leader.election.enable",
    )
    leader_replication_throttled_replicas: Names = setting(
        "Replicas whose leaders send slowly: partition:broker, or * for all.",
        default=(),
        allowed=THROTTLED_REPLICAS,
        state=NO_EFFECT,
    )
    follower_replication_throttled_replicas: Names = setting(
        "Replicas whose followers fetch slowly: partition:broker, or * for all.",
        default=(),
        allowed=THROTTLED_REPLICAS,
        state=NO_EFFECT,
    )
    remote_storage_enable: bool = setting(
        "Whether old segments move to a remote store.", default=False, state=NOT_BUILT
    )
    local_retention_ms: Long = setting(
        "How long a segment stays local after it was copied; -2 means retention.ms.",
        default=-2,
        allowed=at_least(-2),
        state=NOT_BUILT,
        refused=False,
        server_default="log.local.retention.ms",
    )
    local_retention_bytes: Long = setting(
        "How much stays local after it was copied; -2 means retention.bytes.",
        default=-2,
        allowed=at_least(-2),
        state=NOT_BUILT,
        refused=False,
        server_default="log.local.retention.bytes",
    )
    remote_log_copy_disable: bool = setting(
        "Whether copying to the remote store is stopped.", default=False, state=NOT_BUILT
    )
    remote_log_delete_on_disable: bool = setting(
        "Whether remote data goes when remote storage is switched off.", default=False, state=NOT_BUILT
    )
    internal_segment_bytes: Int | None = setting(
        "A segment size below the usual minimum, for tests.", default=None, internal=True
    )

    @cached_property
    def segment_limit_bytes(self) -> int:
        """How large a segment may grow."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @cached_property
    def append_rules(self) -> AppendRules:
        """All that most batches of producers have to meet."""
        return AppendRules(
            max_batch_bytes=min(self.max_message_bytes, self.segment_limit_bytes),
            keeps_form=self.compression_type == "producer" and self.message_timestamp_type == "CreateTime",
            needs_keys="compact" in self.cleanup_policy,
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            segment_limit_bytes=self.segment_limit_bytes,
            segment_ms=self.segment_ms,
            flush_messages=self.flush_messages,
        )

    @rule("min_compaction_lag_ms", "max_compaction_lag_ms")
    def _lags_leave_time_to_compact(self) -> str | None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            return "the shortest lag must not be longer than the longest"
        return None

    @rule("leader_replication_throttled_replicas")
    def _all_leaders_or_a_list(self) -> str | None:
        return _star_stands_alone(self.leader_replication_throttled_replicas)

    @rule("follower_replication_throttled_replicas")
    def _all_followers_or_a_list(self) -> str | None:
        return _star_stands_alone(self.follower_replication_throttled_replicas)


def _star_stands_alone(replicas: Names) -> str | None:
    return "* already means all replicas: give it alone" if "*" in replicas and len(replicas) > 1 else None


TOPIC_SETTINGS = Registry("topic", TopicSettings)
