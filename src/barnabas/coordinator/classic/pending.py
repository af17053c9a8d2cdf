"""Members that were given an id and have not come back with it.

Each costs its client one small request, so they are bounded in time and number: a client that means it comes back at
once. Who is forgotten and comes back all the same hears UNKNOWN_MEMBER_ID, and asks for another id.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.rebalance import end_session, schedule_session
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager, session_key
from barnabas.coordinator.results import CoordinatorResult, Now, Operation

#: The part of a member id that the client chose: enough for every name that is one.
MAX_NAME_CHARS: Final = 255
#: How long an id is kept for somebody who does not come back; in Kafka for the session timeout, up to half an hour.
MAX_PENDING_MS: Final = 60_000
#: Of a shard. Each takes one or two kilobytes: at most 50 MB in all 50 shards of a node.
MAX_PENDING: Final = 500


def new_member_id(manager: GroupMetadataManager, name: str) -> str:
    """An id for a member, from its client id or its instance id."""
    return f"{name[:MAX_NAME_CHARS]}-{manager.new_uuid()}"


def await_member(
    manager: GroupMetadataManager, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Now
) -> list[Operation]:
    """Keep an id for a while for somebody who was told to come back with it. The oldest ones make way, in the
    operations that are returned, since they may be of other groups."""
    group.pending_join[member_id] = None
    manager.pending[group.group_id, member_id] = None
    deadline_ms = now.monotonic_ms + min(session_timeout_ms, MAX_PENDING_MS)
    schedule_session(manager, group.group_id, member_id, deadline_ms)
    return _make_way(manager) if len(manager.pending) > MAX_PENDING else []


def _make_way(manager: GroupMetadataManager) -> list[Operation]:
    # Those who came, or whose time was over, are still noted here: they cost a look now and then, and nothing else.
    manager.pending = {key: None for key in manager.pending if _is_pending(manager, *key)}
    oldest = list(manager.pending)[: len(manager.pending) - MAX_PENDING]
    return [Operation(group_id, partial(_forget, manager, group_id, member_id)) for group_id, member_id in oldest]


def _forget(manager: GroupMetadataManager, group_id: str, member_id: str, now: Now) -> CoordinatorResult:
    manager.pending.pop((group_id, member_id), None)
    manager.timer.cancel(session_key(group_id, member_id))
    return CoordinatorResult(end_session(manager, group_id, member_id, now))


def _is_pending(manager: GroupMetadataManager, group_id: str, member_id: str) -> bool:
    group = manager.active.get(group_id)
    return group is not None and member_id in group.pending_join
