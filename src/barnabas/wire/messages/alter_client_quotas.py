"""AlterClientQuotas (49): changes quotas."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Float64, Int16, Int32


class EntityData(Struct):
    entity_type: str
    entity_name: str | None


class OpData(Struct):
    key: str
    value: Float64
    remove: bool


class EntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


class AlterClientQuotasRequest(Request, api_key=49, versions="0-1", flexible="1+", listeners="broker controller"):
    entries: list[EntryData]
    validate_only: bool


class EntryResult(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    entity: list[EntityData]


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field(default=0)
    entries: list[EntryResult]
