"""AlterConfigs (33): replaces all settings of a resource that were set at run time."""

from __future__ import annotations

from barnabas.broker.config_resources import BrokerRules, may_alter_configs
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

API_KEY = ApiKey.ALTER_CONFIGS


async def handle(services: Services, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    rules = BrokerRules(services.settings.as_loaded, services.node_id)
    may_alter = may_alter_configs(services.authorizer, context)
    return await services.controller.submit(
        lambda controller: controller.alter_configs(request, rules, may_alter=may_alter)
    )
