"""Levels of features go up and down (Kafka's FeatureControlManager): which may, and why others may not.

All updates of a request hold, or none. kraft.version is not in the records of the metadata: the quorum itself writes
it, and a record that says nothing goes behind it, so that the answer waits until both are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.elections import MIN_ISR
from barnabas.metadata.features import (
    CONTROLLER_REGISTRATION,
    ELR_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED,
    unmet_dependency,
)
from barnabas.metadata.image import ClusterImage, ConfigResourceType
from barnabas.metadata.options import ControllerOptions
from barnabas.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.wire.stored.cluster_metadata import ConfigRecord, FeatureLevelRecord, MetadataRecord, NoOpRecord

#: Levels of metadata.version that changed what records say: there is no way back over them.
_METADATA_CHANGED: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
_LAST_WITH_RESULTS: Final = 1
_NOT_SUPPORTED: Final = (0, 0)
#: Levels change together or not at all, so a request is not cut into parts. There are few features.
_MOST_UPDATES: Final = 100


class UpgradeType(IntEnum):
    """Which way a level may go; the numbers are the protocol's."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class KRaftVersion(NamedTuple):
    """The level of kraft.version (Kafka's KRaftVersionAccessor). `upgrade(level, validate_only)` raises `BrokerError`
    if it cannot be."""

    level: int
    upgrade: Callable[[int, bool], None]


class QuorumFeatures(NamedTuple):
    """What the active controller supports, and who else votes."""

    node_id: int
    voter_ids: Collection[int]
    kraft_version: KRaftVersion
    supported: Mapping[str, tuple[int, int]] = SUPPORTED


class _Refused(Exception):  # noqa: N818
    """Why a level stays as it is."""


def update_features(
    image: ClusterImage,
    options: ControllerOptions,
    quorum: QuorumFeatures,
    request: UpdateFeaturesRequest,
    version: int,
) -> ControllerResult[UpdateFeaturesResponse]:
    count = len(request.feature_updates)
    if count > _MOST_UPDATES:
        why = f"{count} features are more than a request may name ({_MOST_UPDATES})"
        return ControllerResult(UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why))
    records: list[MetadataRecord] = []
    levels = {**image.features, **{each.feature: each.max_version_level for each in request.feature_updates}}
    try:
        # The quorum acts at once, so it is asked when nothing else can be wrong.
        for update in sorted(request.feature_updates, key=lambda each: each.feature == KRAFT_VERSION):
            try:
                kind = _type(update, version)
                records += _update(image, quorum, update, kind, levels, validate_only=request.validate_only)
            except _Refused as refused:
                why = f"Invalid update version {update.max_version_level} for feature {update.feature}. {refused}"
                raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, why) from None
    except BrokerError as refused:
        why = f"The update failed for all features since the following feature had an error: {refused.message}"
        return ControllerResult(UpdateFeaturesResponse(error_code=refused.code, error_message=why))
    response = UpdateFeaturesResponse(error_message=None)
    if version <= _LAST_WITH_RESULTS:
        response.results = [
            UpdatableFeatureResult(feature=each.feature, error_message="NONE") for each in request.feature_updates
        ]
    if request.validate_only:
        return ControllerResult(response)
    if any(each.feature == ELR_VERSION and each.max_version_level > 0 for each in request.feature_updates):
        records = elr_safety_records(image, options.min_insync_replicas) + records
    return ControllerResult(response, records)


def elr_safety_records(image: ClusterImage, min_insync_replicas: int) -> list[MetadataRecord]:
    """With ELR all must agree on how many replicas have what was acknowledged: the number is set for the cluster, here
    to what stands in the controller's file, and no broker has one of its own."""
    records: list[MetadataRecord] = []
    if MIN_ISR not in image.config(ConfigResourceType.BROKER, ""):
        records.append(_min_isr_record("", str(min_insync_replicas)))
    for resource, configs in image.configs.items():
        if resource.type == ConfigResourceType.BROKER and resource.name and MIN_ISR in configs:
            records.append(_min_isr_record(resource.name, None))
    return records


