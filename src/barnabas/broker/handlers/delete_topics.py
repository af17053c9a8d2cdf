"""DeleteTopics (20): deletes topics by name, from v6 on also by id."""

from __future__ import annotations

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.DELETE_TOPICS

handle = forwarded
