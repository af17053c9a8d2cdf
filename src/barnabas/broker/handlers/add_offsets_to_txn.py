"""AddOffsetsToTxn (25): makes the partition of `__consumer_offsets` that a group has part of a transaction."""

from __future__ import annotations

import asyncio

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.coordinator.transactions.requests import ADD_OFFSETS, OffsetsToTxn
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

API_KEY = ApiKey.ADD_OFFSETS_TO_TXN


def handle(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | asyncio.Future[AddOffsetsToTxnResponse]:
    is_allowed = services.authorizer.is_allowed
    if not is_allowed(context, AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not is_allowed(context, AclOperation.READ, Resource.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    partition = TopicPartition(CONSUMER_OFFSETS, services.groups.partition_for(request.group_id))
    return services.transactions.submit(ADD_OFFSETS, OffsetsToTxn(request, partition), context.version)
