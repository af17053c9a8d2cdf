"""The producers of a worker process: for the rows of a sink, and for the dead letters of a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.spark.pool import ClientPool

if TYPE_CHECKING:
    from barnabas import Producer


def _new_producer(settings: Mapping[str, str]) -> Producer:
    from barnabas import Producer

    return Producer(settings)


#: Kept as long as Spark's own sink keeps one.
producers: Final = ClientPool(_new_producer, idle_s=600.0)
