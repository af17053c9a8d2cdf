"""BrokerRegistration (62): a broker joins the cluster.

v2 names its disks; v3 the epoch that it had before a clean stop, so that an unclean one shows.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64, UInt16


class Listener(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


class BrokerRegistrationRequest(Request, api_key=62, versions="0-4", flexible="0+", listeners="controller"):
    broker_id: Int32
    cluster_id: str
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: str | None
    is_migrating_zk_broker: bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("2+", factory=list, ignorable=True)
    previous_broker_epoch: Int64 = field("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    broker_epoch: Int64 = field(default=-1)
