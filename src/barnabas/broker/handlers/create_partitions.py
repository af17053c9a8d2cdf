"""CreatePartitions (37): adds partitions to topics."""

from __future__ import annotations

from barnabas.broker.context import Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

API_KEY = ApiKey.CREATE_PARTITIONS


async def handle(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    def may_alter(name: str) -> bool:
        return services.authorizer.is_allowed(context, Operation.ALTER, Resource.TOPIC, name)

    return await services.controller.submit(
        lambda controller: controller.create_partitions(request, may_alter=may_alter), timeout_ms=request.timeout_ms
    )
