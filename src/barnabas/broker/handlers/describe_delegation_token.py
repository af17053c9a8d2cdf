"""DescribeDelegationToken (41): the tokens of those who ask, and of others where that is allowed."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.handlers.create_delegation_token import may_ask_for_tokens
from barnabas.broker.services import CommonServices
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.metadata.delegation_tokens import describe_delegation_tokens
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

API_KEY = ApiKey.DESCRIBE_DELEGATION_TOKEN
MAX_ELEMENTS: Final = 10_000


def handle(
    services: CommonServices, context: RequestContext, request: DescribeDelegationTokenRequest, connection: Connection
) -> DescribeDelegationTokenResponse:
    if not may_ask_for_tokens(services, context, connection):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[])
    secret_key = services.settings.delegation_token_secret_key
    if secret_key is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, tokens=[])
    if request.owners is not None and not request.owners:
        return DescribeDelegationTokenResponse(tokens=[])
    owners = None
    if request.owners is not None:
        owners = [f"{each.principal_type}:{each.principal_name}" for each in request.owners]
    allows = services.authorizer.is_allowed

    def may_see(token_id: str, owner: str) -> bool:
        return allows(context, AclOperation.DESCRIBE, Resource.DELEGATION_TOKEN, token_id) or allows(
            context, AclOperation.DESCRIBE_TOKENS, Resource.USER, owner
        )

    image = services.metadata.image
    return describe_delegation_tokens(image, secret_key.reveal(), context.principal, owners, context.version, may_see)
