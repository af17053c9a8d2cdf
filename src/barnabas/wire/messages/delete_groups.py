"""DeleteGroups (42): deletes groups that have no members."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class DeleteGroupsRequest(Request, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str]


class DeletableGroupResult(Struct):
    group_id: str
    error_code: Int16 = field(default=0)


class DeleteGroupsResponse(Response, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[DeletableGroupResult]
