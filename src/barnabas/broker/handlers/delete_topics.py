"""DeleteTopics (20): deletes topics by name, from v6 on also by id."""

from __future__ import annotations

from barnabas.broker.context import Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

API_KEY = ApiKey.DELETE_TOPICS


async def handle(services: Services, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    authorizer = services.authorizer

    def may_describe(name: str) -> bool:
        return authorizer.is_allowed(context, Operation.DESCRIBE, Resource.TOPIC, name)

    def may_delete(name: str) -> bool:
        return authorizer.is_allowed(context, Operation.DELETE, Resource.TOPIC, name)

    return await services.controller.submit(
        lambda controller: controller.delete_topics(
            request, context.version, may_describe=may_describe, may_delete=may_delete
        ),
        timeout_ms=request.timeout_ms,
    )
