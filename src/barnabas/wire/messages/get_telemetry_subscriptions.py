"""GetTelemetrySubscriptions (71): which metrics the cluster wants from a client."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int8, Int16, Int32


class GetTelemetrySubscriptionsRequest(Request, api_key=71, versions="0", flexible="0+"):
    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: bool
    requested_metrics: list[str]
