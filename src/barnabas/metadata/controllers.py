"""Controllers say who they are: where they listen, and which levels of features they support."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.features import CONTROLLER_REGISTRATION
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.registrations import requested_end_points, requested_features
from barnabas.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.wire.stored.cluster_metadata import ControllerEndpoint, ControllerFeature, RegisterControllerRecord


def register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    if (image.features.metadata_version or 0) < CONTROLLER_REGISTRATION:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=requested_end_points(ControllerEndpoint, request.listeners),
        features=requested_features(ControllerFeature, request.features),
    )
    return ControllerResult(ControllerRegistrationResponse(), [record])
