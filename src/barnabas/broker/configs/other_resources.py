"""Settings of groups and of client metrics: which are accepted, and what DescribeConfigs tells of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import ge, le
from typing import Any, Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.settings import Registry, Setting
from barnabas.broker.settings import BROKER_SETTINGS, BrokerSettings
from barnabas.broker.settings.other_resources import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS
from barnabas.metadata.image import ConfigResource, ConfigResourceType

_MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_SHORTEST_INTERVAL_MS: Final = 100
_LONGEST_INTERVAL_MS: Final = 3_600_000
#: The one that Kafka did not name as it does the others.
_LIMIT_NAMES: Final = {"group.streams.max.num.standby.replicas": "group.streams.max.standby.replicas"}


class OtherKind(NamedTuple):
    """Settings of a kind of resource that nothing here follows yet."""

    registry: Registry
    #: Kafka has another code for a name that it does not know, depending on the kind.
    unknown_name: ErrorCode
    what: str


OTHER_KINDS: Final = {
    ConfigResourceType.GROUP: OtherKind(GROUP_SETTINGS, ErrorCode.INVALID_CONFIG, "a group"),
    ConfigResourceType.CLIENT_METRICS: OtherKind(CLIENT_METRICS_SETTINGS, ErrorCode.INVALID_REQUEST, "client metrics"),
}


def check_other_resource(resource: ConfigResource, configs: Mapping[str, str], settings: BrokerSettings) -> None:
    """Raise `BrokerError` unless a group, or a subscription to client metrics, may have all these settings."""
    kind = OTHER_KINDS[ConfigResourceType(resource.type)]
    values: dict[str, object] = {}
    for name, value in configs.items():
        setting = kind.registry.get(name)
        if setting is None:
            raise BrokerError(kind.unknown_name, f"{kind.what} has no setting {name}")
        try:
            values[name] = setting.convert(value)
        except ValueError as reason:
            raise _invalid(f"{name} = {value!r}: the value {reason}; allowed: {setting.allowed_text}") from None
        if kind.registry is GROUP_SETTINGS and setting.server_default is not None:
            _check_limits(setting, values[name], settings)
    if kind.registry is GROUP_SETTINGS:
        _check_heartbeats(values, settings)
    else:
        _check_subscription(values)


def _check_limits(setting: Setting, value: Any, settings: BrokerSettings) -> None:
    for word, is_within in (("min", ge), ("max", le)):
        name = re.sub(r"^(group\.\w+)\.", rf"\1.{word}.", setting.server_default or "")
        name = _LIMIT_NAMES.get(name, name)
        if name in BROKER_SETTINGS and not is_within(value, limit := settings.value_of(name)):
            raise _invalid(f"{setting.name} = {value}: {name} of the broker is {limit}")


def _check_heartbeats(values: Mapping[str, object], settings: BrokerSettings) -> None:
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (
            values.get(f"{kind}.{name}", settings.value_of(f"group.{kind}.{name}"))
            for name in ("session.timeout.ms", "heartbeat.interval.ms")
        )
        if isinstance(session, int) and isinstance(heartbeat, int) and session <= heartbeat:
            raise _invalid(f"{kind}.session.timeout.ms must be more than {kind}.heartbeat.interval.ms")


def _check_subscription(values: Mapping[str, object]) -> None:
    interval_ms = values.get("interval.ms", _LONGEST_INTERVAL_MS)
    if not (isinstance(interval_ms, int) and _SHORTEST_INTERVAL_MS <= interval_ms <= _LONGEST_INTERVAL_MS):
        limits = f"{_SHORTEST_INTERVAL_MS} to {_LONGEST_INTERVAL_MS}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"interval.ms = {interval_ms}: it must be {limits}")
    patterns = values.get("match", ())
    for each in patterns if isinstance(patterns, tuple) else ():
        said, equals, pattern = each.partition("=")
        try:
            re.compile(pattern)
            is_pattern = bool(equals) and said.strip() in _MATCHED
        except re.error:
            is_pattern = False
        if not is_pattern:
            raise _invalid(f"match: {each!r} is not one of {', '.join(_MATCHED)}, with = and a pattern")


def _invalid(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_CONFIG, reason)
