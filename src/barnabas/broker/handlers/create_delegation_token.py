"""CreateDelegationToken (38): tokens that log in for somebody. Nobody logs in on a PLAINTEXT listener, the only kind
that is built, and as in Kafka no tokens are given there."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

API_KEY = ApiKey.CREATE_DELEGATION_TOKEN

_NEVER_MS: Final = -1
_FIRST_WITH_REQUESTER: Final = 3


def handle(
    services: CommonServices, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    kind, _, name = context.principal.partition(":")
    refusal = CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=request.owner_principal_type or kind,
        principal_name=request.owner_principal_name or name,
        issue_timestamp_ms=_NEVER_MS,
        expiry_timestamp_ms=_NEVER_MS,
        max_timestamp_ms=_NEVER_MS,
        token_id="",
        hmac=b"",
    )
    if context.version >= _FIRST_WITH_REQUESTER:
        refusal.token_requester_principal_type, refusal.token_requester_principal_name = kind, name
    return refusal
