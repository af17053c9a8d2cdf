"""Changing the settings of topics and brokers while the cluster runs.

The incremental request names settings with an operation each. The old one names all settings that a resource shall
have; it is turned into the other by taking back whatever it leaves out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.elections import MIN_ISR
from barnabas.metadata.image import ClusterImage, ConfigResource, ConfigResourceType
from barnabas.metadata.options import MAX_RECORDS_PER_REQUEST, ControllerOptions
from barnabas.metadata.topic_configs import check_topic_configs, is_topic_list, topic_default_value
from barnabas.metadata.topic_names import what_is_wrong_with_name
from barnabas.wire.messages import alter_configs as replacing
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.stored.cluster_metadata import ClearElrRecord, ConfigRecord, MetadataRecord

#: Longer values do not fit into a record.
MAX_VALUE_BYTES: Final = 32_767
#: Several times as many as there are settings.
MAX_CONFIGS_PER_RESOURCE: Final = 1000

_BROKER_ID: Final = re.compile(r"[0-9]{1,10}")
_COMMA: Final = re.compile(r"\s*,\s*")
#: Their settings are checked by what a broker knows of them.
_OTHERS: Final = (ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP)

#: Whether the one who asks may change this resource.
AllowsResource = Callable[[ConfigResource], bool]
#: The settings to change, with None for those to take back.
Changes = Mapping[str, str | None]


class ConfigOperation(IntEnum):
    """What is to be done to a setting; the numbers are the protocol's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class BrokerConfigRules(Protocol):
    """What the controller cannot know: which settings a broker has, and which of them can change while it runs."""

    def is_list(self, name: str) -> bool: ...

    def default_value(self, name: str) -> str:
        """What a list is as long as nobody has set it here."""
        ...

    def check(self, broker: str, changes: Changes, image: ClusterImage) -> None:
        """Raise `BrokerError` unless the broker, or all of them if the name is empty, can take these changes."""
        ...

    def check_other(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        """Raise `BrokerError` unless a group, or a subscription to client metrics, may have these settings."""
        ...


def every_resource(resource: ConfigResource) -> bool:
    return True


def incremental_alter_configs(
    image: ClusterImage,
    options: ControllerOptions,
    request: IncrementalAlterConfigsRequest,
    brokers: BrokerConfigRules,
    *,
    may_alter: AllowsResource = every_resource,
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    """Each resource is changed as a whole or not at all."""
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    alteration = _Alteration(image, options, brokers)
    responses = []
    for asked in request.resources:
        resource = ConfigResource(asked.resource_type, asked.resource_name)
        response = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.type, resource_name=resource.name
        )
        responses.append(response)
        try:
            if counts[resource] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"the request names {_shown(resource)} more than once")
            if not may_alter(resource):
                raise _not_allowed(resource)
            alteration.alter(resource, asked.configs)
        except BrokerError as failure:
            response.error_code = failure.code
            response.error_message = failure.message or failure.code.text
    records = [] if request.validate_only else alteration.records + _clear_elr_records(image, alteration.records)
    return ControllerResult(IncrementalAlterConfigsResponse(responses=responses), records)


def _clear_elr_records(image: ClusterImage, records: list[MetadataRecord]) -> list[MetadataRecord]:
    """Who left an in-sync set of the old minimum need not have what is acknowledged with the new one."""
    if not image.features.is_elr_enabled:
        return []
    changed = [each for each in records if isinstance(each, ConfigRecord) and each.name == MIN_ISR]
    return [
        ClearElrRecord(topic_name=each.resource_name if each.resource_type == ConfigResourceType.TOPIC else "")
        for each in changed
    ]


