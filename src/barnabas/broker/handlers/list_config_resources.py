"""ListConfigResources (74): what has settings. v0 lists client metrics alone; v1 what is asked for, or all kinds.

Topics and brokers are listed whether or not they have settings of their own, groups and client metrics if they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Room, Steps
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.metadata.image import ClusterImage, ConfigResourceType
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

API_KEY = ApiKey.LIST_CONFIG_RESOURCES
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0
#: There are a handful of types to ask for.
MAX_ELEMENTS: Final = 1000

_FIRST_WITH_TYPES: Final = 1
#: Of memory for a resource in the answer.
_RESOURCE_BYTES: Final = 256
_LISTED: Final = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)


def handle(
    services: CommonServices, context: RequestContext, request: ListConfigResourcesRequest
) -> Steps[ListConfigResourcesResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, config_resources=[])
    wanted: Iterable[int] = (ConfigResourceType.CLIENT_METRICS,)
    if context.version >= _FIRST_WITH_TYPES:
        wanted = set(request.resource_types) or _LISTED
    if not set(wanted).issubset(_LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    image = services.metadata.image
    names = {each: _names(image, each) for each in _LISTED if each in wanted}
    yield Room(sum(map(len, names.values())) * _RESOURCE_BYTES)
    response = ListConfigResourcesResponse(config_resources=[])
    for each, of_kind in names.items():
        for name in of_kind:
            response.config_resources.append(ConfigResource(resource_name=name, resource_type=each))
            yield None
    return response


def _names(image: ClusterImage, kind: ConfigResourceType) -> list[str]:
    if kind is ConfigResourceType.TOPIC:
        return list(image.topics)
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(each) for each in image.brokers]
    return [resource.name for resource in image.configs if resource.type == kind]
