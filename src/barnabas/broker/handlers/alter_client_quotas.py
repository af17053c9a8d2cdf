"""AlterClientQuotas (49): how much users, client ids and addresses may use. The controller decides."""

from __future__ import annotations

from typing import Final

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.ALTER_CLIENT_QUOTAS
MAX_ELEMENTS: Final = 200_000

handle = forwarded
