"""DescribeAcls (29): lists access rules.

v1 adds the kind of pattern; user resources came with v3 but need no new field.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class DescribeAclsRequest(
    Request, api_key=29, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class AclDescription(Struct):
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(Struct):
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = field("1+", default=3)
    acls: list[AclDescription]


class DescribeAclsResponse(Response, api_key=29, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    resources: list[DescribeAclsResource]
