"""CreateAcls (30): adds access rules; the controller decides, and the answer waits until they hold here.

v1 adds the kind of pattern; user resources came with v3 but need no new field.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.CREATE_ACLS
#: Twice as many as one request may bring about: the controller looks at them without a break.
MAX_ELEMENTS: Final = 20_000

handle = forwarded