def _min_isr_record(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name=broker, name=MIN_ISR, value=value)


def _type(update: FeatureUpdateKey, version: int) -> UpgradeType:
    if version == 0:
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    known = update.upgrade_type in UpgradeType.__members__.values()
    return UpgradeType(update.upgrade_type) if known else UpgradeType.UNKNOWN


def _update(
    image: ClusterImage,
    quorum: QuorumFeatures,
    update: FeatureUpdateKey,
    kind: UpgradeType,
    levels: Mapping[str, int],
    *,
    validate_only: bool,
) -> list[MetadataRecord]:
    """The records for one level; `_Refused` or `BrokerError` says why there are none."""
    name, level = update.feature, update.max_version_level
    current = quorum.kraft_version.level if name == KRAFT_VERSION else image.features.get(name, 0)
    if kind is UpgradeType.UNKNOWN:
        raise _Refused("The controller does not support the given upgrade type.")
    if level < 0:
        raise _Refused("A feature version cannot be less than 0.")
    _check_supported(image, quorum, name, level)
    if level < current and kind is UpgradeType.UPGRADE:
        raise _Refused(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > current and kind is not UpgradeType.UPGRADE:
        raise _Refused("Can't downgrade to a newer version.")
    if name == KRAFT_VERSION:
        return _update_kraft_version(quorum.kraft_version, level, kind, validate_only)
    if name == METADATA_VERSION:
        _check_metadata_version(current, level, kind)
    elif name not in FEATURES:
        raise _Refused(f"Feature {name} not found.")
    elif (unmet := unmet_dependency(name, level, levels)) is not None:
        raise _Refused(unmet)
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _check_supported(image: ClusterImage, quorum: QuorumFeatures, name: str, level: int) -> None:
    """Every node that is known must be able to work at the level, also one that is away."""
    _check_range(f"Local controller {quorum.node_id}", level, quorum.supported.get(name))
    for broker_id, broker in sorted(image.brokers.items()):
        _check_range(f"Broker {broker_id}", level, broker.features.get(name))
    if (image.features.metadata_version or 0) < CONTROLLER_REGISTRATION:
        return  # controllers do not register, and cannot be asked
    others = {node_id: each for node_id, each in image.controllers.items() if node_id != quorum.node_id}
    for node_id, controller in sorted(others.items()):
        _check_range(f"Controller {node_id}", level, controller.features.get(name))
    for node_id in sorted(quorum.voter_ids):
        if node_id != quorum.node_id and node_id not in others:
            raise _Refused(f"controller {node_id} has not registered, and may not support this feature")


def _check_range(who: str, level: int, supported: tuple[int, int] | None) -> None:
    lowest, highest = supported or _NOT_SUPPORTED
    if lowest <= level <= highest:
        return
    if not highest:
        raise _Refused(f"{who} does not support this feature.")
    levels = str(lowest) if lowest == highest else f"{lowest}-{highest}"
    raise _Refused(f"{who} only supports versions {levels}")


def _check_metadata_version(current: int, level: int, kind: UpgradeType) -> None:
    if level >= current or _METADATA_CHANGED.isdisjoint(range(level + 1, current + 1)):
        return
    why = "Refusing to perform the requested downgrade because it might delete metadata information."
    if kind is UpgradeType.UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    raise BrokerError(
        ErrorCode.INVALID_UPDATE_VERSION, f"Unsupported metadata.version downgrade from {current} to {level}. {why}"
    )


def _update_kraft_version(
    kraft_version: KRaftVersion, level: int, kind: UpgradeType, validate_only: bool
) -> list[MetadataRecord]:
    if kind is not UpgradeType.UPGRADE:
        if level != kraft_version.level:
            raise _Refused("Can't downgrade the version of this feature.")
        return []
    if level > kraft_version.level:
        kraft_version.upgrade(level, validate_only)
    return [NoOpRecord()]
