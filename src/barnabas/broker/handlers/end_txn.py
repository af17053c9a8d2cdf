"""EndTxn (26): commits or aborts a transaction."""

from __future__ import annotations

import asyncio

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.coordinator.transactions.end_txn import end_failed
from barnabas.coordinator.transactions.requests import END_TXN
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

API_KEY = ApiKey.END_TXN


def handle(
    services: Services, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | asyncio.Future[EndTxnResponse]:
    resource = Resource.TRANSACTIONAL_ID, request.transactional_id
    if not services.authorizer.is_allowed(context, AclOperation.WRITE, *resource):
        return end_failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return services.transactions.submit(END_TXN, request, context.version)
