"""UpdateFeatures (57): raises or lowers finalised features.

v1 can validate only and tells upgrades from downgrades; v2 leaves out the results by feature.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class FeatureUpdateKey(Struct):
    feature: str
    max_version_level: Int16
    allow_downgrade: bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesRequest(Request, api_key=57, versions="0-2", flexible="0+", listeners="broker controller"):
    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool = field("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: str
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")


class UpdateFeaturesResponse(Response, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    results: list[UpdatableFeatureResult] = field("0-1", factory=list, ignorable=True)
