"""Quotas of one kind: who has one, how much of it was used, and who must wait how long.

Without I/O or a clock: `now_ms` is handed in. Only those who have a quota are measured, so that for all others it costs
one look. Those who are far from their bound have a credit, which is spent where requests are answered in their frames;
what was spent of it is recorded before anything else is, and before anybody asks. Owners are kept up to a bound, since
clients choose their ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.quotas import MAX_THROTTLE_MS, QuotaWindow, SampledRate
from barnabas.base.recently_used import RecentlyUsed
from barnabas.broker._kernel.credits import Credit
from barnabas.metadata.access_images import ClientQuotasImage
from barnabas.metadata.quota_limits import Owner, QuotaLimit, QuotaLimits


class _Usage:
    """How fast an owner of a quota was, and the credit that it has."""

    __slots__ = ("_rate", "asked_ms", "credit", "epoch")

    def __init__(self, window: QuotaWindow) -> None:
        self._rate = SampledRate(window)
        self.credit = Credit()
        #: When somebody looked last, and which quotas held then.
        self.asked_ms = self.epoch = 0

    def rate(self) -> SampledRate:
        """With all that was spent; there is no credit any more."""
        spent = self.credit.take()
        if spent is not None:
            # Credits end with the sample in which they were granted, so it counts there.
            self._rate.record(*spent)
        return self._rate

    def grant(self, bound: float, now_ms: int) -> None:
        left, until_ms = self._rate.credit(bound, now_ms)
        if left > 0:
            self.credit.grant(left, until_ms)


class ClientQuotaManager:
    """`key` names the quota. Nobody is made to wait longer than `max_throttle_ms` at a time."""

    def __init__(self, key: str, window: QuotaWindow, max_throttle_ms: int = MAX_THROTTLE_MS) -> None:
        self.key = key
        self._window = window
        self._max_throttle_ms = max_throttle_ms
        self._limits = QuotaLimits(ClientQuotasImage(), key)
        #: Raised when other quotas hold.
        self._epoch = 0
        self._usages: RecentlyUsed[Owner, _Usage] = RecentlyUsed(
            self._is_silent,
            # Whoever holds the credit of one that is forgotten will ask for another.
            lambda usage: usage.credit.end(),
        )

    def set_quotas(self, quotas: ClientQuotasImage) -> None:
        """Other bounds hold from now on. What was used stays used."""
        self._limits = QuotaLimits(quotas, self.key)
        self._epoch += 1
        for usage in self._usages.values():
            usage.rate()  # credits were for other bounds
        if self._limits.is_empty:
            self._usages.clear()

    @property
    def is_empty(self) -> bool:
        """Whether nobody has such a quota."""
        return self._limits.is_empty

    def limit_of(self, user: str, client_id: str) -> QuotaLimit | None:
        return self._limits.of(user, client_id)

    def credit_of(self, user: str, client_id: str, now_ms: int) -> Credit | None:
        """What may be used before `record` has to be called, by the client and those who share its quota. None if there
        is no bound."""
        limit = self._limits.of(user, client_id)
        return None if limit is None else self._usage_of(limit.owner, now_ms).credit

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Somebody used so much: how long they must wait until they are within their quota."""
        limit = self._limits.of(user, client_id)
        if limit is None:
            return 0
        usage = self._usage_of(limit.owner, now_ms)
        rate = usage.rate()
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit.bound, now_ms)
        usage.grant(limit.bound, now_ms)
        return min(throttle_ms, self._max_throttle_ms)

    def unrecord(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """What was recorded was not used after all."""
        limit = self._limits.of(user, client_id)
        usage = None if limit is None else self._usages.peek(limit.owner)
        if usage is not None:
            usage.rate().record(-value, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """What may be used at once by somebody who has used nothing; more would have to wait whenever it is asked for.
        None if there is no bound."""
        limit = self._limits.of(user, client_id)
        if limit is None:
            return None
        return limit.bound * (self._window.samples - 1) * self._window.sample_ms / 1000

    def is_unused(self, user: str, client_id: str, now_ms: int) -> bool:
        """Whether nothing was used in the whole window."""
        limit = self._limits.of(user, client_id)
        usage = None if limit is None else self._usages.peek(limit.owner)
        return usage is None or usage.rate().is_forgotten(now_ms)

    def rates(self, now_ms: int) -> Iterator[tuple[Owner, float] | None]:
        """How much of it each of those who are measured uses per second. None for each that has used nothing in the
        window, or has no such quota any more, so that whoever asks may pause there, too."""
        for owner, usage in self._usages.items():
            rate = usage.rate().measure(now_ms)
            has_quota = usage.epoch == self._epoch or self._limits.bound_of(owner) is not None
            yield (owner, rate) if rate and has_quota else None

    def _usage_of(self, owner: Owner, now_ms: int) -> _Usage:
        usage = self._usages.use(owner)
        if usage is None:
            usage = _Usage(self._window)
            self._usages.add(owner, usage, now_ms)
        usage.asked_ms, usage.epoch = now_ms, self._epoch
        return usage

    def _is_silent(self, _: Owner, usage: _Usage, now_ms: int) -> bool:
        # Who has just come may hold a credit, of which it has not used anything yet.
        window_ms = self._window.samples * self._window.sample_ms
        return now_ms - usage.asked_ms >= window_ms and usage.rate().is_forgotten(now_ms)
