"""The producer's settings out of the options `kafka.*`: what tables cannot be sent with is refused on the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas.base.settings.units import MINUTE_MS
from barnabas.spark.client_settings import settings_for, warn_of_unknown
from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.exactly_once.steps import DRIVER_TIMEOUT_MS, LONGEST_NEEDED_MS, NOTICED_LATE_MS

_log: Final = logging.getLogger("barnabas.spark")

#: What a producer of single records has, and one of whole tables has not.
_REFUSED: Final = {
    "partitioner.class": (
        "the sink partitions as Kafka does by default, by the hash of the key; for any other way add a column "
        "'partition' of type int"
    ),
    "interceptor.classes": "rows are written as tables, an interceptor sees single records; change the rows instead",
}

_ID: Final = "transactional.id"
#: So long that half of it is enough for a decision and what follows from it.
_SAFE_TIMEOUT_MS: Final = 2 * (DRIVER_TIMEOUT_MS + 2 * NOTICED_LATE_MS)
#: No coordinator looks for those whose time is over more often than that.
_SHORTEST_TIMEOUT_MS: Final = 1000
#: Rather long: a batch must fit in. What drivers and tasks leave behind is aborted by the next driver, not by this.
_EXACTLY_ONCE: Final = {"transaction.timeout.ms": str(10 * MINUTE_MS)}

#: Rows come by the thousand: larger batches spare both sides work, and never wait longer than small ones would.
_DEFAULTS: Final = {"batch.size": str(256 * 1024)}


def transaction_timeout_ms(client: Mapping[str, str]) -> int:
    return int(client["transaction.timeout.ms"])


def needed_ms(client: Mapping[str, str]) -> int:
    """How much time the transactions of a batch must have left when it is decided: for the decision, and then as much
    again to end them. Of a short time-out, half."""
    return min(LONGEST_NEEDED_MS, transaction_timeout_ms(client) // 2)


def _check_timeout(client: Mapping[str, str]) -> None:
    """A short time-out leaves no time to decide safely: a driver that pauses then may tell of a torn batch."""
    timeout_ms = transaction_timeout_ms(client)
    if timeout_ms < _SHORTEST_TIMEOUT_MS:
        raise OptionError(
            f"Option kafka.transaction.timeout.ms is {timeout_ms}, and delivery is exactly-once: a batch must fit in, "
            f"with time to commit it. Make it {_SAFE_TIMEOUT_MS} or longer, or leave it out for ten minutes"
        )
    if timeout_ms < _SAFE_TIMEOUT_MS:
        _log.warning(
            "kafka.transaction.timeout.ms is %d: a driver that pauses while it decides may find part of a batch "
            "aborted. From %d on it cannot.",
            timeout_ms,
            _SAFE_TIMEOUT_MS,
        )


def producer_settings(client: Mapping[str, str], *, is_exactly_once: bool = False) -> dict[str, str]:
    """Settings for a producer of the sink, checked. Raises `OptionError`; what no producer knows is warned about."""
    from barnabas.client.settings import PRODUCER_SETTINGS

    for name, reason in _REFUSED.items():
        if name in client:
            raise OptionError(f"Option kafka.{name} is {client[name]!r}, which the sink cannot do: {reason}.")
    if client.get("acks") in ("0", "1"):
        _log.warning(
            "kafka.acks is %s: a broker that fails can lose rows that Spark counts as written. Leave it out for all.",
            client["acks"],
        )
    warn_of_unknown(client, PRODUCER_SETTINGS)
    if not is_exactly_once:
        return settings_for(client, PRODUCER_SETTINGS, _DEFAULTS)
    # With an id, as tasks have one: so what contradicts transactions is refused here.
    settings = settings_for({**client, _ID: "any"}, PRODUCER_SETTINGS, _DEFAULTS | _EXACTLY_ONCE)
    _check_timeout(settings)
    return {name: value for name, value in settings.items() if name != _ID}
