"""Settings of topics, brokers, groups and more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from barnabas.client.admin.driver import NOT_DONE, Part, RequestSpec, broker_error, raise_if_error, several
from barnabas.client.admin.routes import AnyNodeOr
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse


class ConfigResourceType(IntEnum):
    """What kind of thing has settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ConfigResourceType:
        return cls.UNKNOWN


class ConfigResource(NamedTuple):
    """Something that has settings. A broker goes by its id; the empty name stands for the defaults of all brokers."""

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        return f"{ConfigResourceType(self.type).name.lower().replace('_', ' ')} {self.name or '(default)'}"


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigType(IntEnum):
    """What kind of value a setting has."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN


class ConfigOp(IntEnum):
    """How a setting changes. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSynonym(NamedTuple):
    """A value that the setting would have if what comes before it were not given."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. `value` is None for a sensitive one: brokers do not tell those."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """One change of a setting; what DELETE leaves behind is its default. Values may be numbers, booleans and lists."""

    name: str
    value: object = None
    op: ConfigOp = ConfigOp.SET


def setting_text(value: object) -> str | None:
    """A value as Kafka writes it down.

    >>> setting_text(True), setting_text(["compact", "delete"]), setting_text(None)
    ('true', 'compact,delete', None)
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(setting_text(each) or "" for each in value)
    return str(value)


def checked_resources(given: Iterable[ConfigResource]) -> list[ConfigResource]:
    """Resources, as they must be. Other clients name the type by a text."""
    resources = list(several(given))
    for each in resources:
        if not isinstance(each, ConfigResource) or not isinstance(each.type, int):
            raise TypeError(
                f"{each!r} is no resource with settings: say which kind it is, as in "
                'ConfigResource(ConfigResourceType.TOPIC, "clicks")'
            )
    return resources


class ConfigCalls(Part):
    """Calls about settings."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of each resource by name: all of them, or those in `names`."""
        resources = checked_resources(resources)
        call = await self._driver.begin("describe_configs", timeout)
        wanted = None if names is None else list(names)

        def build(spec: RequestSpec[ConfigResource]) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=each.type, resource_name=each.name, configuration_keys=wanted)
                    for each in spec.keys
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )

        def read(
            spec: RequestSpec[ConfigResource], response: DescribeConfigsResponse
        ) -> Iterable[tuple[ConfigResource, dict[str, ConfigEntry] | Exception]]:
            for result in response.results:
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                if result.error_code:
                    yield resource, broker_error(result.error_code, result.error_message)
                else:
                    yield resource, {each.name: _entry(each, resource) for each in result.configs}

        return await self._driver.ask_each(call, resources, AnyNodeOr(_broker_of), DescribeConfigsRequest, build, read)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfig]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change settings one by one; those that are not named stay as they are. All changes of a resource or none.

        Brokers before 2.3 cannot do that: `UnsupportedRequestError`. A setting or value that is not allowed is
        INVALID_CONFIG or INVALID_REQUEST, with the reason in the message.
        """
        checked_resources(changes)
        call = await self._driver.begin("alter_configs", timeout)

        def build(spec: RequestSpec[ConfigResource]) -> IncrementalAlterConfigsRequest:
            return IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            AlterableConfig(name=each.name, config_operation=each.op, value=setting_text(each.value))
                            for each in changes[resource]
                        ],
                    )
                    for resource in spec.keys
                ],
                validate_only=validate_only,
            )

        def read(
            spec: RequestSpec[ConfigResource], response: IncrementalAlterConfigsResponse
        ) -> Iterable[tuple[ConfigResource, Exception | None]]:
            for result in response.responses:
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                yield resource, broker_error(result.error_code, result.error_message) if result.error_code else None

        await self._driver.ask_each(
            call, changes, AnyNodeOr(_broker_of), IncrementalAlterConfigsRequest, build, read, may_pass=NOT_DONE
        )

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] | None = None, *, timeout: float | None = None
    ) -> tuple[ConfigResource, ...]:
        """What has settings, of some kinds or of all. Brokers before 4.1 list client metrics alone, those before 3.7
        nothing: `UnsupportedRequestError`.
        """
        call = await self._driver.begin("list_config_resources", timeout)
        wanted = list(dict.fromkeys(types or ()))

        def build(spec: RequestSpec[tuple[()]]) -> ListConfigResourcesRequest:
            if spec.version == 0 and wanted != [ConfigResourceType.CLIENT_METRICS]:
                raise spec.unsupported(
                    ListConfigResourcesRequest,
                    "that lists client metrics alone: ask for CLIENT_METRICS only",
                )
            return ListConfigResourcesRequest(resource_types=list(wanted) if spec.version else [])

        def read(response: ListConfigResourcesResponse) -> tuple[ConfigResource, ...]:
            raise_if_error(response.error_code)
            return tuple(
                ConfigResource(ConfigResourceType(each.resource_type), each.resource_name)
                for each in response.config_resources
            )

        return await self._driver.ask_one(call, AnyNodeOr(), ListConfigResourcesRequest, build, read)


def _broker_of(resource: ConfigResource) -> int | None:
    """Only a broker itself knows its static settings and its log levels; the defaults of all are known to each."""
    has_one = resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
    return int(resource.name) if has_one and resource.name.isascii() and resource.name.isdigit() else None


def _entry(each: DescribeConfigsResourceResult, resource: ConfigResource) -> ConfigEntry:
    return ConfigEntry(
        name=each.name,
        value=each.value,
        source=ConfigSource(each.config_source),
        is_sensitive=each.is_sensitive,
        is_read_only=each.read_only,
        synonyms=tuple(ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in each.synonyms),
        type=ConfigType(each.config_type),
        documentation=each.documentation or None,
    )
