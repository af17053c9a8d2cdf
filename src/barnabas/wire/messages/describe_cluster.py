"""DescribeCluster (60): brokers or controllers of the cluster.

v1 chooses between the two; v2 also lists fenced brokers.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class DescribeClusterRequest(Request, api_key=60, versions="0-2", flexible="0+", listeners="broker controller"):
    include_cluster_authorized_operations: bool
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: bool = field("2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = field(default=None)
    is_fenced: bool = field("2+", default=False)


class DescribeClusterResponse(Response, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: str
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-2147483648)