def alter_configs(
    image: ClusterImage,
    options: ControllerOptions,
    request: replacing.AlterConfigsRequest,
    brokers: BrokerConfigRules,
    *,
    may_alter: AllowsResource = every_resource,
) -> ControllerResult[replacing.AlterConfigsResponse]:
    """Each resource gets exactly the settings that are named, or keeps those that it has."""
    translated = IncrementalAlterConfigsRequest(
        resources=[_replacement(image, each) for each in request.resources], validate_only=request.validate_only
    )
    outcome = incremental_alter_configs(image, options, translated, brokers, may_alter=may_alter)
    responses = [
        replacing.AlterConfigsResourceResponse(
            error_code=each.error_code,
            error_message=each.error_message,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in outcome.response.responses
    ]
    return ControllerResult(replacing.AlterConfigsResponse(responses=responses), outcome.records)


class _Alteration:
    """The records of one request in the making."""

    def __init__(self, image: ClusterImage, options: ControllerOptions, brokers: BrokerConfigRules) -> None:
        self.image = image
        self.options = options
        self.brokers = brokers
        self.records: list[MetadataRecord] = []

    def alter(self, resource: ConfigResource, configs: list[AlterableConfig]) -> None:
        _check_configs(resource, configs)
        self._check_resource(resource)
        current = self.image.configs.get(resource, {})
        changes = {each.name: self._result(resource, each, current.get(each.name)) for each in configs}
        if resource.type == ConfigResourceType.BROKER and MIN_ISR in changes and self.image.features.is_elr_enabled:
            _check_min_isr(resource, changes[MIN_ISR])
        self._check_values(resource, current, changes)
        records: list[MetadataRecord] = [
            ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
            for name, value in changes.items()
            # A broker also acts on being given the same value again: it may stand for a file that has changed.
            if value != current.get(name) or resource.type == ConfigResourceType.BROKER
        ]
        if len(self.records) + len(records) > MAX_RECORDS_PER_REQUEST:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"one request may change at most {MAX_RECORDS_PER_REQUEST} settings: ask in smaller steps",
            )
        self.records += records

    def _check_resource(self, resource: ConfigResource) -> None:
        if resource.type == ConfigResourceType.TOPIC:
            if not resource.name:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "there are no settings for all topics: name one")
            problem = what_is_wrong_with_name(resource.name)
            if problem is not None:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if resource.name not in self.image.topics:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.name}")
        elif resource.type == ConfigResourceType.BROKER:
            if resource.name and not _BROKER_ID.fullmatch(resource.name):
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"{resource.name!r} is not the id of a broker: a number")
        elif resource.type in _OTHERS:
            if not resource.name:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"{_shown(resource)}: a name is missing")
        elif resource.type == ConfigResourceType.BROKER_LOGGER:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, "log levels are changed one by one, with IncrementalAlterConfigs"
            )
        else:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"there is no resource type {resource.type}")

    def _result(self, resource: ConfigResource, asked: AlterableConfig, current: str | None) -> str | None:
        """What the setting will be."""
        operation = ConfigOperation(asked.config_operation)
        if operation is ConfigOperation.DELETE:
            return None
        value = asked.value or ""
        if operation is not ConfigOperation.SET:
            value = self._changed_list(resource, operation, asked.name, value, current)
        if len(value.encode()) > MAX_VALUE_BYTES:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG, f"{asked.name}: the value would be longer than {MAX_VALUE_BYTES} bytes"
            )
        return value

    def _changed_list(
        self, resource: ConfigResource, operation: ConfigOperation, name: str, value: str, current: str | None
    ) -> str:
        is_topic = resource.type == ConfigResourceType.TOPIC
        if not (is_topic_list(name) if is_topic else self.brokers.is_list(name)):
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"{name} is not a list, so nothing can be appended to it or subtracted from it: set it",
            )
        if current is None:
            current = topic_default_value(name, self.options) if is_topic else self.brokers.default_value(name)
        items, named = _items(current), _items(value)
        if operation is ConfigOperation.APPEND:
            return ",".join(dict.fromkeys([*items, *named]))
        return ",".join(item for item in items if item not in named)

    def _check_values(self, resource: ConfigResource, current: Mapping[str, str], changes: Changes) -> None:
        if resource.type == ConfigResourceType.BROKER:
            self.brokers.check(resource.name, changes, self.image)
            if resource.name and int(resource.name) not in self.image.brokers:
                raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {resource.name}")
            return
        after = {name: value for name, value in {**current, **changes}.items() if value is not None}
        if resource.type in _OTHERS:
            self.brokers.check_other(resource, after)
            return
        check_topic_configs(resource.name, after, self.options)


def _check_min_isr(resource: ConfigResource, value: str | None) -> None:
    """While ELR is on, all brokers have the same, and have one."""
    if resource.name:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
    if value is None:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )


def _check_configs(resource: ConfigResource, configs: list[AlterableConfig]) -> None:
    if len(configs) > MAX_CONFIGS_PER_RESOURCE:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"{_shown(resource)}: more than {MAX_CONFIGS_PER_RESOURCE} settings are named"
        )
    known = [operation.value for operation in ConfigOperation]
    for name, count in Counter(each.name for each in configs).items():
        if count > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{_shown(resource)}: the setting {name} is named twice")
    for each in configs:
        if each.config_operation not in known:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{each.name}: there is no operation {each.config_operation} on settings"
            )
        if each.value is None and each.config_operation != ConfigOperation.DELETE:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{each.name} cannot be null: delete it to go back to the default"
            )


def _replacement(image: ClusterImage, asked: replacing.AlterConfigsResource) -> AlterConfigsResource:
    # One too many is enough to be refused.
    configs = asked.configs[: MAX_CONFIGS_PER_RESOURCE + 1]
    named = {each.name for each in configs}
    current = image.configs.get(ConfigResource(asked.resource_type, asked.resource_name), {})
    return AlterConfigsResource(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[
            *(
                AlterableConfig(name=each.name, config_operation=ConfigOperation.SET, value=each.value)
                for each in configs
            ),
            *(
                AlterableConfig(name=name, config_operation=ConfigOperation.DELETE, value=None)
                for name in current
                if name not in named
            ),
        ],
    )


def _items(value: str) -> list[str]:
    stripped = value.strip()
    return _COMMA.split(stripped) if stripped else []


def _not_allowed(resource: ConfigResource) -> BrokerError:
    codes: dict[int, ErrorCode] = {
        ConfigResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ConfigResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    code = codes.get(resource.type, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return BrokerError(code, f"not allowed to change the settings of {_shown(resource)}")


def _shown(resource: ConfigResource) -> str:
    if resource.type == ConfigResourceType.BROKER:
        return f"broker {resource.name}" if resource.name else "all brokers"
    kind = (
        ConfigResourceType(resource.type).name.lower() if resource.type in list(ConfigResourceType) else "the resource"
    )
    return f"{kind} {resource.name}"
