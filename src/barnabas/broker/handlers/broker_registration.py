"""BrokerRegistration (62): a broker joins the cluster. The controller decides."""

from __future__ import annotations

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.BROKER_REGISTRATION

handle = forwarded
