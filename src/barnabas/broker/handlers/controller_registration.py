"""ControllerRegistration (70): a controller says where it listens and what it supports. The active one takes note."""

from __future__ import annotations

from barnabas.broker.controller.forwarding import forwarded
from barnabas.wire.apis import ApiKey

API_KEY = ApiKey.CONTROLLER_REGISTRATION

handle = forwarded
