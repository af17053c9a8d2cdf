"""UnregisterBroker (64): forgets a broker that will not come back.

As in Kafka, nobody checks whether it is gone: one that still runs leads nothing until it is started again.
"""

from __future__ import annotations

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.UNREGISTER_BROKER

handle = forwarded
