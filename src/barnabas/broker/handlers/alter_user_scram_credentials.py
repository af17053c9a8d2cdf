"""AlterUserScramCredentials (51): users that log in with SCRAM come, change and go. The controller decides."""

from __future__ import annotations

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

handle = forwarded
