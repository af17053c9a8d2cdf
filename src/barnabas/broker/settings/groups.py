"""Groups of consumers and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.base.settings import HIGH, MEDIUM, NO_EFFECT, NOT_BUILT, Int, Long, Names, Settings, Short, rule, setting
from barnabas.base.settings.allowed import at_least, between, items, one_of_in_any_case
from barnabas.base.settings.units import INT_MAX, KIB, MIB, MINUTE_MS


def in_bounds(prefix: str, what: str) -> Callable[[Any], str | None]:
    """A rule: the default that groups get lies between the bounds of what a group may be given."""
    lowest, value, highest = (f"{prefix}_{bound}{what}" for bound in ("min_", "", "max_"))

    @rule(value, lowest, highest)
    def check(settings: Any) -> str | None:
        if getattr(settings, lowest) <= getattr(settings, value) <= getattr(settings, highest):
            return None
        return "the value must lie between its bounds"

    return check


def heartbeats_fit(prefix: str) -> Callable[[Any], str | None]:
    """A rule: members report more often than their session times out."""
    interval, timeout = f"{prefix}_heartbeat_interval_ms", f"{prefix}_session_timeout_ms"

    @rule(interval, timeout)
    def check(settings: Any) -> str | None:
        if getattr(settings, interval) < getattr(settings, timeout):
            return None
        return "heartbeats must come more often than the session times out"

    return check


class GroupSettings(Settings, title="Groups", importance=HIGH):
    """Classic consumer groups and their offsets."""

    group_coordinator_rebalance_protocols: Names = setting(
        "Which group protocols are served.",
        default=("classic", "consumer", "streams"),
        allowed=items("consumer", "classic", "share", "streams", at_least_one=True),
        importance=MEDIUM,
        state=NOT_BUILT,
        refused=False,
    )
    group_min_session_timeout_ms: Int = setting(
        "The shortest session timeout that a member may ask for.", default=6000, importance=MEDIUM
    )
    group_max_session_timeout_ms: Int = setting(
        "The longest session timeout that a member may ask for.", default=30 * MINUTE_MS, importance=MEDIUM
    )
    group_initial_rebalance_delay_ms: Int = setting(
        "How long the first rebalance of a new group waits for more members.", default=3000, importance=MEDIUM
    )
    group_max_size: Int = setting(
        "How many members a group may have.", default=INT_MAX, allowed=at_least(1), importance=MEDIUM
    )
    group_coordinator_threads: Int = setting(
        "Threads of the coordinator in Kafka; here one event loop does the work.",
        default=4,
        allowed=at_least(1),
        state=NO_EFFECT,
    )
    group_coordinator_background_threads: Int = setting(
        "Threads for slow work of the coordinator in Kafka; here a bounded pool is shared.",
        default=2,
        allowed=at_least(1),
        state=NO_EFFECT,
    )
    group_coordinator_append_linger_ms: Int = setting(
        "How long the coordinator gathers records before it writes them; -1 adapts to the load.",
        default=-1,
        allowed=at_least(-1),
        importance=MEDIUM,
    )
    group_coordinator_cached_buffer_max_bytes: Int = setting(
        "How large a write buffer may be and still be kept for reuse.",
        default=1_048_588,
        allowed=at_least(512 * KIB),
        importance=MEDIUM,
        state=NO_EFFECT,
    )
    offset_metadata_max_bytes: Int = setting(
        "The longest text that a consumer may store with an offset.", default=4 * KIB
    )
    offsets_commit_timeout_ms: Int = setting(
        "How long a commit waits for the replicas of the offsets topic.", default=5000, allowed=at_least(1)
    )
    offsets_load_buffer_size: Int = setting(
        "How many bytes are read at a time when offsets are loaded.", default=5 * MIB, allowed=at_least(1)
    )
    offsets_topic_replication_factor: Short = setting(
        "How many replicas the offsets topic has; a cluster with fewer nodes cannot create it.",
        default=3,
        allowed=at_least(1),
    )
    offsets_topic_num_partitions: Int = setting(
        "How many partitions the offsets topic has; it must never change.", default=50, allowed=at_least(1)
    )
    offsets_topic_segment_bytes: Int = setting(
        "The segment size of the offsets topic; small segments load faster.", default=100 * MIB, allowed=at_least(1)
    )
    offsets_topic_compression_codec: Int = setting(
        "Codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", default=0, allowed=between(0, 4)
    )
    offsets_retention_minutes: Int = setting(
        "How long offsets of a group without members are kept.", default=10_080, allowed=at_least(1)
    )
    offsets_retention_check_interval_ms: Long = setting(
        "How often old offsets are searched for.", default=10 * MINUTE_MS, allowed=at_least(1)
    )

    @rule("group_coordinator_rebalance_protocols")
    def _classic_groups_are_served(self) -> str | None:
        return None if "classic" in self.group_coordinator_rebalance_protocols else "classic cannot be switched off"

    @rule("group_min_session_timeout_ms", "group_max_session_timeout_ms")
    def _some_session_timeout_is_allowed(self) -> str | None:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            return "no session timeout would be allowed: the shortest is longer than the longest"
        return None


class ConsumerGroupSettings(Settings, title="Consumer groups (KIP-848)", state=NOT_BUILT, refused=False):
    """Groups whose assignment the broker computes."""

    group_consumer_session_timeout_ms: Int = setting(
        "After how much silence a member is removed.", default=45_000, allowed=at_least(1)
    )
    group_consumer_min_session_timeout_ms: Int = setting(
        "The shortest session timeout that a group may be given.", default=45_000, allowed=at_least(1)
    )
    group_consumer_max_session_timeout_ms: Int = setting(
        "The longest session timeout that a group may be given.", default=60_000, allowed=at_least(1)
    )
    group_consumer_heartbeat_interval_ms: Int = setting(
        "How often members are told to report.", default=5000, allowed=at_least(1)
    )
    group_consumer_min_heartbeat_interval_ms: Int = setting(
        "The shortest heartbeat interval that a group may be given.", default=5000, allowed=at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: Int = setting(
        "The longest heartbeat interval that a group may be given.", default=15_000, allowed=at_least(1)
    )
    group_consumer_max_size: Int = setting("How many members a group may have.", default=INT_MAX, allowed=at_least(1))
    group_consumer_assignors: Names = setting(
        "The assignors on offer; the first one is the default.",
        default=("uniform", "range"),
        allowed=items(at_least_one=True),
    )
    group_consumer_migration_policy: str = setting(
        "In which directions a group may change between the classic and the new protocol.",
        default="bidirectional",
        allowed=one_of_in_any_case("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_assignment_interval_ms: Int = setting(
        "How long at least lies between two assignments of a group.", default=1000, allowed=at_least(0)
    )
    group_consumer_min_assignment_interval_ms: Int = setting(
        "The shortest assignment interval that a group may be given.", default=0, allowed=at_least(0)
    )
    group_consumer_max_assignment_interval_ms: Int = setting(
        "The longest assignment interval that a group may be given.", default=15_000, allowed=at_least(0)
    )
    group_consumer_regex_refresh_interval_ms: Int = setting(
        "How often subscriptions by pattern are matched against the topics again.",
        default=10 * MINUTE_MS,
        allowed=at_least(10_000),
        internal=True,
    )

    # Names differ from those of the other kinds of groups: all rules meet in one class.
    _consumer_session_timeout_ms_in_bounds = in_bounds("group_consumer", "session_timeout_ms")
    _consumer_heartbeat_interval_ms_in_bounds = in_bounds("group_consumer", "heartbeat_interval_ms")
    _consumer_assignment_interval_ms_in_bounds = in_bounds("group_consumer", "assignment_interval_ms")
    _consumer_heartbeats_fit_into_a_session = heartbeats_fit("group_consumer")
