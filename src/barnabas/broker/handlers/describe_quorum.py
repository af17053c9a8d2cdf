"""DescribeQuorum (55): who leads the metadata log, and how far each replica of it is. The controller knows."""

from __future__ import annotations

from typing import Final

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.DESCRIBE_QUORUM
#: There is one partition to ask for.
MAX_ELEMENTS: Final = 1000

handle = forwarded
