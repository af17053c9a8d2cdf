"""DeleteAcls (31): removes access rules that match filters."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class DeleteAclsRequest(
    Request, api_key=31, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    filters: list[DeleteAclsFilter]


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = field("1+", default=3)
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsResponse(Response, api_key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    filter_results: list[DeleteAclsFilterResult]
