"""AssignReplicasToDirs (73): a broker says in which directory its replicas lie. The controller takes note."""

from __future__ import annotations

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.ASSIGN_REPLICAS_TO_DIRS

handle = forwarded
