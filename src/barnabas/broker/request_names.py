"""Names under which requests are counted besides their own, as Kafka does: by who asks, or what for."""

from __future__ import annotations

from typing import Final

#: Beyond the keys of APIs.
FETCH_FOLLOWER_SLOT: Final = 120
