"""UpdateFeatures (57): levels of features go up or down. The controller decides."""

from __future__ import annotations

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.UPDATE_FEATURES

handle = forwarded
