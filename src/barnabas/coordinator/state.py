"""What the operations of a shard share: its groups and offsets, its timers, and the outbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.effects import Awaited, Now, Reply, Token, Write, append_error
from barnabas.coordinator.group import Group
from barnabas.coordinator.offsets import OffsetStore
from barnabas.coordinator.skipped import SkippedRecords
from barnabas.coordinator.timers import Timers
from barnabas.wire.schema import Struct

#: How long a new member may wait at the join barrier. It cannot send heartbeats, since it does not know its id, and a
#: client that gave up comes back as another member: without a limit its ghosts would hold up the group for ever.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The settings that groups live by."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_chars: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    retention_check_interval_ms: int = 600_000
    #: The largest batch that the offsets topic takes.
    max_write_bytes: int = 1_048_588


class ShardState:
    """A shard from the inside."""

    __slots__ = (
        "groups",
        "limits",
        "new_uuid",
        "offsets",
        "pending",
        "replies",
        "skipped",
        "timers",
        "unfinished",
        "writes",
    )

    def __init__(self, limits: GroupLimits, new_uuid: Callable[[], str]) -> None:
        self.limits = limits
        self.new_uuid = new_uuid
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        #: Group and id of members that were told to come back, the oldest first; some may have come (see `pending`).
        self.pending: dict[tuple[str, str], None] = {}
        self.timers = Timers()
        self.replies: list[Reply] = []
        #: Staged and not yet fetched by whoever writes them.
        self.writes: list[Write] = []
        #: Staged, and what became of them is not known yet; in order (used as an ordered set).
        self.unfinished: dict[Write, None] = {}
        #: What loading did not understand.
        self.skipped = SkippedRecords()

    def reply(self, token: Token, response: Struct) -> None:
        self.replies.append(Reply(token, response))

    def stage(self, write: Write, now: Now) -> None:
        """Hand records over to be written. Records that fit into no batch fail at once."""
        size_bytes = sum(record.size_bytes for record in write.records)
        if size_bytes > self.limits.max_write_bytes:
            self._take_back(write)
            self._fail(write, append_error(ErrorCode.MESSAGE_TOO_LARGE), is_in_log=False, now=now)
            return
        self.writes.append(write)
        self.unfinished[write] = None

    def reply_after_writes(self, awaited: Awaited) -> None:
        """Answer once all that is staged now is committed: at once if nothing is."""
        last = next(reversed(self.unfinished), None)
        if last is None:
            self.reply(awaited.token, awaited.response)
        else:
            last.awaited.append(awaited)

    # What became of a write

    def placed(self, writes: list[Write], first_offset: int) -> None:
        """The records are in the log from `first_offset` on."""
        for write in writes:
            for index, change in enumerate(write.offsets):
                if change.value is not None:
                    change.value.record_offset = first_offset + index
            first_offset += len(write.records)

    def committed(self, writes: list[Write], now: Now) -> None:
        for write in writes:
            del self.unfinished[write]
            for change in write.offsets:
                self.offsets.commit(change)
            if write.on_commit is not None:
                write.on_commit(now)
            for awaited in write.awaited:
                self.reply(awaited.token, awaited.response)

    def rejected(self, writes: list[Write], error: ErrorCode, now: Now) -> None:
        """Nothing of it is in the log. Nothing was staged after these: they are the last ones."""
        for write in reversed(writes):
            del self.unfinished[write]
            self._take_back(write)
            self._fail(write, error, is_in_log=False, now=now)

    def waited_in_vain(self, writes: list[Write], error: ErrorCode, now: Now) -> None:
        """It is in the log, and nobody waits any longer for it to be committed. It still may be."""
        for write in writes:
            self._fail(write, error, is_in_log=True, now=now)
            write.on_failure = None
            write.awaited = []

    def _take_back(self, write: Write) -> None:
        for change in reversed(write.offsets):
            self.offsets.unstage(change)

    def _fail(self, write: Write, error: ErrorCode, *, is_in_log: bool, now: Now) -> None:
        if write.on_failure is not None:
            write.on_failure(error, is_in_log, now)
        for awaited in write.awaited:
            self.reply(awaited.token, awaited.if_failed(error))
