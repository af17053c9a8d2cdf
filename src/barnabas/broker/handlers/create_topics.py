"""CreateTopics (19): creates topics; the controller decides, and the answer waits until they can be used here.

v4 lets -1 stand for the node's defaults (older versions get the same); v5 answers with the resulting settings.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.CREATE_TOPICS
#: Enough for as many partitions as one request may create, with replicas on many brokers each.
MAX_ELEMENTS: Final = 200_000

handle = forwarded
