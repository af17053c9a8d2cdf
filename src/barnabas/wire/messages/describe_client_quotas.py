"""DescribeClientQuotas (48): lists quotas.

`match` in the request: null for the default entity, by `match_type` 1; 2 for any.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Float64, Int8, Int16, Int32


class ComponentData(Struct):
    entity_type: str
    match_type: Int8
    match: str | None


class DescribeClientQuotasRequest(Request, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData]
    strict: bool


class EntityData(Struct):
    entity_type: str
    entity_name: str | None


class ValueData(Struct):
    key: str
    value: Float64


class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    entries: list[EntryData] | None
