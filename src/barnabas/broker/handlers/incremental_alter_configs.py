"""IncrementalAlterConfigs (44): changes settings of topics and brokers one by one.

Levels of loggers belong to this process alone: they are changed here and forgotten when it ends.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker import logger_levels
from barnabas.broker.config_resources import BrokerRules, may_alter_configs, warn_of_no_effect
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited, parts_for_the_controller
from barnabas.metadata.configs import MAX_CONFIGS_PER_RESOURCE, ConfigOperation
from barnabas.metadata.controller import Controller, Outcome
from barnabas.metadata.image import ConfigResource, ResourceType
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS


def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Steps[IncrementalAlterConfigsResponse]:
    rules = BrokerRules(services.settings.as_loaded, services.node_id)
    may_alter = may_alter_configs(services.authorizer, context)
    loggers: list[AlterConfigsResource] = []
    others: list[AlterConfigsResource] = []
    for resource in request.resources:
        (loggers if resource.resource_type == ResourceType.BROKER_LOGGER else others).append(resource)
        yield None
    of_loggers = []
    for resource in loggers:
        yield None
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

    def alter(part: list[AlterConfigsResource], controller: Controller) -> Outcome[IncrementalAlterConfigsResponse]:
        partial_request = IncrementalAlterConfigsRequest(resources=part, validate_only=request.validate_only)
        return controller.incremental_alter_configs(partial_request, rules, may_alter=may_alter)

    response = IncrementalAlterConfigsResponse(responses=[])
    for part in (yield from parts_for_the_controller(others, _key, lambda each: len(each.configs))):
        answers = (yield from awaited(services.controller.submit(partial(alter, part)))).responses
        response.responses += answers
        for asked, told in zip(part, answers, strict=True):
            if told.error_code == ErrorCode.NONE and not request.validate_only:
                changed = [each.name for each in asked.configs if each.config_operation != ConfigOperation.DELETE]
                warn_of_no_effect(ConfigResource(asked.resource_type, asked.resource_name), changed)
    response.responses += of_loggers
    return response


def _key(resource: AlterConfigsResource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _alter_loggers(services: Services, resource: AlterConfigsResource, validate_only: bool) -> None:
    if resource.resource_name != str(services.node_id):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {services.node_id}: ask broker {resource.resource_name!r} itself to change its loggers",
        )
    if len(resource.configs) > MAX_CONFIGS_PER_RESOURCE:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"more than {MAX_CONFIGS_PER_RESOURCE} loggers are named")
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
