"""The producer's settings out of the options `kafka.*`: what tables cannot be sent with is refused on the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas.spark.client_settings import settings_for, warn_of_unknown
from barnabas.spark.core.errors import OptionError

_log: Final = logging.getLogger("barnabas.spark")

#: What a producer of single records has, and one of whole tables has not.
_REFUSED: Final = {
    "partitioner.class": (
        "the sink partitions as Kafka does by default, by the hash of the key; for any other way add a column "
        "'partition' of type int"
    ),
    "interceptor.classes": "rows are written as tables, an interceptor sees single records; change the rows instead",
}

#: Rows come by the thousand: larger batches spare both sides work, and never wait longer than small ones would.
_DEFAULTS: Final = {"batch.size": str(256 * 1024)}


def producer_settings(client: Mapping[str, str]) -> dict[str, str]:
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
    return settings_for(client, PRODUCER_SETTINGS, _DEFAULTS)
