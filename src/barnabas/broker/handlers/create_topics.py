"""CreateTopics (19): creates topics; the controller decides, and the answer waits until they can be used here.

v4 lets -1 stand for the node's defaults (older versions get the same); v5 answers with the resulting settings.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.context import CLUSTER_NAME, Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited, parts_for_the_controller
from barnabas.metadata.controller import Controller, Outcome
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

API_KEY = ApiKey.CREATE_TOPICS
#: Enough for as many partitions as one request may create, with replicas on many brokers each.
MAX_ELEMENTS: Final = 200_000


def handle(services: Services, context: RequestContext, request: CreateTopicsRequest) -> Steps[CreateTopicsResponse]:
    authorizer = services.authorizer
    may_create_all = authorizer.is_allowed(context, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)

    def may_create(name: str) -> bool:
        return may_create_all or authorizer.is_allowed(context, Operation.CREATE, Resource.TOPIC, name)

    def may_see_configs(name: str) -> bool:
        return authorizer.is_allowed(context, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name)

    def create(part: list[CreatableTopic], controller: Controller) -> Outcome[CreateTopicsResponse]:
        partial_request = CreateTopicsRequest(
            topics=part, timeout_ms=request.timeout_ms, validate_only=request.validate_only
        )
        return controller.create_topics(partial_request, may_create=may_create, may_see_configs=may_see_configs)

    response = CreateTopicsResponse(topics=[])
    for part in (yield from parts_for_the_controller(request.topics, lambda topic: topic.name, _cost)):
        deciding = services.controller.submit(partial(create, part), timeout_ms=request.timeout_ms)
        response.topics += (yield from awaited(deciding)).topics
    return response


def _cost(topic: CreatableTopic) -> int:
    return max(1, topic.num_partitions, len(topic.assignments)) + len(topic.configs)
