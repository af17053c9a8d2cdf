"""DeleteTopics (20): deletes topics by name, from v6 on also by id."""

from __future__ import annotations

from barnabas.base.ids import Uuid
from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps, each_of
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

API_KEY = ApiKey.DELETE_TOPICS


def handle(
    services: CommonServices, context: RequestContext, request: DeleteTopicsRequest
) -> Steps[DeleteTopicsResponse]:
    # Before v6 there were only names.
    topics = request.topics or (
        yield from each_of(request.topic_names, lambda name: DeleteTopicState(name=name, topic_id=Uuid.ZERO))
    )
    named = DeleteTopicsRequest(topics=topics, timeout_ms=request.timeout_ms)
    response: DeleteTopicsResponse = yield from forwarded(services, context, named)
    return response
