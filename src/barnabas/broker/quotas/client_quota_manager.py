"""Quotas of one kind: who has one, how much of it was used, and who must wait how long.

Without I/O or a clock: `now_ms` is handed in. Only those who have a quota are measured, so that for all others it costs
one look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.base.quotas import MAX_THROTTLE_MS, QuotaWindow, SampledRate
from barnabas.metadata.access_images import ClientQuotasImage
from barnabas.metadata.quota_limits import Owner, QuotaLimit, QuotaLimits

#: Rates of those who have been silent are looked for when there are twice as many as were left the last time.
_FEW_RATES: Final = 64


class ClientQuotaManager:
    """`key` names the quota. Nobody is made to wait longer than `max_throttle_ms` at a time."""

    def __init__(self, key: str, window: QuotaWindow, max_throttle_ms: int = MAX_THROTTLE_MS) -> None:
        self.key = key
        self._window = window
        self._max_throttle_ms = max_throttle_ms
        self._limits = QuotaLimits(ClientQuotasImage(), key)
        self._rates: dict[Owner, SampledRate] = {}
        self._look_at = _FEW_RATES

    def set_quotas(self, quotas: ClientQuotasImage) -> None:
        """Other bounds hold from now on. What was used stays used."""
        self._limits = QuotaLimits(quotas, self.key)
        if self._limits.is_empty:
            self._rates.clear()

    @property
    def is_empty(self) -> bool:
        """Whether nobody has such a quota."""
        return self._limits.is_empty

    def limit_of(self, user: str, client_id: str) -> QuotaLimit | None:
        return self._limits.of(user, client_id)

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Somebody used so much: how long they must wait until they are within their quota."""
        limit = self._limits.of(user, client_id)
        if limit is None:
            return 0
        rate = self._rate_of(limit.owner, now_ms)
        rate.record(value, now_ms)
        return min(rate.throttle_ms(limit.bound, now_ms), self._max_throttle_ms)

    def unrecord(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """What was recorded was not used after all."""
        limit = self._limits.of(user, client_id)
        if limit is not None:
            self._rate_of(limit.owner, now_ms).record(-value, now_ms)

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
        rate = None if limit is None else self._rates.get(limit.owner)
        return rate is None or rate.is_forgotten(now_ms)

    def rates(self, now_ms: int) -> Iterator[tuple[Owner, float]]:
        """How much of it each of those who are measured uses per second."""
        for owner, rate in list(self._rates.items()):
            yield owner, rate.measure(now_ms)

    def _rate_of(self, owner: Owner, now_ms: int) -> SampledRate:
        rate = self._rates.get(owner)
        if rate is None:
            self._forget_silent(now_ms)
            rate = self._rates[owner] = SampledRate(self._window)
        return rate

    def _forget_silent(self, now_ms: int) -> None:
        if len(self._rates) >= self._look_at:
            self._rates = {owner: rate for owner, rate in self._rates.items() if not rate.is_forgotten(now_ms)}
            self._look_at = max(_FEW_RATES, 2 * len(self._rates))
