"""How far a follower is, as its leader knows it from the follower's fetches (Kafka's Replica)."""

from __future__ import annotations

from typing import Final

from barnabas.replication._kernel.following import FollowerPosition
from barnabas.replication.roles import NO_EPOCH, NO_OFFSET

#: Before every moment.
NEVER_MS: Final = -(2**62)


class RemoteReplica(FollowerPosition):
    """One follower. A fetch at an offset says that it has everything before, and its log start.

    It has caught up at the latest moment t for which a fetch reached what the leader's log end was at t. So one that
    is always a little behind, because there are always new records, counts as caught up too.
    """

    __slots__ = ("broker_id",)

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        #: Where the leader's log ended when the follower fetched last, and when that was.
        self.last_fetch_leader_log_end_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = NEVER_MS
        #: From its fetch: None before the first one, -1 if it does not say.
        self.broker_epoch = None

    def __repr__(self) -> str:
        return f"<replica on {self.broker_id}, from {self.log_start_offset} to {self.log_end_offset}>"

    def begin_epoch(self, leader_log_end_offset: int, now_ms: int, *, is_in_sync: bool) -> None:
        """The leader begins another epoch. Who is in sync gets time to fetch; who is not holds nothing back."""
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS
        if self.broker_epoch is not None:
            self.last_fetch_leader_log_end_offset = leader_log_end_offset
            self.last_fetch_ms = now_ms if is_in_sync else NEVER_MS

    def is_of_older_broker(self, broker_epoch: int) -> bool:
        """Whether a fetch with that epoch was sent by the broker as it was before its last start."""
        return NO_EPOCH < broker_epoch < (NO_EPOCH if self.broker_epoch is None else self.broker_epoch)

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        return self.log_end_offset == leader_log_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms
