"""Records of `producer-perf-test` in transactions: committed whenever their time is up."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from barnabas import Producer

#: Kafka's own, where an id was given and no duration.
DEFAULT_DURATION_MS: Final = 3000
_SETTING: Final = "transactional.id"


def transaction_duration_ms(options: dict[str, Any], settings: dict[str, Any]) -> int | None:
    """How long transactions take, None without any; puts the id into the settings.

    An id among the settings asks for them too, and a duration alone draws an id.
    """
    duration_ms: int | None = options["transaction_duration_ms"]
    given: str | None = options["transactional_id"]
    if given is not None:
        settings[_SETTING] = given
    elif duration_ms is not None and not settings.get(_SETTING):
        settings[_SETTING] = f"performance-producer-{uuid.uuid4()}"
    if not settings.get(_SETTING):
        return None
    return DEFAULT_DURATION_MS if duration_ms is None else duration_ms


class PerfTransactions:
    """Begins with the first record, commits when the time is up, and what is left at the end."""

    def __init__(self, producer: Producer, duration_ms: int | None) -> None:
        self._producer = producer
        self._duration_ms = duration_ms
        self._began_ms: int | None = None
        if duration_ms is not None:
            producer.init_transactions()

    def before_records(self) -> None:
        if self._duration_ms is not None and self._began_ms is None:
            self._producer.begin_transaction()
            self._began_ms = _now_ms()

    def after_records(self) -> None:
        if self._began_ms is not None and _now_ms() - self._began_ms >= (self._duration_ms or 0):
            self.finish()

    def finish(self) -> None:
        if self._began_ms is not None:
            self._producer.commit_transaction()
            self._began_ms = None


def _now_ms() -> int:
    return time.perf_counter_ns() // 1_000_000
