"""RenewDelegationToken (39): lets a token live longer. There are none: see CreateDelegationToken."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

API_KEY = ApiKey.RENEW_DELEGATION_TOKEN


def handle(
    services: CommonServices, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )
