"""CreateTopics (19): creates topics; the controller decides, and the answer waits until they can be used here.

v4 lets -1 stand for the node's defaults (older versions get the same); v5 answers with the resulting settings.
"""

from __future__ import annotations

from barnabas.broker.context import CLUSTER_NAME, Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

API_KEY = ApiKey.CREATE_TOPICS


async def handle(services: Services, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    authorizer = services.authorizer
    may_create_all = authorizer.is_allowed(context, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)

    def may_create(name: str) -> bool:
        return may_create_all or authorizer.is_allowed(context, Operation.CREATE, Resource.TOPIC, name)

    def may_see_configs(name: str) -> bool:
        return authorizer.is_allowed(context, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name)

    return await services.controller.submit(
        lambda controller: controller.create_topics(request, may_create=may_create, may_see_configs=may_see_configs),
        timeout_ms=request.timeout_ms,
    )
