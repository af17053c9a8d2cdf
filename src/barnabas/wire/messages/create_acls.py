"""CreateAcls (30): adds access rules."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class AclCreation(Struct):
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(
    Request, api_key=30, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    creations: list[AclCreation]


class AclCreationResult(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")


class CreateAclsResponse(Response, api_key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[AclCreationResult]
