"""DeleteTopics (20): deletes topics.

v6 also by id, in another shape.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class DeleteTopicState(Struct):
    name: str | None = field(default=None)
    topic_id: Uuid


class DeleteTopicsRequest(
    Request, api_key=20, versions="0-6", flexible="4+", served="1-6", listeners="broker controller"
):
    topics: list[DeleteTopicState] = field("6+", factory=list)
    topic_names: list[str] = field("0-5", factory=list, ignorable=True)
    timeout_ms: Int32


class DeletableTopicResult(Struct):
    name: str | None = field(nullable="6+")
    topic_id: Uuid = field("6+", default=Uuid.ZERO, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: str | None = field("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, api_key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult]
