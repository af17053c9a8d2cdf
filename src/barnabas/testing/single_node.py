"""Settings for a node in a test: small, so that it starts at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["TEST_DEFAULTS"]

#: What differs from `barnabas up`: internal topics with one partition each.
TEST_DEFAULTS: Final[Mapping[str, object]] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
