"""IncrementalAlterConfigs (44): changes settings of topics and brokers one by one.

Levels of loggers belong to this process alone: they are changed here and forgotten when it ends.
"""

from __future__ import annotations

from collections import Counter

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker import logger_levels
from barnabas.broker.config_resources import BrokerRules, may_alter_configs, warn_of_no_effect
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.metadata.configs import ConfigOperation
from barnabas.metadata.image import ConfigResource, ResourceType
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS


async def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    rules = BrokerRules(services.settings.as_loaded, services.node_id)
    may_alter = may_alter_configs(services.authorizer, context)
    loggers = [each for each in request.resources if each.resource_type == ResourceType.BROKER_LOGGER]
    others = [each for each in request.resources if each.resource_type != ResourceType.BROKER_LOGGER]
    of_loggers = []
    for resource in loggers:
        answer = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if len(loggers) > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "the request names the loggers of a broker more than once")
            if not may_alter(ConfigResource(resource.resource_type, resource.resource_name)):
                raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed to change log levels")
            _alter_loggers(services, resource, request.validate_only)
        except BrokerError as failure:
            answer.error_code = failure.code
            answer.error_message = failure.message
        of_loggers.append(answer)
    elsewhere = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
    response = await services.controller.submit(
        lambda controller: controller.incremental_alter_configs(elsewhere, rules, may_alter=may_alter)
    )
    if not request.validate_only:
        for asked, answer in zip(others, response.responses, strict=True):
            if answer.error_code == ErrorCode.NONE:
                changed = [each.name for each in asked.configs if each.config_operation != ConfigOperation.DELETE]
                warn_of_no_effect(ConfigResource(asked.resource_type, asked.resource_name), changed)
    response.responses += of_loggers
    return response


def _alter_loggers(services: Services, resource: AlterConfigsResource, validate_only: bool) -> None:
    if resource.resource_name != str(services.node_id):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {services.node_id}: ask broker {resource.resource_name!r} itself to change its loggers",
        )
    counts = Counter(each.name for each in resource.configs)
    for each in resource.configs:
        if counts[each.name] > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the logger {each.name} is named twice")
        if not logger_levels.is_logger(each.name):
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"there is no logger {each.name}")
        if each.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the level of {each.name} is not a list: set it or delete it")
        if each.config_operation == ConfigOperation.SET and each.value not in logger_levels.LEVELS:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"logger {each.name}: there is no level {each.value}, only {', '.join(logger_levels.LEVELS)}",
            )
    if validate_only:
        return
    for each in resource.configs:
        if each.config_operation == ConfigOperation.SET and each.value is not None:
            logger_levels.set_level(each.name, each.value)
        else:
            logger_levels.reset_level(each.name)
