"""ApiVersions (18): what this node serves on the listener that was asked, and the features of the cluster.

A request in a version that we do not know never gets here: the router refuses it in a form that every client can read.
Features whose levels start at 0 are told from v4 on only, since older clients cannot read them.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.metadata.features import KRAFT_VERSION, SUPPORTED
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API_KEY = ApiKey.API_VERSIONS

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    services: CommonServices, context: RequestContext, request: ApiVersionsRequest, connection: Connection
) -> ApiVersionsResponse:
    software = (request.client_software_name, request.client_software_version)
    if context.version >= 3:
        if not all(map(_SOFTWARE.fullmatch, software)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        connection.client_software = software
    image = services.metadata.image
    levels = {**image.features, KRAFT_VERSION: services.kraft_version()}
    finalized = {name: level for name, level in levels.items() if level > 0}
    return ApiVersionsResponse(
        api_keys=services.advertised(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or context.version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
        ],
    )
