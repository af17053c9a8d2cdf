"""ExpireDelegationToken (40): ends a token. There are none: see CreateDelegationToken."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

API_KEY = ApiKey.EXPIRE_DELEGATION_TOKEN


def handle(
    services: CommonServices, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )
