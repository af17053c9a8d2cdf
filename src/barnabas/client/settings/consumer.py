"""Settings of a consumer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.base.settings import (
    HIGH,
    LOW,
    NO_EFFECT,
    NOT_BUILT,
    GivenValue,
    Int,
    Long,
    Plugin,
    Registry,
    SettingsWarning,
    again,
    rule,
    setting,
)
from barnabas.base.settings.allowed import NOT_EMPTY, at_least, items, like, one_of, one_of_in_any_case
from barnabas.base.settings.units import MIB, MINUTE_MS
from barnabas.client.settings.common import ClientSettings
from barnabas.client.settings.plugins import ASSIGNORS, DESERIALIZERS

# A span of time as Java's Duration writes it, such as P7D or PT1H30M; a negative one makes no sense here.
_DURATION = r"P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]*)?S)?)?"
OFFSET_RESET = like(
    rf"earliest|latest|none|by_duration:{_DURATION}", "earliest, latest, none, or by_duration:PnDTnHnMn.nS"
)


class ConsumerSettings(ClientSettings, title="Consumer"):
    """How partitions are shared and records are fetched."""

    client_id: str = again(default="", importance=LOW)
    connections_max_idle_ms: Long = again(default=9 * MINUTE_MS)
    enable_metrics_push: bool = again(default=True)

    key_deserializer: Plugin = setting(
        "Turns bytes into the keys of records.", default="bytes", builtin=DESERIALIZERS, importance=HIGH
    )
    value_deserializer: Plugin = setting(
        "Turns bytes into the values of records.", default="bytes", builtin=DESERIALIZERS, importance=HIGH
    )
    group_id: str | None = setting(
        "The group with which partitions are shared; null for none.",
        default=None,
        importance=HIGH,
        dependents=("group.instance.id", "enable.auto.commit"),
    )
    group_instance_id: str | None = setting(
        "A name that lets this member come back without a rebalance.", default=None, allowed=NOT_EMPTY
    )
    group_protocol: str = setting(
        "Which protocol the group uses: classic, or consumer for assignment by the broker.",
        default="classic",
        allowed=one_of_in_any_case("consumer", "classic"),
        importance=HIGH,
    )
    group_remote_assignor: str | None = setting(
        "The assignor of the broker for group.protocol=consumer; null for its default.", default=None, state=NOT_BUILT
    )
    session_timeout_ms: Int = setting(
        "After how much silence the broker takes this member for dead.", default=45_000, importance=HIGH
    )
    heartbeat_interval_ms: Int = setting("How often this member reports to its group.", default=3000, importance=HIGH)
    max_poll_interval_ms: Int = setting(
        "How long the program may take between two polls before it leaves the group.",
        default=5 * MINUTE_MS,
        allowed=at_least(1),
    )
    max_poll_records: Int = setting("How many records one poll returns.", default=500, allowed=at_least(1))
    partition_assignment_strategy: tuple[Plugin, ...] = setting(
        "How partitions are shared among members, in order of preference.",
        default=("range", "cooperative-sticky"),
        builtin=ASSIGNORS,
        allowed=items(),
    )
    enable_auto_commit: bool = setting(
        "Whether offsets are committed in the background.", default=True, dependents=("auto.commit.interval.ms",)
    )
    auto_commit_interval_ms: Int = setting(
        "How often offsets are committed in the background.", default=5000, allowed=at_least(0), importance=LOW
    )
    auto_offset_reset: str = setting(
        "Where to start without an offset: earliest, latest, none for an error, or by_duration:P1D for a day ago.",
        default="latest",
        allowed=OFFSET_RESET,
    )
    isolation_level: str = setting(
        "Whether records of open and aborted transactions are shown.",
        default="read_uncommitted",
        allowed=one_of("read_committed", "read_uncommitted"),
    )
    fetch_min_bytes: Int = setting(
        "How many bytes must be there before a fetch is answered early.",
        default=1,
        allowed=at_least(0),
        importance=HIGH,
    )
    fetch_max_wait_ms: Int = setting(
        "How long a broker may hold a fetch until fetch.min.bytes are there.",
        default=500,
        allowed=at_least(0),
        importance=LOW,
    )
    fetch_max_bytes: Int = setting("The most bytes that one fetch asks for.", default=50 * MIB, allowed=at_least(0))
    max_partition_fetch_bytes: Int = setting(
        "The most bytes per partition that one fetch asks for.", default=MIB, allowed=at_least(0), importance=HIGH
    )
    check_crcs: bool = setting("Whether the checksum of each batch is checked.", default=True, importance=LOW)
    client_rack: str = setting(
        "The rack or zone of this client, for reading from a nearby replica.", default="", importance=LOW
    )
    allow_auto_create_topics: bool = setting("Whether subscribing to an unknown topic may create it.", default=True)
    exclude_internal_topics: bool = setting("Whether a pattern leaves internal topics out.", default=True)
    default_api_timeout_ms: Int = setting(
        "How long a call may take that has no timeout of its own.", default=60_000, allowed=at_least(0)
    )
    interceptor_classes: tuple[Plugin, ...] = setting(
        "Plug-ins that see records before the program does.", default=(), allowed=items(), importance=LOW
    )
    internal_throw_on_fetch_stable_offset_unsupported: bool = setting(
        "Whether a broker without stable offsets is an error, for tests.",
        default=False,
        importance=LOW,
        internal=True,
        state=NO_EFFECT,
    )
    share_acknowledgement_mode: str = setting(
        "Whether a share consumer acknowledges by itself.",
        default="implicit",
        allowed=one_of("implicit", "explicit"),
        state=NOT_BUILT,
    )
    share_acquire_mode: str = setting(
        "Whether a share consumer takes whole batches or an exact number of records.",
        default="batch_optimized",
        allowed=one_of_in_any_case("batch_optimized", "record_limit"),
        state=NOT_BUILT,
    )

    @classmethod
    def _adjust(cls, values: dict[str, Any], given: Mapping[str, GivenValue]) -> Iterator[SettingsWarning]:
        """Without a group there is nowhere to commit to."""
        yield from super()._adjust(values, given)
        if values.get("group_id") is None and "enable.auto.commit" not in given:
            values["enable_auto_commit"] = False

    @rule("group_id")
    def _group_has_a_name(self) -> str | None:
        return "the name of a group cannot be empty; leave it out for no group" if self.group_id == "" else None

    @rule("enable_auto_commit", "group_id")
    def _commits_need_a_group(self) -> str | None:
        return (
            "offsets can be committed only for a group" if self.enable_auto_commit and self.group_id is None else None
        )

    @rule("group_protocol")
    def _group_protocol_is_built(self) -> str | None:
        return "this protocol is not built yet; use classic" if self.group_protocol != "classic" else None

    @rule("heartbeat_interval_ms", "session_timeout_ms")
    def _heartbeats_fit_into_a_session(self) -> str | None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            return "heartbeats must come more often than the session times out; a third of it is usual"
        return None


CONSUMER_SETTINGS = Registry("consumer", ConsumerSettings)
