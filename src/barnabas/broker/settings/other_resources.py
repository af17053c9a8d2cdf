"""What can be set for single groups of the newer kinds, and for the metrics that clients push. Neither is built: values
are kept for the day that they are."""

from __future__ import annotations

from barnabas.base.settings import NOT_BUILT, Int, Names, Registry, Settings, setting
from barnabas.base.settings.allowed import at_least, like, one_of
from barnabas.base.settings.units import MINUTE_MS

_SESSION = "After how much silence a member is removed."
_HEARTBEAT = "How often members are told to report."
_ASSIGNMENT = "How long at least lies between two assignments."
_DURATION = r"[-+]?P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"


class GroupConfigSettings(Settings, title="Group", state=NOT_BUILT):
    """What can be set for each group; a group that says nothing follows the broker."""

    consumer_session_timeout_ms: Int = setting(
        _SESSION, default=45_000, allowed=at_least(1), server_default="group.consumer.session.timeout.ms"
    )
    consumer_heartbeat_interval_ms: Int = setting(
        _HEARTBEAT, default=5000, allowed=at_least(1), server_default="group.consumer.heartbeat.interval.ms"
    )
    consumer_assignment_interval_ms: Int = setting(
        _ASSIGNMENT, default=1000, allowed=at_least(0), server_default="group.consumer.assignment.interval.ms"
    )
    share_session_timeout_ms: Int = setting(
        _SESSION, default=45_000, allowed=at_least(1), server_default="group.share.session.timeout.ms"
    )
    share_heartbeat_interval_ms: Int = setting(
        _HEARTBEAT, default=5000, allowed=at_least(1), server_default="group.share.heartbeat.interval.ms"
    )
    share_assignment_interval_ms: Int = setting(
        _ASSIGNMENT, default=1000, allowed=at_least(0), server_default="group.share.assignment.interval.ms"
    )
    share_record_lock_duration_ms: Int = setting(
        "How long a record is a member's own.",
        default=30_000,
        allowed=at_least(1000),
        server_default="group.share.record.lock.duration.ms",
    )
    share_delivery_count_limit: Int = setting(
        "How often a record is delivered before it is given up.",
        default=5,
        allowed=at_least(2),
        server_default="group.share.delivery.count.limit",
    )
    share_partition_max_record_locks: Int = setting(
        "How many records of a partition members may hold at once.",
        default=2000,
        allowed=at_least(100),
        server_default="group.share.partition.max.record.locks",
    )
    share_auto_offset_reset: str = setting(
        "Where a share group begins to read.",
        default="latest",
        allowed=like(rf"latest|earliest|by_duration:{_DURATION}", "latest, earliest, or by_duration:PnDTnHnMn.nS"),
    )
    share_isolation_level: str = setting(
        "Whether records of open transactions are read.",
        default="read_uncommitted",
        allowed=one_of("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable: bool = setting("Whether members may prolong the hold of a record.", default=True)
    streams_session_timeout_ms: Int = setting(
        _SESSION, default=45_000, allowed=at_least(1), server_default="group.streams.session.timeout.ms"
    )
    streams_heartbeat_interval_ms: Int = setting(
        _HEARTBEAT, default=5000, allowed=at_least(1), server_default="group.streams.heartbeat.interval.ms"
    )
    streams_assignment_interval_ms: Int = setting(
        _ASSIGNMENT, default=1000, allowed=at_least(0), server_default="group.streams.assignment.interval.ms"
    )
    streams_num_standby_replicas: Int = setting(
        "How many standby copies each task has.",
        default=0,
        allowed=at_least(0),
        server_default="group.streams.num.standby.replicas",
    )
    streams_initial_rebalance_delay_ms: Int = setting(
        "How long the first assignment waits for more members.",
        default=3000,
        allowed=at_least(0),
        server_default="group.streams.initial.rebalance.delay.ms",
    )


class ClientMetricsConfigSettings(Settings, title="Client metrics", state=NOT_BUILT):
    """Which metrics which clients are asked for."""

    interval_ms: Int = setting("How often clients push.", default=5 * MINUTE_MS)
    match: Names = setting("Which clients: what they say of themselves, and a pattern for it.", default=())
    metrics: Names = setting("Which metrics, by the beginning of their names.", default=())


GROUP_SETTINGS = Registry("group", GroupConfigSettings)
CLIENT_METRICS_SETTINGS = Registry("client metrics", ClientMetricsConfigSettings)
