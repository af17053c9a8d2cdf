"""Levels of features: which go up and down, and what is said of those that do not."""

from __future__ import annotations

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.feature_control import KRaftVersion, QuorumFeatures, UpgradeType
from barnabas.metadata.features import SUPPORTED
from barnabas.wire.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener
from barnabas.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.metadata.clusters import Cluster, registration, uuid

UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


class Quorum:
    """Controller 1 of some voters, at a level of kraft.version."""

    def __init__(self, *voter_ids: int, level: int = 0, refusal: str | None = None) -> None:
        self.level = level
        self.voter_ids = voter_ids or (1,)
        self.refusal = refusal

    @property
    def features(self) -> QuorumFeatures:
        return QuorumFeatures(1, self.voter_ids, KRaftVersion(self.level, self._upgrade))

    def _upgrade(self, level: int, validate_only: bool) -> None:
        if self.refusal:
            raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, self.refusal)
        if not validate_only:
            self.level = level


def update(
    cluster: Cluster,
    *wanted: tuple[str, int, int],
    quorum: Quorum | None = None,
    version: int = 2,
    validate_only: bool = False,
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in wanted
        ],
        validate_only=validate_only,
    )
    return cluster.do(cluster.controller.update_features(request, version, (quorum or Quorum()).features))


def refusal(response: UpdateFeaturesResponse) -> str:
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    begin = "The update failed for all features since the following feature had an error: "
    assert response.error_message is not None
    assert response.error_message.startswith(begin)
    return response.error_message.removeprefix(begin)


def controller_registration(
    node_id: int, highest: int = SUPPORTED["metadata.version"][1]
) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=uuid(node_id),
        zk_migration_ready=True,
        listeners=[Listener(name="CONTROLLER", host="localhost", port=9090 + node_id, security_protocol=0)],
        features=[
            Feature(name="metadata.version", min_supported_version=7, max_supported_version=highest),
            Feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
        ],
    )


def test_metadata_version_goes_down_where_records_did_not_change_and_up_again() -> None:
    cluster = Cluster(brokers=2)
    assert update(cluster, ("metadata.version", 23, SAFE)).error_code == 0
    assert cluster.image.features.metadata_version == 23
    assert update(cluster, ("metadata.version", 25, UP)).error_code == 0
    assert cluster.image.features.metadata_version == 25


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            ("metadata.version", 22, SAFE),
            "Unsupported metadata.version downgrade from 25 to 22. Refusing to perform the requested downgrade because "
            "it might delete metadata information.",
        ),
        (
            ("metadata.version", 22, UNSAFE),
            "Unsupported metadata.version downgrade from 25 to 22. Unsafe metadata downgrade is not supported in this "
            "version.",
        ),
        (
            ("metadata.version", 24, UP),
            "Invalid update version 24 for feature metadata.version. Can't downgrade the version of this feature "
            "without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            ("metadata.version", 26, UP),
            "Invalid update version 26 for feature metadata.version. Local controller 1 only supports versions 7-25",
        ),
        (
            ("metadata.version", -1, SAFE),
            "Invalid update version -1 for feature metadata.version. A feature version cannot be less than 0.",
        ),
        (
            ("metadata.version", 25, 9),
            "Invalid update version 25 for feature metadata.version. The controller does not support the given upgrade "
            "type.",
        ),
        (
            ("group.version", 1, UP),
            "Invalid update version 1 for feature group.version. Local controller 1 does not support this feature.",
        ),
        (("nothing", 0, SAFE), "Invalid update version 0 for feature nothing. Feature nothing not found."),
        (
            ("kraft.version", 1, SAFE),
            "Invalid update version 1 for feature kraft.version. Can't downgrade to a newer version.",
        ),
    ],
)
def test_what_is_refused(wanted: tuple[str, int, int], said: str) -> None:
    cluster = Cluster(brokers=1)
    end = len(cluster.log)
    assert refusal(update(cluster, wanted)) == said
    assert len(cluster.log) == end


def test_all_levels_change_or_none() -> None:
    cluster = Cluster(brokers=1)
    response = update(cluster, ("metadata.version", 24, SAFE), ("group.version", 1, UP))
    assert "group.version" in refusal(response)
    assert cluster.image.features.metadata_version == 25


