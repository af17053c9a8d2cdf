"""Quotas and metrics."""

from __future__ import annotations

from barnabas.base.settings import LOW, MEDIUM, NOT_BUILT, Int, Long, Plugin, Settings, setting
from barnabas.base.settings.allowed import at_least
from barnabas.base.settings.units import LONG_MAX


class QuotaSettings(Settings, title="Quotas", importance=LOW):
    """Over which time rates are measured."""

    quota_window_num: Int = setting(
        "How many samples the rate of a client is measured over.", default=11, allowed=at_least(1)
    )
    quota_window_size_seconds: Int = setting(
        "How long one sample of a client's rate is, and the longest that the time of requests, or the pace of "
        "connections, lets somebody wait at a time.",
        default=1,
        allowed=at_least(1),
    )
    replication_quota_window_num: Int = setting(
        "How many samples the rate of replication is measured over.",
        default=11,
        allowed=at_least(1),
        state=NOT_BUILT,
        refused=False,
    )
    replication_quota_window_size_seconds: Int = setting(
        "How long one sample of the replication rate is.",
        default=1,
        allowed=at_least(1),
        state=NOT_BUILT,
        refused=False,
    )
    alter_log_dirs_replication_quota_window_num: Int = setting(
        "How many samples the rate of moves between directories is measured over.",
        default=11,
        allowed=at_least(1),
        state=NOT_BUILT,
        refused=False,
    )
    alter_log_dirs_replication_quota_window_size_seconds: Int = setting(
        "How long one sample of that rate is.", default=1, allowed=at_least(1), state=NOT_BUILT, refused=False
    )
    controller_quota_window_num: Int = setting(
        "How many samples of changes at the controller a client may have at once, at its quota.",
        default=11,
        allowed=at_least(1),
    )
    controller_quota_window_size_seconds: Int = setting("How long one such sample is.", default=1, allowed=at_least(1))
    client_quota_callback_class: Plugin | None = setting(
        "A plug-in that decides the quotas of clients.", default=None, state=NOT_BUILT
    )

    leader_replication_throttled_rate: Long = setting(
        "How many bytes per second leaders send to throttled replicas.",
        default=LONG_MAX,
        allowed=at_least(0),
        importance=MEDIUM,
        state=NOT_BUILT,
        refused=False,
    )
    follower_replication_throttled_rate: Long = setting(
        "How many bytes per second followers fetch for throttled replicas.",
        default=LONG_MAX,
        allowed=at_least(0),
        importance=MEDIUM,
        state=NOT_BUILT,
        refused=False,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: Long = setting(
        "How fast replicas move between directories.",
        default=LONG_MAX,
        allowed=at_least(0),
        importance=MEDIUM,
        state=NOT_BUILT,
        refused=False,
    )
