"""DeleteTopics (20): deletes topics by name, from v6 on also by id."""

from __future__ import annotations

from functools import partial

from barnabas.base.ids import Uuid
from barnabas.broker.context import Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited, each_of, parts_for_the_controller
from barnabas.metadata.controller import Controller, Outcome
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

API_KEY = ApiKey.DELETE_TOPICS


def handle(services: Services, context: RequestContext, request: DeleteTopicsRequest) -> Steps[DeleteTopicsResponse]:
    authorizer = services.authorizer

    def may_describe(name: str) -> bool:
        return authorizer.is_allowed(context, Operation.DESCRIBE, Resource.TOPIC, name)

    def may_delete(name: str) -> bool:
        return authorizer.is_allowed(context, Operation.DELETE, Resource.TOPIC, name)

    def delete(part: list[DeleteTopicState], controller: Controller) -> Outcome[DeleteTopicsResponse]:
        partial_request = DeleteTopicsRequest(topics=part, timeout_ms=request.timeout_ms)
        return controller.delete_topics(
            partial_request, context.version, may_describe=may_describe, may_delete=may_delete
        )

    # Before v6 there were only names.
    asked = request.topics or (
        yield from each_of(request.topic_names, lambda name: DeleteTopicState(name=name, topic_id=Uuid.ZERO))
    )
    response = DeleteTopicsResponse(responses=[])
    for part in (yield from parts_for_the_controller(asked, lambda each: (each.name, each.topic_id), lambda _: 1)):
        deciding = services.controller.submit(partial(delete, part), timeout_ms=request.timeout_ms)
        response.responses += (yield from awaited(deciding)).responses
    return response
