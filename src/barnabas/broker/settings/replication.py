"""Leaders and followers."""

from __future__ import annotations

from barnabas.base.settings import HIGH, LIVE, MEDIUM, NO_EFFECT, NOT_BUILT, Int, Long, Settings, setting
from barnabas.base.settings.allowed import at_least
from barnabas.base.settings.units import KIB, MIB, MINUTE_MS


class ReplicationSettings(Settings, title="Replication", importance=HIGH):
    """How followers keep up and when a leader counts them."""

    min_insync_replicas: Int = setting(
        "How many replicas must have a record before acks=all is answered.", default=1, allowed=at_least(1), state=LIVE
    )
    unclean_leader_election_enable: bool = setting(
        "Whether a replica that is behind may lead when no other is left, which loses data.", default=False, state=LIVE
    )
    unclean_leader_election_interval_ms: Long = setting(
        "How often unclean elections are tried where they are allowed.",
        default=5 * MINUTE_MS,
        allowed=at_least(1),
        importance=MEDIUM,
        internal=True,
    )
    replica_lag_time_max_ms: Long = setting(
        "How long a follower may lag before it leaves the in-sync replicas.", default=30_000
    )
    replica_socket_timeout_ms: Int = setting("How long a fetch of a follower may take on the network.", default=30_000)
    replica_socket_receive_buffer_bytes: Int = setting(
        "Size of the receive buffer of a follower's socket.", default=64 * KIB, state=NO_EFFECT
    )
    replica_fetch_max_bytes: Int = setting(
        "How many bytes per partition a follower asks for.", default=MIB, allowed=at_least(0), importance=MEDIUM
    )
    replica_fetch_wait_max_ms: Int = setting(
        "How long the leader may hold a follower's fetch until data arrives.", default=500
    )
    replica_fetch_backoff_ms: Int = setting(
        "How long a follower waits after a failed fetch.", default=1000, allowed=at_least(0), importance=MEDIUM
    )
    replica_fetch_min_bytes: Int = setting(
        "How many bytes must be there before a follower's fetch is answered early.", default=1
    )
    replica_fetch_response_max_bytes: Int = setting(
        "How many bytes in all a follower asks for.", default=10 * MIB, allowed=at_least(0), importance=MEDIUM
    )
    replica_selector_class: str | None = setting(
        "A plug-in that picks the replica from which a consumer reads.",
        default=None,
        importance=MEDIUM,
        state=NOT_BUILT,
        refused=True,
    )
    replica_high_watermark_checkpoint_interval_ms: Long = setting(
        "How often high watermarks are written down.", default=5000
    )
    num_replica_fetchers: Int = setting(
        "How many connections, each with a fetch of its own, a follower has to each leader.",
        default=1,
        allowed=at_least(1),
        state=LIVE,
    )
    num_replica_alter_log_dirs_threads: Int | None = setting(
        "Threads that move replicas between directories in Kafka; null for one per directory.",
        default=None,
        state=NO_EFFECT,
    )
    auto_leader_rebalance_enable: bool = setting(
        "Whether leadership is moved back to preferred replicas.", default=True
    )
    leader_imbalance_check_interval_seconds: Long = setting(
        "How often the balance of leaders is checked.", default=300, allowed=at_least(1)
    )
    fetch_max_bytes: Int = setting(
        "The most bytes that one fetch response carries.", default=55 * MIB, allowed=at_least(KIB), importance=MEDIUM
    )
    max_incremental_fetch_session_cache_slots: Int = setting(
        "How many incremental fetch sessions are kept.", default=1000, allowed=at_least(0), importance=MEDIUM
    )
    fetch_purgatory_purge_interval_requests: Int = setting(
        "After how many finished fetches the waiting list is swept in Kafka; here entries leave at once.",
        default=1000,
        importance=MEDIUM,
        state=NO_EFFECT,
    )
    producer_purgatory_purge_interval_requests: Int = setting(
        "After how many finished produces the waiting list is swept in Kafka; here entries leave at once.",
        default=1000,
        importance=MEDIUM,
        state=NO_EFFECT,
    )
    delete_records_purgatory_purge_interval_requests: Int = setting(
        "After how many finished deletions the waiting list is swept in Kafka; here entries leave at once.",
        default=1,
        importance=MEDIUM,
        state=NO_EFFECT,
    )
