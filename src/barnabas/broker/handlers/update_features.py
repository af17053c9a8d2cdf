"""UpdateFeatures (57): levels of features go up or down. The controller decides."""

from __future__ import annotations

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

API_KEY = ApiKey.UPDATE_FEATURES


def handle(
    services: CommonServices, context: RequestContext, request: UpdateFeaturesRequest
) -> Steps[UpdateFeaturesResponse]:
    return forwarded(services, context, request, UpdateFeaturesResponse)
