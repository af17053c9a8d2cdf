"""AlterConfigs (33): replaces all settings of a resource that were set at run time."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.config_resources import BrokerRules, may_alter_configs, warn_of_no_effect
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.metadata.image import ConfigResource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

API_KEY = ApiKey.ALTER_CONFIGS


async def handle(services: Services, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    rules = BrokerRules(services.settings.as_loaded, services.node_id)
    may_alter = may_alter_configs(services.authorizer, context)
    response = await services.controller.submit(
        lambda controller: controller.alter_configs(request, rules, may_alter=may_alter)
    )
    if not request.validate_only:
        for asked, answer in zip(request.resources, response.responses, strict=True):
            if answer.error_code == ErrorCode.NONE:
                resource = ConfigResource(asked.resource_type, asked.resource_name)
                warn_of_no_effect(resource, [each.name for each in asked.configs])
    return response
