"""Controllers and the metadata log."""

from __future__ import annotations

from barnabas.base.settings import HIGH, LOW, MEDIUM, NO_EFFECT, NOT_BUILT, Int, Long, Names, Settings, setting
from barnabas.base.settings.allowed import HOSTS_AND_PORTS, at_least, items_like
from barnabas.base.settings.units import DAY_MS, GIB, HOUR_MS, MIB


class QuorumSettings(Settings, title="Quorum", importance=HIGH):
    """The controllers and how they elect a leader."""

    controller_quorum_voters: Names = setting(
        "The fixed set of controllers: id@host:port.",
        default=(),
        allowed=items_like(r"[0-9]+@[^@]+:[0-9]+", "each id@host:port"),
    )
    controller_quorum_bootstrap_servers: Names = setting(
        "Where to find controllers whose set may change: host:port.", default=(), allowed=HOSTS_AND_PORTS
    )
    controller_quorum_election_timeout_ms: Int = setting(
        "How long a candidate waits for votes before it tries again.",
        default=1000,
        allowed=at_least(0),
    )
    controller_quorum_fetch_timeout_ms: Int = setting(
        "How long a follower goes without its leader before it calls an election.",
        default=2000,
        allowed=at_least(0),
    )
    controller_quorum_election_backoff_max_ms: Int = setting(
        "The longest pause between elections that found no winner.",
        default=1000,
        allowed=at_least(0),
    )
    controller_quorum_append_linger_ms: Int = setting(
        "How long the leader gathers records before it writes them.",
        default=25,
        allowed=at_least(0),
        importance=MEDIUM,
        state=NO_EFFECT,
    )
    controller_quorum_request_timeout_ms: Int = setting(
        "How long a controller waits for another to answer.",
        default=2000,
        allowed=at_least(0),
        importance=MEDIUM,
    )
    controller_quorum_retry_backoff_ms: Int = setting(
        "How long a controller waits before it asks again.",
        default=20,
        allowed=at_least(0),
        importance=LOW,
    )
    controller_quorum_auto_join_enable: bool = setting(
        "Whether a new controller joins the voters by itself.",
        default=False,
        importance=LOW,
        state=NOT_BUILT,
        refused=False,
    )
    controller_quorum_fetch_snapshot_max_bytes: Int = setting(
        "How many bytes of a snapshot one request fetches.",
        default=MIB,
        allowed=at_least(1),
        importance=LOW,
    )
    controller_quorum_fetch_max_bytes: Int = setting(
        "How many bytes of the metadata log one request fetches.",
        default=MIB,
        allowed=at_least(1),
        importance=LOW,
    )


class MetadataLogSettings(Settings, title="Metadata log", importance=HIGH):
    """The log in which the cluster writes down what it is."""

    metadata_log_dir: str | None = setting(
        "The directory of the metadata log; null means the first of log.dirs.", default=None
    )
    metadata_log_segment_bytes: Int = setting(
        "At which size a segment of the metadata log is closed.", default=GIB, allowed=at_least(8 * MIB)
    )
    metadata_log_segment_ms: Long = setting(
        "After how long a segment of the metadata log is closed.", default=7 * DAY_MS
    )
    metadata_max_retention_bytes: Long = setting(
        "How large the metadata log and its snapshots may grow before old ones go.", default=100 * MIB
    )
    metadata_max_retention_ms: Long = setting(
        "How long old parts of the metadata log and snapshots are kept.", default=7 * DAY_MS
    )
    metadata_log_max_record_bytes_between_snapshots: Long = setting(
        "After how many bytes of new records a snapshot is taken.", default=20 * MIB, allowed=at_least(1)
    )
    metadata_log_max_snapshot_interval_ms: Long = setting(
        "After how long a snapshot is taken if anything changed; 0 for never.", default=HOUR_MS, allowed=at_least(0)
    )
    metadata_max_idle_interval_ms: Int = setting(
        "How often an idle leader writes a record that says nothing; 0 for never.",
        default=500,
        allowed=at_least(0),
        importance=LOW,
    )
    internal_metadata_log_segment_bytes: Int | None = setting(
        "A segment size below the usual minimum, for tests.", default=None, importance=LOW, internal=True
    )
    internal_metadata_max_batch_size_in_bytes: Int = setting(
        "The largest batch of metadata records.", default=8 * MIB, importance=LOW, internal=True
    )
    internal_metadata_delete_delay_millis: Long = setting(
        "How long a deleted file of the metadata log stays.", default=60_000, importance=LOW, internal=True
    )
    controller_performance_sample_period_ms: Long = setting(
        "How often the controller reports how long its events take.",
        default=60_000,
        allowed=at_least(100),
        importance=MEDIUM,
        internal=True,
        state=NO_EFFECT,
    )
    controller_performance_always_log_threshold_ms: Long = setting(
        "From which duration on an event of the controller is always logged.",
        default=2000,
        allowed=at_least(0),
        importance=MEDIUM,
        internal=True,
        state=NO_EFFECT,
    )
