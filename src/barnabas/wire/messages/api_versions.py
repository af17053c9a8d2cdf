"""ApiVersions (18): what a node can do.

The response's header never has tags, whatever the version, so that a client that asked too high can read the refusal:
a v0 body with error 35. v3 tells who the client is and adds features; v4 lets features start at level 0.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class ApiVersionsRequest(Request, api_key=18, versions="0-4", flexible="3+", listeners="broker controller"):
    client_software_name: str = field("3+", default="", ignorable=True)
    client_software_version: str = field("3+", default="", ignorable=True)


class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: str
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    name: str
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Response, api_key=18, versions="0-4", flexible="3+"):
    error_code: Int16 = field(default=0)
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0, factory=list, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2, factory=list, ignorable=True)
    zk_migration_ready: bool = field("3+", tag=3, default=False, ignorable=True)
