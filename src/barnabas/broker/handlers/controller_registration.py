"""ControllerRegistration (70): a controller says where it listens and what it supports. The active one takes note."""

from __future__ import annotations

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse

API_KEY = ApiKey.CONTROLLER_REGISTRATION


def handle(
    services: CommonServices, context: RequestContext, request: ControllerRegistrationRequest
) -> Steps[ControllerRegistrationResponse]:
    return forwarded(services, context, request, ControllerRegistrationResponse)
