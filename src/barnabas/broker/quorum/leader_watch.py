"""A controller's node tells that it has lost the active controller, and why, how long there is none, and who is next.

Raft goes from election to election while no majority is there; that is told once, and again from time to time.
"""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.raft.types import LeaderAndEpoch, LeaderLoss, LossCause

_log = logger("barnabas.controller")

#: Elections are over by then, if enough voters run.
_PATIENCE_MS: Final = 3000
_AGAIN_MS: Final = 30_000


class WatchedQuorum(Protocol):
    """What is asked of the quorum for it."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def is_alone(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...

    def waits_for(self) -> str: ...


class LeaderWatch:
    """Who has nobody beside it has nobody to lose, and who stops need not tell."""

    def __init__(self, quorum: WatchedQuorum, clock: Clock) -> None:
        self._quorum = quorum
        self._clock = clock
        self._loss: LeaderLoss | None = None
        self._since_ms = self._warn_at_ms = 0
        self._is_warned = False
        #: What became of the last leader, while there is no other.
        self.reason: str | None = None

    def look(self, loss: LeaderLoss | None) -> None:
        """Called when the leader is lost, often while there is none, and with None when there is one."""
        quorum, now_ms = self._quorum, self._clock.monotonic_ms()
        if quorum.is_alone or quorum.is_stopping:
            return
        if loss is None:
            self._found(now_ms)
        elif loss is not self._loss:
            self._loss, self.reason = loss, loss_text(loss, quorum.node_id)
            self._since_ms, self._warn_at_ms, self._is_warned = now_ms, now_ms + _PATIENCE_MS, False
            _log.info("Node %d looks for an active controller, since %s", quorum.node_id, self.reason)
        elif now_ms >= self._warn_at_ms:
            self._warn_at_ms, self._is_warned = now_ms + _AGAIN_MS, True
            _log.warning(
                "Node %d has known no active controller for %.1f s, since %s: %s",
                quorum.node_id,
                (now_ms - self._since_ms) / 1000,
                self.reason,
                quorum.waits_for(),
            )

    def _found(self, now_ms: int) -> None:
        loss, self._loss, self.reason = self._loss, None, None
        # Another than before was told of when it began to lead.
        if loss is not None and (self._is_warned or self._quorum.leader == (loss.leader_id, loss.epoch)):
            leader = self._quorum.leader
            after_s = (now_ms - self._since_ms) / 1000
            _log.info("Controller %d leads in epoch %d, after %.1f s without an active one", *leader, after_s)


def loss_text(loss: LeaderLoss, node_id: int) -> str:
    """Why there is no active controller, as the rest of a sentence."""
    leader = f"controller {loss.leader_id}"
    if loss.cause is LossCause.UNHEARD:
        return f"this node led, and has not heard from a majority of the controllers for {loss.silent_ms} ms"
    if loss.cause is LossCause.RESIGNED:
        return "this node resigned" if loss.leader_id == node_id else f"{leader} resigned"
    if loss.cause is LossCause.GONE:
        return f"{leader} closed the connection, and its process does not answer"
    if loss.cause is LossCause.SILENT:
        return f"nothing was heard from {leader} for {loss.silent_ms} ms"
    other = "another controller" if loss.other_id < 0 else f"controller {loss.other_id}"
    return f"{other} has begun an election after epoch {loss.epoch} of {leader}"
