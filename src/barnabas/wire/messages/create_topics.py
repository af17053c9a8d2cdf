"""CreateTopics (19): creates topics.

v4 lets -1 stand for the broker's defaults; v5 answers with the resulting settings; v7 with the topic id.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: str
    value: str | None


class CreatableTopic(Struct):
    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(
    Request, api_key=19, versions="0-7", flexible="5+", served="2-7", listeners="broker controller"
):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: bool = field("1+", default=False)


class CreatableTopicConfigs(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = field(default=-1)
    is_sensitive: bool


class CreatableTopicResult(Struct):
    name: str
    topic_id: Uuid = field("7+", default=Uuid.ZERO, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: str | None = field("1+", default="", ignorable=True)
    topic_config_error_code: Int16 = field("5+", tag=0, default=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", factory=list, ignorable=True)


class CreateTopicsResponse(Response, api_key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult]
