"""DeleteAcls (31): removes the access rules that filters mean; the controller decides."""

from __future__ import annotations

from typing import Final

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.DELETE_ACLS
#: Each filter is held against all rules, without a break.
MAX_ELEMENTS: Final = 1000

handle = forwarded
