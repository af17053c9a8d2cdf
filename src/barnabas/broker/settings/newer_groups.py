"""Share groups and streams groups: declared so that their names are known, not built."""

from __future__ import annotations

from barnabas.base.settings import HIGH, LOW, MEDIUM, NOT_BUILT, Int, Names, Settings, Short, setting
from barnabas.base.settings.allowed import at_least, between, items
from barnabas.base.settings.units import HOUR_MS, INT_MAX, KIB, MIB, MINUTE_MS
from barnabas.broker.settings.groups import heartbeats_fit, in_bounds


class ShareGroupSettings(Settings, title="Share groups", state=NOT_BUILT, refused=False):
    """Groups whose members take records one by one, like a queue."""

    group_share_session_timeout_ms: Int = setting(
        "After how much silence a member is removed.", default=45_000, allowed=at_least(1)
    )
    group_share_min_session_timeout_ms: Int = setting(
        "The shortest session timeout that a group may be given.", default=45_000, allowed=at_least(1)
    )
    group_share_max_session_timeout_ms: Int = setting(
        "The longest session timeout that a group may be given.", default=60_000, allowed=at_least(1)
    )
    group_share_heartbeat_interval_ms: Int = setting(
        "How often members are told to report.", default=5000, allowed=at_least(1)
    )
    group_share_min_heartbeat_interval_ms: Int = setting(
        "The shortest heartbeat interval that a group may be given.", default=5000, allowed=at_least(1)
    )
    group_share_max_heartbeat_interval_ms: Int = setting(
        "The longest heartbeat interval that a group may be given.", default=15_000, allowed=at_least(1)
    )
    group_share_max_size: Int = setting("How many members a group may have.", default=200, allowed=between(1, 1000))
    group_share_assignors: Names = setting(
        "The assignor of share groups; exactly one.", default=("simple",), allowed=items(at_least_one=True)
    )
    group_share_assignment_interval_ms: Int = setting(
        "How long at least lies between two assignments of a group.", default=1000, allowed=at_least(0)
    )
    group_share_min_assignment_interval_ms: Int = setting(
        "The shortest assignment interval that a group may be given.", default=0, allowed=at_least(0)
    )
    group_share_max_assignment_interval_ms: Int = setting(
        "The longest assignment interval that a group may be given.", default=15_000, allowed=at_least(0)
    )
    group_share_initialize_retry_interval_ms: Int = setting(
        "How long to wait before the state of a share group is initialised again.",
        default=30_000,
        allowed=at_least(1),
        importance=LOW,
        internal=True,
    )
    group_share_delivery_count_limit: Int = setting(
        "How often a record is delivered before it is given up.", default=5, allowed=between(2, 10)
    )
    group_share_min_delivery_count_limit: Int = setting(
        "The lowest delivery limit that a group may be given.", default=2, allowed=between(2, 5)
    )
    group_share_max_delivery_count_limit: Int = setting(
        "The highest delivery limit that a group may be given.", default=10, allowed=between(5, 25)
    )
    group_share_record_lock_duration_ms: Int = setting(
        "How long a delivered record is reserved for its member.", default=30_000, allowed=between(1000, HOUR_MS)
    )
    group_share_min_record_lock_duration_ms: Int = setting(
        "The shortest reservation that a group may be given.", default=15_000, allowed=between(1000, 30_000)
    )
    group_share_max_record_lock_duration_ms: Int = setting(
        "The longest reservation that a group may be given.", default=60_000, allowed=between(30_000, HOUR_MS)
    )
    group_share_partition_max_record_locks: Int = setting(
        "How many records of a partition may be reserved at a time.", default=2000, allowed=between(100, 10_000)
    )
    group_share_min_partition_max_record_locks: Int = setting(
        "The lowest number of reservations that a group may be given.", default=100, allowed=between(100, 2000)
    )
    group_share_max_partition_max_record_locks: Int = setting(
        "The highest number of reservations that a group may be given.", default=4000, allowed=between(2000, 10_000)
    )
    group_share_max_share_sessions: Int = setting(
        "How many share sessions a broker keeps.", default=2000, allowed=at_least(1)
    )
    group_share_persister_class_name: str = setting(
        "The plug-in that keeps the state of share groups.",
        default="org.apache.kafka.server.share.persister.DefaultStatePersister",
        internal=True,
    )
    share_fetch_purgatory_purge_interval_requests: Int = setting(
        "After how many finished share fetches the waiting list is swept.", default=1000
    )

    # Names differ from those of the other kinds of groups: all rules meet in one class.
    _share_session_timeout_ms_in_bounds = in_bounds("group_share", "session_timeout_ms")
    _share_heartbeat_interval_ms_in_bounds = in_bounds("group_share", "heartbeat_interval_ms")
    _share_assignment_interval_ms_in_bounds = in_bounds("group_share", "assignment_interval_ms")
    _share_delivery_count_limit_in_bounds = in_bounds("group_share", "delivery_count_limit")
    _share_record_lock_duration_ms_in_bounds = in_bounds("group_share", "record_lock_duration_ms")
    _share_partition_max_record_locks_in_bounds = in_bounds("group_share", "partition_max_record_locks")
    _share_heartbeats_fit_into_a_session = heartbeats_fit("group_share")


