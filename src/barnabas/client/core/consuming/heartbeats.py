"""When a member must be heard of: by its coordinator, and from its program."""

from __future__ import annotations


class Timers:
    """Moments of one member, by the monotonic clock."""

    __slots__ = (
        "_heard_ms",
        "_heartbeat_at_ms",
        "_heartbeat_interval_ms",
        "_is_in_flight",
        "_max_poll_interval_ms",
        "_polled_ms",
        "_session_timeout_ms",
        "has_missed_poll",
    )

    def __init__(self, session_timeout_ms: int, heartbeat_interval_ms: int, max_poll_interval_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._max_poll_interval_ms = max_poll_interval_ms
        self._polled_ms = 0
        self._heard_ms = 0
        self._heartbeat_at_ms = 0.0
        self._is_in_flight = False
        #: Until the program comes back.
        self.has_missed_poll = False

    def polled(self, now_ms: int) -> None:
        self._polled_ms = now_ms
        self.has_missed_poll = False

    def joined(self, now_ms: int) -> None:
        self._heard_ms = now_ms
        self._heartbeat_at_ms = now_ms + self._heartbeat_interval_ms
        # The time until all others had come is not the program's.
        self._polled_ms = now_ms
        self._is_in_flight = False

    def left(self) -> None:
        self._is_in_flight = False

    def heartbeat_sent(self, now_ms: int) -> None:
        self._is_in_flight = True
        self._heartbeat_at_ms = now_ms + self._heartbeat_interval_ms

    def heartbeat_answered(self) -> None:
        self._is_in_flight = False

    def heartbeat_failed(self, now_ms: int, retry_ms: float) -> None:
        self._heartbeat_at_ms = min(self._heartbeat_at_ms, now_ms + retry_ms)

    def heard(self, now_ms: int) -> None:
        self._heard_ms = now_ms

    def is_heartbeat_due(self, now_ms: int) -> bool:
        return not self._is_in_flight and now_ms >= self._heartbeat_at_ms

    def is_session_over(self, now_ms: int) -> bool:
        return now_ms - self._heard_ms > self._session_timeout_ms

    def is_poll_overdue(self, now_ms: int) -> bool:
        return now_ms - self._polled_ms > self._max_poll_interval_ms

    def next_ms(self, now_ms: int) -> float:
        """In how long the first of these becomes true."""
        moments = [self._heard_ms + self._session_timeout_ms + 1, self._polled_ms + self._max_poll_interval_ms + 1]
        if not self._is_in_flight:
            moments.append(round(self._heartbeat_at_ms))
        return max(0, min(moments) - now_ms)
