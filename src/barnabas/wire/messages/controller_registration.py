"""ControllerRegistration (70): a controller tells the active one about itself."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, UInt16


class Listener(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


class ControllerRegistrationRequest(Request, api_key=70, versions="0", flexible="0+", listeners="controller"):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: list[Listener]
    features: list[Feature]


class ControllerRegistrationResponse(Response, api_key=70, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
