"""DescribeConfigs (32): the settings of topics and of this broker, each with where its value comes from.

v1 can list all places that give a value, v3 adds types and documentation. The broker with the empty name stands for
what was set for all brokers at run time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.settings import Setting, Type
from barnabas.broker.configs import logger_levels
from barnabas.broker.configs.config_resources import (
    Synonym,
    declaration,
    described,
    is_changeable,
    is_secret,
    resolved_topic_defaults,
    told_synonyms,
)
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.broker.settings import BROKER_SETTINGS
from barnabas.broker.turns import Room, Steps, each_of
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.metadata.image import ConfigResourceType
from barnabas.metadata.options import ConfigSource
from barnabas.metadata.topic_names import what_is_wrong_with_name
from barnabas.storage.settings import TOPIC_SETTINGS
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API_KEY = ApiKey.DESCRIBE_CONFIGS
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0

_TYPES: Final = {
    Type.BOOLEAN: 1,
    Type.STRING: 2,
    Type.INT: 3,
    Type.SHORT: 4,
    Type.LONG: 5,
    Type.DOUBLE: 6,
    Type.LIST: 7,
    Type.CLASS: 8,
    Type.PASSWORD: 9,
}
_UNKNOWN_TYPE: Final = 0
#: About what a setting takes in the answer, without and with its documentation, and what a refusal does.
_SETTING_BYTES: Final = 192
_DOCUMENTED_BYTES: Final = 384
_REFUSAL_BYTES: Final = 256
#: What groups and client metrics have.
_FEW_SETTINGS: Final = 32


def handle(
    services: CommonServices, context: RequestContext, request: DescribeConfigsRequest
) -> Steps[DescribeConfigsResponse]:
    description = _Description(services, request)
    resources = yield from _once_each(request.resources)
    # Each is encoded as soon as it is described: as objects they would take many times the memory.
    yield Room(sum((yield from each_of(resources, description.expected_bytes))))
    results = []
    for asked in resources:
        result = DescribeConfigsResult(
            error_message="", resource_type=asked.resource_type, resource_name=asked.resource_name, configs=[]
        )
        try:
            _check_allowed(services, context, asked)
            result.configs = yield from description.of(asked)
        except BrokerError as failure:
            result.error_code = failure.code
            result.error_message = failure.message
        results.append(DescribeConfigsResponse.piece(result, context.version))
        yield None
    return DescribeConfigsResponse(results=results)


def _once_each(resources: list[DescribeConfigsResource]) -> Steps[list[DescribeConfigsResource]]:
    """Each resource once, with all the keys that are wanted of it."""
    found: dict[tuple[int, str], DescribeConfigsResource] = {}
    for each in resources:
        yield None
        known = found.setdefault((each.resource_type, each.resource_name), each)
        if known is not each and known.configuration_keys:
            # No keys at all mean all keys, as null does.
            if each.configuration_keys:
                known.configuration_keys += each.configuration_keys
            else:
                known.configuration_keys = None
    return list(found.values())


def _check_allowed(services: CommonServices, context: RequestContext, asked: DescribeConfigsResource) -> None:
    resource, name, code = Resource.CLUSTER, CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if asked.resource_type == ConfigResourceType.TOPIC:
        resource, name, code = Resource.TOPIC, asked.resource_name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif asked.resource_type == ConfigResourceType.GROUP:
        resource, name, code = Resource.GROUP, asked.resource_name, ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE_CONFIGS, resource, name):
        raise BrokerError(code, f"not allowed to see the settings of {asked.resource_name or 'the cluster'}")


class _Description:
    """What one request wants to know."""

    def __init__(self, services: CommonServices, request: DescribeConfigsRequest) -> None:
        self.static = services.settings.as_loaded
        self.image = services.metadata.image
        self.node_id = services.node_id
        self.request = request

    def expected_bytes(self, asked: DescribeConfigsResource) -> int:
        """About how much is to be said of a resource."""
        name = asked.resource_name
        match asked.resource_type:
            case ConfigResourceType.TOPIC:
                count = len(TOPIC_SETTINGS) if name in self.image.topics else 0
            case ConfigResourceType.GROUP | ConfigResourceType.CLIENT_METRICS:
                count = _FEW_SETTINGS
            case _:
                count = len(BROKER_SETTINGS) if name in ("", str(self.node_id)) else 0
        setting_bytes = _DOCUMENTED_BYTES if self.request.include_documentation else _SETTING_BYTES
        return count * setting_bytes + _REFUSAL_BYTES + len(name)

    def of(self, asked: DescribeConfigsResource) -> Steps[list[DescribeConfigsResourceResult]]:
        match asked.resource_type:
            case ConfigResourceType.TOPIC:
                configs = self._topic(asked.resource_name)
            case ConfigResourceType.BROKER if not asked.resource_name:
                configs = self._all_brokers()
            case ConfigResourceType.BROKER:
                self._check_this_node(asked.resource_name)
                configs = self._broker()
            case ConfigResourceType.BROKER_LOGGER:
                self._check_this_node(asked.resource_name)
                configs = self._loggers()
            case ConfigResourceType.GROUP | ConfigResourceType.CLIENT_METRICS:
                if not asked.resource_name:
                    raise BrokerError(ErrorCode.INVALID_REQUEST, "the name of the resource is missing")
                configs = self._other(ConfigResourceType(asked.resource_type), asked.resource_name)
            case _:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"there is no resource type {asked.resource_type}")
        # No keys at all mean all keys, as null does.
        wanted = set(asked.configuration_keys or ())
        described = []
        for each in configs:
            yield None
            if not wanted or each.name in wanted:
                described.append(each)
        return described

    def _check_this_node(self, name: str) -> None:
        if name != str(self.node_id):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"this is broker {self.node_id}: ask broker {name!r} itself for its settings"
            )

    def _topic(self, topic: str) -> Iterator[DescribeConfigsResourceResult]:
        problem = what_is_wrong_with_name(topic)
        if problem is not None:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic not in self.image.topics:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        return self._topic_configs(topic)

    def _topic_configs(self, topic: str) -> Iterator[DescribeConfigsResourceResult]:
        own = self.image.config(ConfigResourceType.TOPIC, topic)
        defaults = resolved_topic_defaults(self.static, self.image, self.node_id)
        for name in sorted({*TOPIC_SETTINGS, *own}):
            setting = TOPIC_SETTINGS.get(name)
            if setting is not None and setting.internal and name not in own:
                continue
            synonyms = [Synonym(name, own[name], ConfigSource.TOPIC)] if name in own else []
            if setting is not None and setting.server_default is not None:
                synonyms += told_synonyms(self.static, self.image, self.node_id, setting.server_default)
            if name in own:
                value: str | None = own[name]
            elif name in defaults:
                value = defaults[name].value
            else:
                value = setting.default_text if setting is not None else None
            yield self._result(name, value, synonyms, setting, read_only=False, secret=setting is None)

    def _broker(self) -> Iterator[DescribeConfigsResourceResult]:
        dynamic = {
            *self.image.config(ConfigResourceType.BROKER, ""),
            *self.image.config(ConfigResourceType.BROKER, str(self.node_id)),
        }
        for name in sorted({*BROKER_SETTINGS, *self.static.extras, *dynamic}):
            setting = declaration(name)
            if setting is not None and setting.internal:
                continue
            synonyms = told_synonyms(self.static, self.image, self.node_id, name)
            value = synonyms[0].value if synonyms else None
            yield self._result(
                name, value, synonyms, setting, read_only=not is_changeable(name), secret=is_secret(name)
            )

    def _all_brokers(self) -> Iterator[DescribeConfigsResourceResult]:
        for name, value in sorted(self.image.config(ConfigResourceType.BROKER, "").items()):
            shown = None if is_secret(name) else value
            synonyms = [Synonym(name, shown, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
            read_only = not is_changeable(name)
            yield self._result(name, shown, synonyms, declaration(name), read_only=read_only, secret=is_secret(name))

    def _other(self, kind: ConfigResourceType, name: str) -> Iterator[DescribeConfigsResourceResult]:
        own = self.image.config(kind, name)
        for setting, value, synonyms in described(kind, own, self.static, self.image, self.node_id):
            yield self._result(setting.name, value, synonyms, setting, read_only=False, secret=False)

    def _loggers(self) -> Iterator[DescribeConfigsResourceResult]:
        for name, level in logger_levels.logger_levels().items():
            synonyms = [Synonym(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER)]
            yield self._result(name, level, synonyms, None, read_only=False, secret=False)

    def _result(
        self,
        name: str,
        value: str | None,
        synonyms: list[Synonym],
        setting: Setting | None,
        *,
        read_only: bool,
        secret: bool,
    ) -> DescribeConfigsResourceResult:
        shown = synonyms if self.request.include_synonyms else []
        return DescribeConfigsResourceResult(
            name=name,
            value=None if secret else value,
            read_only=read_only,
            config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            is_sensitive=secret,
            synonyms=[
                DescribeConfigsSynonym(name=each.name, value=None if secret else each.value, source=each.source)
                for each in shown
            ],
            config_type=_UNKNOWN_TYPE if setting is None else _TYPES[setting.type],
            documentation=setting.doc if setting is not None and self.request.include_documentation else None,
        )
