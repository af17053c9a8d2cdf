"""CreateDelegationToken (38): a secret that logs in for somebody, for a while. The controller gives it.

Nobody gets one who has not logged in, or has logged in with one: a token must not make others.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.metadata.delegation_tokens import refused_token, token_owner
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

API_KEY = ApiKey.CREATE_DELEGATION_TOKEN

NEVER_MS: Final = -1
_ANONYMOUS: Final = "User:ANONYMOUS"


def handle(
    services: CommonServices, context: RequestContext, request: CreateDelegationTokenRequest, connection: Connection
) -> CreateDelegationTokenResponse | Steps[CreateDelegationTokenResponse]:
    requester = context.principal
    owner = token_owner(request, requester)
    if not may_ask_for_tokens(services, context, connection):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return refused_token(owner, requester, context.version, code, NEVER_MS)
    if owner != requester and not services.authorizer.is_allowed(
        context, AclOperation.CREATE_TOKENS, Resource.USER, owner
    ):
        code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        return refused_token(owner, requester, context.version, code, NEVER_MS)
    return forwarded(services, context, request)


def may_ask_for_tokens(services: CommonServices, context: RequestContext, connection: Connection) -> bool:
    """Whether somebody has shown who it is by something else than a token."""
    protocol = services.settings.security_protocols.get(context.listener, "PLAINTEXT")
    if connection.is_token_authenticated or protocol == "PLAINTEXT":
        return False
    return protocol != "SSL" or context.principal != _ANONYMOUS
