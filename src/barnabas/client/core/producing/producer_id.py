"""Getting a producer id: when to ask for one, and what a refusal means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import BrokerError
from barnabas.base.log_context import logger
from barnabas.net.backoff import grown
from barnabas.net.errors import AuthenticationFailedError, RefusedError
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from random import Random

#: What a producer without transactions says for the timeout of its transactions.
_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1

_log = logger(__name__)


class ProducerIdSearch:
    """Asked for at the start, so that the first record need not wait; after a refusal only when a record wants it."""

    __slots__ = (
        "_backoff_max_ms",
        "_backoff_ms",
        "_failure_count",
        "_is_asked",
        "_is_refused",
        "_not_before_ms",
        "_randomness",
        "error",
    )

    def __init__(self, backoff_ms: int, backoff_max_ms: int, randomness: Random) -> None:
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._randomness = randomness
        self._is_asked = False
        self._is_refused = False
        self._failure_count = 0
        self._not_before_ms = 0.0
        #: Why there is none yet.
        self.error: Exception | None = None

    def wait_ms(self, now_ms: int, records_wait: bool) -> float:
        """How long until one should be asked for: 0 for now, infinite while an answer is awaited or nobody wants it."""
        if self._is_asked or (self._is_refused and not records_wait):
            return math.inf
        return max(self._not_before_ms - now_ms, 0.0)

    def request(self) -> InitProducerIdRequest:
        self._is_asked = True
        return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)

    def succeeded(self) -> None:
        self._is_asked = self._is_refused = False
        self.error = None
        self._failure_count = 0

    def failed(self, error: Exception, now_ms: int) -> bool:
        """Whether this is a refusal: then those who wait for an id wait in vain."""
        self._is_asked = False
        self.error = error
        self._not_before_ms = now_ms + grown(
            self._backoff_ms, self._backoff_max_ms, self._failure_count, self._randomness
        )
        self._failure_count += 1
        self._is_refused = isinstance(error, RefusedError) or (
            isinstance(error, BrokerError) and not error.code.retriable
        )
        if self._is_refused:
            _log.error("No producer id: %s%s", error, _hint(error))
        return self._is_refused


def _hint(error: Exception) -> str:
    return "" if isinstance(error, AuthenticationFailedError) else ". With enable.idempotence=false none is needed"
