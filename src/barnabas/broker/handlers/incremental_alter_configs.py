"""IncrementalAlterConfigs (44): changes settings of topics and brokers one by one.

Levels of loggers belong to this process alone: they are changed here and forgotten when it ends.
"""

from __future__ import annotations

from collections import Counter
from copy import copy

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.configs import logger_levels
from barnabas.broker.configs.config_resources import warn_of_no_effect, why_not_here
from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.metadata.configs import MAX_CONFIGS_PER_RESOURCE, ConfigOperation
from barnabas.metadata.controller_apis import may_alter_configs
from barnabas.metadata.image import ConfigResource, ConfigResourceType
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS


def handle(
    services: CommonServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Steps[IncrementalAlterConfigsResponse]:
    loggers: list[AlterConfigsResource] = []
    to_forward: list[AlterConfigsResource] = []
    answered_here: list[AlterConfigsResourceResponse] = []
    for resource in request.resources:
        changes = {
            each.name: each.value if each.config_operation == ConfigOperation.SET else None for each in resource.configs
        }
        reason = why_not_here(services, context, ConfigResource(*_key(resource)), changes)
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            loggers.append(resource)
        elif reason is None:
            to_forward.append(resource)
        else:
            answered_here.append(_answer(resource, BrokerError(ErrorCode.INVALID_REQUEST, reason)))
        yield None
    for resource in loggers:
        yield None
        try:
            if len(loggers) > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "the request names the loggers of a broker more than once")
            if not may_alter_configs(services.authorizer, context, ConfigResource(*_key(resource))):
                raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed to change log levels")
            _alter_loggers(services, resource, request.validate_only)
        except BrokerError as failure:
            answered_here.append(_answer(resource, failure))
        else:
            answered_here.append(_answer(resource))
    forwarding = copy(request)
    forwarding.resources = to_forward
    response: IncrementalAlterConfigsResponse = yield from forwarded(services, context, forwarding)
    if not request.validate_only:
        changed = {_key(each) for each in response.responses if each.error_code == ErrorCode.NONE}
        for resource in to_forward:
            if _key(resource) in changed:
                names = [each.name for each in resource.configs if each.config_operation != ConfigOperation.DELETE]
                warn_of_no_effect(ConfigResource(*_key(resource)), names)
            yield None
    response.responses += answered_here
    return response


def _answer(resource: AlterConfigsResource, failure: BrokerError | None = None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if failure is None else failure.code,
        error_message=None if failure is None else failure.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _key(resource: AlterConfigsResource | AlterConfigsResourceResponse) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _alter_loggers(services: CommonServices, resource: AlterConfigsResource, validate_only: bool) -> None:
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
