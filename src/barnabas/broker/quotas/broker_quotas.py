"""The quotas of a broker's clients: what they produce and fetch, and how much of the loop's time they take.

Who has used too much is answered at once and told for how long its connection stays muted (KIP-219), whatever version
it speaks. All rules are here. Those that answer requests in their frames ask for an allowance, which covers what those
use who are far from their bounds; what it does not cover they leave to the rules. While nobody has a quota, that is one
look at a flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.base.foreign_text import told_apart
from barnabas.base.quotas import QuotaWindow
from barnabas.base.runtime import Clock
from barnabas.broker._kernel.credits import Allowance
from barnabas.broker.context import RequestContext
from barnabas.broker.quotas.client_quota_manager import ClientQuotaManager
from barnabas.metadata.access_images import ClientQuotasImage
from barnabas.metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from barnabas.metadata.quota_limits import Owner
from barnabas.net import Connection
from barnabas.replication.fetch_sessions import replica_of
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.wire.messages.produce import ProduceRequest

#: What nodes of the cluster ask of each other, and what comes before anybody is known.
EXEMPT: Final = frozenset({ApiKey.WRITE_TXN_MARKERS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
#: A hundred percent is the whole time of the loop.
_PERCENT_SECONDS_PER_NS: Final = 100 / 1_000_000_000
#: For how many clients it is remembered whether they have a quota.
_MOST_REMEMBERED: Final = 10_000


class BrokerQuotas:
    """`Quotas` by what the metadata say. Each quota is measured over `window`."""

    def __init__(self, window: QuotaWindow, clock: Clock) -> None:
        self._clock = clock
        self._produce = ClientQuotaManager(PRODUCER_BYTE_RATE, window)
        self._fetch = ClientQuotaManager(CONSUMER_BYTE_RATE, window)
        self._request = ClientQuotaManager(REQUEST_PERCENTAGE, window, window.sample_ms)
        self.limits_frames = False
        #: By principal and client id.
        self._allowances: dict[tuple[str, str], Allowance] = {}

    def set_quotas(self, quotas: ClientQuotasImage) -> None:
        """Other quotas hold from now on."""
        managers = (self._produce, self._fetch, self._request)
        for manager in managers:
            manager.set_quotas(quotas)
        self._forget_allowances()
        self.limits_frames = not all(manager.is_empty for manager in managers)

    def rates(self, key: str) -> Iterator[tuple[Owner, float] | None]:
        """How much those who have the quota of this name use of it, per second; None where there is nothing to tell."""
        for each in (self._produce, self._fetch, self._request):
            if each.key == key:
                yield from each.rates(self._clock.monotonic_ms())

    def allowance(self, connection: Connection) -> Allowance:
        client_id = connection.client_id or ""
        client = (connection.principal, told_apart(client_id))
        found = self._allowances.get(client)
        if found is None or found.is_stale:
            if found is not None:
                # Other connections may hold it, and it will not be here to be told when other quotas hold.
                found.forget()
            if len(self._allowances) >= _MOST_REMEMBERED:
                self._forget_allowances()
            user, now_ms = _user(connection.principal), self._clock.monotonic_ms()
            credits_ = (each.credit_of(user, client_id, now_ms) for each in (self._produce, self._fetch, self._request))
            found = self._allowances[client] = Allowance(*credits_)
        connection.allowance = found
        return found

    def _forget_allowances(self) -> None:
        for each in self._allowances.values():
            each.forget()
        self._allowances.clear()

    def frame_throttle_ms(self, connection: Connection, answer_bytes: int) -> int:
        user, client_id, now_ms = _user(connection.principal), connection.client_id or "", self._clock.monotonic_ms()
        if connection.api_key == ApiKey.FETCH:
            bandwidth_ms = self._fetch.record(user, client_id, answer_bytes, now_ms)
        else:
            bandwidth_ms = self._produce.record(user, client_id, connection.request_bytes, now_ms)
            if not answer_bytes:
                return bandwidth_ms
        return max(bandwidth_ms, self._request_ms(user, client_id, connection, now_ms))

    def charge_given_up(self, connection: Connection) -> None:
        if self.limits_frames:
            user, client_id = _user(connection.principal), connection.client_id or ""
            now_ms = self._clock.monotonic_ms()
            self._produce.record(user, client_id, connection.request_bytes, now_ms)
            self._request_ms(user, client_id, connection, now_ms)

    def throttle_ms(
        self, context: RequestContext, request: Request, response: Response | None, connection: Connection
    ) -> int:
        # What the controller says of its own quota, or a fetch of those that it was read by.
        told_ms: int = getattr(response, "throttle_time_ms", 0)
        if not self.limits_frames or context.api_key in EXEMPT:
            return told_ms
        user, client_id = _user(context.principal), context.client_id or ""
        now_ms, bandwidth_ms = self._clock.monotonic_ms(), 0
        if isinstance(request, FetchRequest):
            is_refused = isinstance(response, FetchResponse) and response.error_code
            # One that was read is charged already; one that was given up is not, or not for all of its time.
            if replica_of(request) >= 0 or not (is_refused or response is None):
                return told_ms
        elif isinstance(request, ProduceRequest):
            bandwidth_ms = self._produce.record(user, client_id, connection.request_bytes, now_ms)
            if not request.acks:
                return bandwidth_ms
        return max(told_ms, bandwidth_ms, self._request_ms(user, client_id, connection, now_ms))

    def fetch_max_bytes(self, context: RequestContext, max_bytes: int) -> int:
        most = self._fetch.most_at_once(_user(context.principal), context.client_id or "")
        return max_bytes if most is None else int(min(max_bytes, most))

    def fetch_throttle_ms(self, context: RequestContext, connection: Connection, size_bytes: int) -> tuple[int, bool]:
        user, client_id, now_ms = _user(context.principal), context.client_id or "", self._clock.monotonic_ms()
        request_ms = self._request_ms(user, client_id, connection, now_ms)
        is_first = self._fetch.is_unused(user, client_id, now_ms)
        bandwidth_ms = self._fetch.record(user, client_id, size_bytes, now_ms)
        if not request_ms and not bandwidth_ms:
            return 0, True
        if is_first and not request_ms:
            return bandwidth_ms, True
        self._fetch.unrecord(user, client_id, size_bytes, now_ms)
        return max(request_ms, bandwidth_ms), False

    def charge_rest(self, context: RequestContext, connection: Connection) -> None:
        # Nobody waits for it now: how long was told already. The next request does.
        self._request_ms(_user(context.principal), context.client_id or "", connection, self._clock.monotonic_ms())

    def _request_ms(self, user: str, client_id: str, connection: Connection, now_ms: int) -> int:
        if self._request.is_empty:
            return 0
        return self._request.record(user, client_id, connection.charge_ns() * _PERCENT_SECONDS_PER_NS, now_ms)


def _user(principal: str) -> str:
    return principal.partition(":")[2]
