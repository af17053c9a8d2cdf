"""How many partitions a client may have created or deleted per second (KIP-599), asked before anything is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.quotas import QuotaWindow, TokenBucket
from barnabas.base.recently_used import RecentlyUsed
from barnabas.metadata.access_images import ClientQuotasImage
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.client_quotas import CONTROLLER_MUTATION_RATE
from barnabas.metadata.quota_limits import Owner, QuotaLimits
from barnabas.wire.message import Request
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest

#: Called with how many partitions would come or go, once nothing else is wrong. Raises `BrokerError` if that is too
#: much just now.
TakesQuota = Callable[[int], None]

#: From these versions on clients know the error, and nothing is done for those who have used up their quota. Older
#: ones are served, and made to wait after it.
_FIRST_STRICT: Final[dict[type[Request], int]] = {
    CreateTopicsRequest: 6,
    CreatePartitionsRequest: 3,
    DeleteTopicsRequest: 5,
}


def unbounded(partitions: int) -> None:
    """There is no quota."""


class ControllerMutationQuota:
    """The quota of who sent one request."""

    def __init__(self, bucket: TokenBucket, rate: float, now_ms: int, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.throttle_ms = 0

    def take(self, partitions: int) -> None:
        """Kafka's rule: who has not used up the quota may take any number at once, and pays for it afterwards."""
        bucket, rate, now_ms = self._bucket, self._rate, self._now_ms
        if self._is_strict:
            bucket.take(0, rate, now_ms)
            if bucket.tokens(rate, now_ms) < 0:
                self.throttle_ms = bucket.throttle_ms(rate, now_ms)
                code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
                raise BrokerError(code, code.text)
            bucket.take(partitions, rate, now_ms)
        else:
            bucket.take(partitions, rate, now_ms)
            self.throttle_ms = bucket.throttle_ms(rate, now_ms)


class ControllerMutationQuotas:
    """The buckets of all who have such a quota. They are of the active controller alone: the next one begins anew."""

    def __init__(self) -> None:
        self._limits = QuotaLimits(ClientQuotasImage(), CONTROLLER_MUTATION_RATE)
        self._of_image: ClientQuotasImage | None = None
        self._buckets: RecentlyUsed[Owner, TokenBucket] = RecentlyUsed(self._is_full)

    def of(
        self,
        quotas: ClientQuotasImage,
        window: QuotaWindow,
        request: Request,
        version: int,
        caller: AuthorizableRequestContext,
        now_ms: int,
    ) -> ControllerMutationQuota | None:
        """None for those who have none, as the nodes of the cluster themselves."""
        if self._of_image is not quotas:
            self._limits, self._of_image = QuotaLimits(quotas, CONTROLLER_MUTATION_RATE), quotas
        if self._limits.is_empty or caller.is_own:
            return None
        limit = self._limits.of(caller.principal.partition(":")[2], caller.client_id or "")
        if limit is None:
            return None
        bucket = self._buckets.use(limit.owner)
        if bucket is None:
            bucket = TokenBucket(window)
            self._buckets.add(limit.owner, bucket, now_ms)
        is_strict = version >= _FIRST_STRICT[type(request)]
        return ControllerMutationQuota(bucket, limit.bound, now_ms, is_strict=is_strict)

    def tokens(self, now_ms: int) -> Iterator[tuple[Owner, float] | None]:
        """How much is left to those who have such a quota, and have used it lately; negative if they must wait. None
        for each of whom there is nothing to tell, so that whoever asks may pause there, too."""
        for owner, bucket in self._buckets.items():
            rate = self._limits.bound_of(owner)
            if rate is None or bucket.is_forgotten(rate, now_ms):
                yield None
            else:
                yield owner, bucket.tokens(rate, now_ms)

    def _is_full(self, owner: Owner, bucket: TokenBucket, now_ms: int) -> bool:
        """As one that nothing was taken from; or nobody's any more."""
        rate = self._limits.bound_of(owner)
        return rate is None or bucket.is_forgotten(rate, now_ms)
