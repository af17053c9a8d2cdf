"""AlterPartition (56): a leader says who is in sync with it. The controller decides."""

from __future__ import annotations

from typing import Final

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.ALTER_PARTITION
#: Enough for all partitions that a broker may lead, when a follower of all of them comes or goes.
MAX_ELEMENTS: Final = 1_000_000

handle = forwarded