def test_very_many_are_refused_at_once() -> None:
    """They would be looked at in one turn, since they change together."""
    cluster = Cluster(brokers=1)
    response = update(cluster, *[(f"feature-{each}", 1, UP) for each in range(101)])
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message == "101 features are more than a request may name (100)"


def test_validating_changes_nothing() -> None:
    cluster, quorum = Cluster(brokers=1), Quorum()
    wanted = (("metadata.version", 24, SAFE), ("kraft.version", 1, UP))
    assert update(cluster, *wanted, quorum=quorum, validate_only=True).error_code == 0
    assert (cluster.image.features.metadata_version, quorum.level) == (25, 0)


def test_every_broker_must_support_the_level_also_one_that_is_away() -> None:
    cluster = Cluster(brokers=1)
    update(cluster, ("metadata.version", 24, SAFE))
    old = registration(2)
    old.features[0].max_supported_version = 24
    cluster.do(cluster.controller.register_broker(old, 4, cluster.now_ms))
    said = refusal(update(cluster, ("metadata.version", 25, UP)))
    assert said == "Invalid update version 25 for feature metadata.version. Broker 2 only supports versions 7-24"


def test_every_voter_must_have_registered_and_support_the_level() -> None:
    cluster, quorum = Cluster(brokers=1), Quorum(1, 2, 3)
    down = ("metadata.version", 24, SAFE)
    assert "controller 2 has not registered, and may not support" in refusal(update(cluster, down, quorum=quorum))
    for node_id in (2, 3):
        cluster.do(cluster.controller.register_controller(controller_registration(node_id)))
    assert update(cluster, down, quorum=quorum).error_code == 0
    cluster.do(cluster.controller.register_controller(controller_registration(3, highest=24)))
    said = refusal(update(cluster, ("metadata.version", 25, UP), quorum=quorum))
    assert said.endswith("Controller 3 only supports versions 7-24")


def test_kraft_version_is_raised_by_the_quorum_and_never_lowered() -> None:
    cluster, quorum = Cluster(brokers=1), Quorum()
    assert update(cluster, ("kraft.version", 1, UP), quorum=quorum).error_code == 0
    assert quorum.level == 1
    assert type(cluster.log[-1]).__name__ == "NoOpRecord", "the answer waits for what is behind the voters"
    said = refusal(update(cluster, ("kraft.version", 0, UNSAFE), quorum=quorum))
    assert said == "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."


def test_the_quorum_is_not_asked_if_something_else_is_wrong() -> None:
    cluster, quorum = Cluster(brokers=1), Quorum()
    update(cluster, ("kraft.version", 1, UP), ("nothing", 1, UP), quorum=quorum)
    assert quorum.level == 0


def test_what_the_quorum_refuses_is_told() -> None:
    said = refusal(update(Cluster(brokers=1), ("kraft.version", 1, UP), quorum=Quorum(refusal="voter 3 is silent")))
    assert said == "voter 3 is silent"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_have_a_result_for_each_feature(version: int) -> None:
    response = update(Cluster(brokers=1), ("metadata.version", 25, UP), version=version)
    found = [(each.feature, each.error_code) for each in response.results]
    assert found == ([("metadata.version", 0)] if version < 2 else [])


def test_version_0_says_by_a_flag_that_a_level_may_go_down() -> None:
    cluster = Cluster(brokers=1)
    for allowed, code in ((False, ErrorCode.INVALID_UPDATE_VERSION), (True, ErrorCode.NONE)):
        key = FeatureUpdateKey(feature="metadata.version", max_version_level=24, allow_downgrade=allowed)
        request = UpdateFeaturesRequest(feature_updates=[key])
        assert cluster.controller.update_features(request, 0, Quorum().features).response.error_code == code


def test_a_controller_registers() -> None:
    cluster = Cluster()
    cluster.do(cluster.controller.register_controller(controller_registration(3)))
    found = cluster.image.controllers[3]
    assert (found.incarnation_id, found.features["kraft.version"]) == (uuid(3), (0, 1))
    assert [(each.listener, each.host, each.port) for each in found.endpoints] == [("CONTROLLER", "localhost", 9093)]
    assert not found.zk_migration_ready, "there is no way from ZooKeeper"
