"""AllocateProducerIds (67): a broker takes ids for its producers. The controller decides."""

from __future__ import annotations

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.ALLOCATE_PRODUCER_IDS

handle = forwarded