class ShareCoordinatorSettings(Settings, title="Share coordinator", state=NOT_BUILT, importance=HIGH, refused=False):
    """The topic that keeps the state of share groups."""

    share_coordinator_state_topic_num_partitions: Int = setting(
        "How many partitions the state topic has; it must never change.", default=50, allowed=at_least(1)
    )
    share_coordinator_state_topic_replication_factor: Short = setting(
        "How many replicas the state topic has.", default=3, allowed=at_least(1)
    )
    share_coordinator_state_topic_min_isr: Short = setting(
        "How many replicas of the state topic must have a record.", default=2, allowed=at_least(1)
    )
    share_coordinator_state_topic_segment_bytes: Int = setting(
        "The segment size of the state topic.", default=100 * MIB, allowed=at_least(1)
    )
    share_coordinator_state_topic_compression_codec: Int = setting(
        "Codec of the state topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", default=0, allowed=between(0, 4)
    )
    share_coordinator_state_topic_prune_interval_ms: Int = setting(
        "How often records that nobody needs are removed from the state topic.",
        default=5 * MINUTE_MS,
        allowed=at_least(1),
        importance=LOW,
        internal=True,
    )
    share_coordinator_threads: Int = setting(
        "Threads of the share coordinator.", default=1, allowed=at_least(1), importance=MEDIUM
    )
    share_coordinator_snapshot_update_records_per_snapshot: Int = setting(
        "After how many updates the next snapshot follows.", default=500, allowed=between(0, 500), importance=MEDIUM
    )
    share_coordinator_load_buffer_size: Int = setting(
        "How many bytes are read at a time when state is loaded.", default=5 * MIB, allowed=at_least(1)
    )
    share_coordinator_append_linger_ms: Int = setting(
        "How long the coordinator gathers records before it writes them; -1 adapts to the load.",
        default=-1,
        allowed=at_least(-1),
        importance=MEDIUM,
    )
    share_coordinator_write_timeout_ms: Int = setting(
        "How long a write waits for the replicas of the state topic.", default=5000, allowed=at_least(1)
    )
    share_coordinator_cold_partition_snapshot_interval_ms: Int = setting(
        "How often quiet partitions get a snapshot.",
        default=5 * MINUTE_MS,
        allowed=at_least(1),
        importance=LOW,
        internal=True,
    )
    share_coordinator_cached_buffer_max_bytes: Int = setting(
        "How large a write buffer may be and still be kept for reuse.",
        default=1_048_588,
        allowed=at_least(512 * KIB),
        importance=MEDIUM,
    )


class StreamsGroupSettings(Settings, title="Streams groups", state=NOT_BUILT, refused=False):
    """Groups of Kafka Streams whose tasks the broker assigns."""

    group_streams_session_timeout_ms: Int = setting(
        "After how much silence a member is removed.", default=45_000, allowed=at_least(1)
    )
    group_streams_min_session_timeout_ms: Int = setting(
        "The shortest session timeout that a group may be given.", default=45_000, allowed=at_least(1)
    )
    group_streams_max_session_timeout_ms: Int = setting(
        "The longest session timeout that a group may be given.", default=60_000, allowed=at_least(1)
    )
    group_streams_heartbeat_interval_ms: Int = setting(
        "How often members are told to report.", default=5000, allowed=at_least(1)
    )
    group_streams_min_heartbeat_interval_ms: Int = setting(
        "The shortest heartbeat interval that a group may be given.", default=5000, allowed=at_least(1)
    )
    group_streams_max_heartbeat_interval_ms: Int = setting(
        "The longest heartbeat interval that a group may be given.", default=15_000, allowed=at_least(1)
    )
    group_streams_max_size: Int = setting("How many members a group may have.", default=INT_MAX, allowed=at_least(1))
    group_streams_num_standby_replicas: Int = setting(
        "How many standby copies each task has.", default=0, allowed=at_least(0)
    )
    group_streams_max_standby_replicas: Int = setting(
        "The highest number of standby copies that a group may be given.", default=2, allowed=at_least(0)
    )
    group_streams_initial_rebalance_delay_ms: Int = setting(
        "How long the first assignment of a new group waits for more members.", default=3000, allowed=at_least(0)
    )
    group_streams_assignment_interval_ms: Int = setting(
        "How long at least lies between two assignments of a group.", default=1000, allowed=at_least(0)
    )
    group_streams_min_assignment_interval_ms: Int = setting(
        "The shortest assignment interval that a group may be given.", default=0, allowed=at_least(0)
    )
    group_streams_max_assignment_interval_ms: Int = setting(
        "The longest assignment interval that a group may be given.", default=15_000, allowed=at_least(0)
    )

    # Names differ from those of the other kinds of groups: all rules meet in one class.
    _streams_session_timeout_ms_in_bounds = in_bounds("group_streams", "session_timeout_ms")
    _streams_heartbeat_interval_ms_in_bounds = in_bounds("group_streams", "heartbeat_interval_ms")
    _streams_assignment_interval_ms_in_bounds = in_bounds("group_streams", "assignment_interval_ms")
    _streams_heartbeats_fit_into_a_session = heartbeats_fit("group_streams")
