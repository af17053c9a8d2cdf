"""AlterConfigs (33): replaces all settings of a resource that were set at run time."""

from __future__ import annotations

from copy import copy

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.configs.config_resources import warn_of_no_effect, why_not_here
from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.metadata.image import ConfigResource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API_KEY = ApiKey.ALTER_CONFIGS


def handle(
    services: CommonServices, context: RequestContext, request: AlterConfigsRequest
) -> Steps[AlterConfigsResponse]:
    to_forward: list[AlterConfigsResource] = []
    refused: list[AlterConfigsResourceResponse] = []
    for resource in request.resources:
        changes = {each.name: each.value for each in resource.configs}
        found = ConfigResource(resource.resource_type, resource.resource_name)
        reason = why_not_here(services, context, found, changes)
        if reason is None:
            to_forward.append(resource)
        else:
            refused.append(
                AlterConfigsResourceResponse(
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=reason,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        yield None
    forwarding = copy(request)
    forwarding.resources = to_forward
    response: AlterConfigsResponse = yield from forwarded(services, context, forwarding)
    if not request.validate_only:
        changed = {_key(each) for each in response.responses if each.error_code == ErrorCode.NONE}
        for resource in to_forward:
            if _key(resource) in changed:
                warn_of_no_effect(ConfigResource(*_key(resource)), [each.name for each in resource.configs])
            yield None
    response.responses += refused
    return response


def _key(resource: AlterConfigsResource | AlterConfigsResourceResponse) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name
