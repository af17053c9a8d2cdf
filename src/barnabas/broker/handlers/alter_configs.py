"""AlterConfigs (33): replaces all settings of a resource that were set at run time."""

from __future__ import annotations

from functools import partial

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.config_resources import BrokerRules, may_alter_configs, warn_of_no_effect
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited, parts_for_the_controller
from barnabas.metadata.controller import Controller, Outcome
from barnabas.metadata.image import ConfigResource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse

API_KEY = ApiKey.ALTER_CONFIGS


def handle(services: Services, context: RequestContext, request: AlterConfigsRequest) -> Steps[AlterConfigsResponse]:
    rules = BrokerRules(services.settings.as_loaded, services.node_id)
    may_alter = may_alter_configs(services.authorizer, context)

    def alter(part: list[AlterConfigsResource], controller: Controller) -> Outcome[AlterConfigsResponse]:
        partial_request = AlterConfigsRequest(resources=part, validate_only=request.validate_only)
        return controller.alter_configs(partial_request, rules, may_alter=may_alter)

    response = AlterConfigsResponse(responses=[])
    for part in (yield from parts_for_the_controller(request.resources, _key, lambda each: len(each.configs))):
        answers = (yield from awaited(services.controller.submit(partial(alter, part)))).responses
        response.responses += answers
        for asked, answer in zip(part, answers, strict=True):
            if answer.error_code == ErrorCode.NONE and not request.validate_only:
                resource = ConfigResource(asked.resource_type, asked.resource_name)
                warn_of_no_effect(resource, [each.name for each in asked.configs])
    return response


def _key(resource: AlterConfigsResource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name
