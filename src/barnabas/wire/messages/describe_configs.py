"""DescribeConfigs (32): settings of topics, brokers and more.

v1 lists where each value comes from; v3 types and documentation.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None


class DescribeConfigsRequest(
    Request, api_key=32, versions="0-4", flexible="4+", served="1-4", listeners="broker controller"
):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool = field("1+", default=False)
    include_documentation: bool = field("3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: str
    value: str | None
    source: Int8


class DescribeConfigsResourceResult(Struct):
    name: str
    value: str | None
    read_only: bool
    is_default: bool = field("0", default=False)
    config_source: Int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym] = field("1+", factory=list, ignorable=True)
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: str | None = field("3+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Response, api_key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResult]
