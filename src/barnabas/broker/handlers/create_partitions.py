"""CreatePartitions (37): adds partitions to topics."""

from __future__ import annotations

from typing import Final

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.CREATE_PARTITIONS
#: Enough for as many partitions as one request may create, with replicas on many brokers each.
MAX_ELEMENTS: Final = 200_000

handle = forwarded
