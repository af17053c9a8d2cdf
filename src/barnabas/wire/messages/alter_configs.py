"""AlterConfigs (33): replaces all settings of a resource.

Old: what is not named falls back to its default. IncrementalAlterConfigs changes one by one.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class AlterableConfig(Struct):
    name: str
    value: str | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


class AlterConfigsRequest(Request, api_key=33, versions="0-2", flexible="2+", listeners="broker controller"):
    resources: list[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    resource_type: Int8
    resource_name: str


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]
