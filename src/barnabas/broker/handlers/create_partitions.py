"""CreatePartitions (37): adds partitions to topics."""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.context import Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited, parts_for_the_controller
from barnabas.metadata.controller import Controller, Outcome
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

API_KEY = ApiKey.CREATE_PARTITIONS
#: Enough for as many partitions as one request may create, with replicas on many brokers each.
MAX_ELEMENTS: Final = 200_000


def handle(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> Steps[CreatePartitionsResponse]:
    def may_alter(name: str) -> bool:
        return services.authorizer.is_allowed(context, Operation.ALTER, Resource.TOPIC, name)

    def create(part: list[CreatePartitionsTopic], controller: Controller) -> Outcome[CreatePartitionsResponse]:
        partial_request = CreatePartitionsRequest(
            topics=part, timeout_ms=request.timeout_ms, validate_only=request.validate_only
        )
        return controller.create_partitions(partial_request, may_alter=may_alter)

    response = CreatePartitionsResponse(results=[])
    for part in (yield from parts_for_the_controller(request.topics, lambda topic: topic.name, _cost)):
        deciding = services.controller.submit(partial(create, part), timeout_ms=request.timeout_ms)
        response.results += (yield from awaited(deciding)).results
    return response


def _cost(topic: CreatePartitionsTopic) -> int:
    return max(1, len(topic.assignments or ()))
