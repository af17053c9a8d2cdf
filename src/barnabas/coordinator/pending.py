"""Members that were given an id and have not come back with it.

Each costs its client one small request, so they are bounded in time and number: a client that means it comes back at
once. Who is forgotten and comes back all the same hears UNKNOWN_MEMBER_ID, and asks for another id.
"""

from __future__ import annotations

from typing import Final

from barnabas.coordinator.effects import Now
from barnabas.coordinator.group import Group
from barnabas.coordinator.rebalance import end_session, schedule_session, session_key
from barnabas.coordinator.state import ShardState

#: The part of a member id that the client chose: enough for every name that is one.
MAX_NAME_CHARS: Final = 255
#: How long an id is kept for somebody who does not come back; in Kafka for the session timeout, up to half an hour.
MAX_PENDING_MS: Final = 60_000
#: Of a shard. Each takes one or two kilobytes: at most 50 MB in all 50 shards of a node.
MAX_PENDING: Final = 500


def new_member_id(shard: ShardState, name: str) -> str:
    """An id for a member, from its client id or its instance id."""
    return f"{name[:MAX_NAME_CHARS]}-{shard.new_uuid()}"


def await_member(shard: ShardState, group: Group, member_id: str, session_timeout_ms: int, now: Now) -> None:
    """Keep an id for a while for somebody who was told to come back with it. The oldest ones make way."""
    group.pending_join[member_id] = None
    shard.pending[group.group_id, member_id] = None
    deadline_ms = now.monotonic_ms + min(session_timeout_ms, MAX_PENDING_MS)
    schedule_session(shard, group.group_id, member_id, deadline_ms)
    if len(shard.pending) > MAX_PENDING:
        _make_way(shard, now)


def _make_way(shard: ShardState, now: Now) -> None:
    # Those who came, or whose time was over, are still noted here: they cost a look now and then, and nothing else.
    shard.pending = {key: None for key in shard.pending if _is_pending(shard, *key)}
    while len(shard.pending) > MAX_PENDING:
        group_id, member_id = next(iter(shard.pending))
        del shard.pending[group_id, member_id]
        shard.timers.cancel(session_key(group_id, member_id))
        end_session(shard, shard.groups[group_id], member_id, now)


def _is_pending(shard: ShardState, group_id: str, member_id: str) -> bool:
    group = shard.groups.get(group_id)
    return group is not None and member_id in group.pending_join
