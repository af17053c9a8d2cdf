"""ExpireDelegationToken (40): lets a token end. The controller decides; see CreateDelegationToken."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.handlers.create_delegation_token import NEVER_MS, may_ask_for_tokens
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

API_KEY = ApiKey.EXPIRE_DELEGATION_TOKEN


def handle(
    services: CommonServices, context: RequestContext, request: ExpireDelegationTokenRequest, connection: Connection
) -> ExpireDelegationTokenResponse | Steps[ExpireDelegationTokenResponse]:
    if not may_ask_for_tokens(services, context, connection):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NEVER_MS)
    return forwarded(services, context, request)
