"""ControlledShutdown (7): a ZooKeeper-era broker asks to hand over its leaderships.

Declared to read old captures; never advertised. v0 is the only request whose header lacks the client id.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class ControlledShutdownRequest(Request, api_key=7, versions="0-3", flexible="3+", served="none", listeners=""):
    broker_id: Int32
    broker_epoch: Int64 = field("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str
    partition_index: Int32


class ControlledShutdownResponse(Response, api_key=7, versions="0-3", flexible="3+"):
    error_code: Int16 = field(default=0)
    remaining_partitions: list[RemainingPartition]
