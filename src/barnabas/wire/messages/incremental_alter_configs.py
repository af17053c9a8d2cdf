"""IncrementalAlterConfigs (44): changes settings one by one.

Operations: 0 set, 1 delete, 2 append to a list, 3 subtract from a list.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class AlterableConfig(Struct):
    name: str
    config_operation: Int8
    value: str | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


class IncrementalAlterConfigsRequest(Request, api_key=44, versions="0-1", flexible="1+", listeners="broker controller"):
    resources: list[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    resource_type: Int8
    resource_name: str


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]
