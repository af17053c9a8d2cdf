"""The settings that a member lives by, and what it says when a group does not take it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError

_ADVICE: Final = {
    ErrorCode.FENCED_INSTANCE_ID: (
        "another consumer with group.instance.id {instance} has joined group {group}; each must have a name of its own"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the other members of group {group} know none of our assignors ({assignors}), or it is not a group of "
        "consumers; set partition.assignment.strategy to something that all have in common"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms = {session} is outside group.min.session.timeout.ms and group.max.session.timeout.ms of "
        "the broker"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "group {group} has as many members as group.max.size of the broker allows",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to join group {group}: READ on the group is needed",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old for group.instance.id (2.3 is needed); leave it out",
}


@dataclass(frozen=True, slots=True)
class MembershipPolicy:
    """The settings that a member lives by."""

    group_id: str
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000


def refusal(code: ErrorCode, policy: MembershipPolicy, assignors: Iterable[str]) -> BrokerError:
    """What the program is told: what happened, and what to do about it."""
    advice = _ADVICE.get(code)
    if advice is None:
        return BrokerError(code, f"group {policy.group_id}: {code.text}")
    return BrokerError(
        code,
        advice.format(
            group=policy.group_id,
            instance=policy.instance_id,
            session=policy.session_timeout_ms,
            assignors=", ".join(assignors),
        ),
    )
