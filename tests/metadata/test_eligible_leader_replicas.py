"""KIP-966: replicas that left the in-sync set with all that was acknowledged may lead, unless they lost it.

The feature eligible.leader.replicas.version: what it changes, and what changes when it is switched.
"""

from __future__ import annotations

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.features import ELR_VERSION
from barnabas.metadata.image import NO_LEADER, ConfigResource, ConfigResourceType, PartitionImage
from barnabas.metadata.options import ControllerOptions
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.stored.cluster_metadata import ClearElrRecord
from tests.metadata.clusters import CLUSTER_ID, Cluster, new_topic
from tests.metadata.test_alter_partition import propose
from tests.metadata.test_feature_control import SAFE, UP, refusal, update
from tests.metadata.transcripts import AnyBrokerSetting

MIN_ISR = "min.insync.replicas"
SET, DELETE = 0, 1


def three(min_isr: int = 2, *, unclean: bool = False) -> Cluster:
    cluster = Cluster(3, elr=True)
    configs: dict[str, str | None] = {MIN_ISR: str(min_isr), "unclean.leader.election.enable": str(unclean).lower()}
    cluster.create(new_topic("t", assignment={0: [1, 2, 3]}, configs=configs))
    return cluster


def told(cluster: Cluster) -> str:
    """Leader, in-sync set, eligible leaders, last known leader."""
    state: PartitionImage = cluster.partition("t")
    lists = (state.isr, state.eligible_leader_replicas, state.last_known_elr)
    return f"{state.leader} " + " ".join(",".join(map(str, each)) or "-" for each in lists)


def test_all_go_one_after_the_other_and_the_first_that_is_back_may_lead_if_it_is_eligible() -> None:
    cluster = three()
    cluster.silence(3)
    assert told(cluster) == "1 1,2 - -"
    cluster.silence(2)
    assert told(cluster) == "1 1 2 -"
    cluster.silence(1)
    assert told(cluster) == "-1 - 1,2 1"
    # Not in sync when it left, and not eligible.
    cluster.restart(3, is_clean=True)
    assert told(cluster) == "-1 - 1,2 1"
    # Without it nothing could be acknowledged, so it has all.
    cluster.restart(2, is_clean=True)
    assert told(cluster) == "2 2 1 -"
    assert cluster.partition("t").leader_recovery_state == 0
    propose(cluster, [2, 3], by=2)
    assert told(cluster) == "2 2,3 - -"


def test_last_replica_standing_does_not_lead_with_a_shorter_log() -> None:
    """The last one in sync lost power, and with it what was not on its disk: the eligible ones have it."""
    cluster = three()
    for broker_id in (3, 2, 1):
        cluster.silence(broker_id)
    cluster.restart(1, is_clean=False)
    assert told(cluster) == "-1 - 2 1"
    cluster.restart(2, is_clean=True)
    assert told(cluster) == "2 2 - -"


def test_when_nobody_is_left_to_hope_for_who_led_last_leads_and_recovers() -> None:
    cluster = three()
    for broker_id in (3, 2, 1):
        cluster.silence(broker_id)
    cluster.restart(2, is_clean=False)
    cluster.restart(3, is_clean=False)
    assert told(cluster) == "-1 - 1 1"
    cluster.restart(1, is_clean=False)
    assert told(cluster) == "1 1 - -"
    assert cluster.partition("t").leader_recovery_state == 1


def test_one_that_restarts_uncleanly_before_anybody_noticed_is_out_of_the_in_sync_set() -> None:
    cluster = three()
    cluster.now_ms += cluster.controller.options.broker_session_timeout_ms
    for broker_id in (1, 2):
        cluster.beat(broker_id)
    cluster.restart(3, is_clean=False)
    assert told(cluster) == "1 1,2 - -"


def test_a_clean_stop_leaves_the_last_one_eligible() -> None:
    cluster = Cluster(1, elr=True)
    cluster.create(new_topic("t", assignment={0: [1]}))
    cluster.beat(1, stop=True)
    assert told(cluster) == "-1 - 1 1"
    assert cluster.beat(1, stop=True).should_shut_down
    cluster.restart(1, is_clean=True)
    assert told(cluster) == "1 1 - -"
    assert cluster.partition("t").leader_recovery_state == 0


def test_the_only_replica_leads_again_after_a_crash_and_says_that_it_recovers() -> None:
    cluster = Cluster(1, elr=True)
    cluster.create(new_topic("t", assignment={0: [1]}))
    cluster.now_ms += cluster.controller.options.broker_session_timeout_ms
    cluster.restart(1, is_clean=False)
    assert told(cluster) == "1 1 - -"
    assert cluster.partition("t").leader_recovery_state == 1


@pytest.mark.parametrize("version", [2, 3])
def test_a_broker_too_old_to_say_counts_as_unclean(version: int) -> None:
    cluster = three()
    cluster.silence(1)
    epoch = cluster.image.brokers[1].epoch
    for broker_id in (3, 2):
        cluster.silence(broker_id)
    assert told(cluster) == "-1 - 2,3 2"
    cluster.join(2, life=2, previous_epoch=cluster.image.brokers[2].epoch, version=version)
    assert told(cluster) == ("2 2 3 -" if version == 3 else "-1 - 3 2")
    assert epoch >= 0


def test_an_epoch_of_an_older_life_counts_as_unclean() -> None:
    """Its disk is that of an earlier stop: somebody restored a copy."""
    cluster = three()
    old = cluster.image.brokers[2].epoch
    cluster.silence(2)
    cluster.restart(2, is_clean=True)
    propose(cluster, [1, 2, 3])
    for broker_id in (3, 1, 2):
        cluster.silence(broker_id)
    assert told(cluster) == "-1 - 1,2 2"
    cluster.join(2, life=3, previous_epoch=old)
    assert told(cluster) == "-1 - 1 2"


def test_a_broker_that_was_forgotten_comes_back_as_one_that_lost_everything() -> None:
    cluster = three()
    for broker_id in (3, 1, 2):
        cluster.silence(broker_id)
    epoch = cluster.image.brokers[2].epoch
    cluster.do(cluster.controller.unregister_broker(2))
    cluster.join(2, life=2, previous_epoch=epoch)
    assert told(cluster) == "-1 - 1 2"


def test_without_the_feature_the_last_one_leads_again_however_it_stopped() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}, configs={MIN_ISR: "2"}))
    cluster.silence(2)
    cluster.silence(1)
    assert told(cluster) == "-1 1 - -"
    cluster.restart(1, is_clean=False)
    assert told(cluster) == "1 1 - -"


def test_an_unclean_election_forgets_who_was_eligible() -> None:
    cluster = three(unclean=True)
    for broker_id in (3, 2):
        cluster.silence(broker_id)
    cluster.restart(3, is_clean=False)
    assert told(cluster) == "1 1 2 -"
    cluster.silence(1)
    # Nobody who is eligible is there, and the topic would rather lose data.
    assert told(cluster) == "3 3 - -"
    assert cluster.partition("t").leader_recovery_state == 1


# Settings


def alter(cluster: Cluster, resource: ConfigResource, name: str, value: str | None) -> tuple[ErrorCode, str | None]:
    change = AlterableConfig(name=name, config_operation=SET if value is not None else DELETE, value=value)
    asked = AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
    response = cluster.do(cluster.controller.incremental_alter_configs(request, AnyBrokerSetting())).responses[0]
    return ErrorCode.of(response.error_code), response.error_message


TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
BROKER_1 = ConfigResource(ConfigResourceType.BROKER, "1")


@pytest.mark.parametrize("resource", [TOPIC, ALL_BROKERS])
def test_another_minimum_forgets_who_was_eligible(resource: ConfigResource) -> None:
    """They have what was acknowledged with the old minimum, not what will be with the new one."""
    cluster = three()
    for broker_id in (3, 2, 1):
        cluster.silence(broker_id)
    assert alter(cluster, resource, MIN_ISR, "3") == (ErrorCode.NONE, None)
    assert cluster.log[-1] == ClearElrRecord(topic_name="t" if resource is TOPIC else "")
    assert told(cluster) == "-1 - - -"


def test_other_settings_forget_nothing() -> None:
    cluster = three()
    for broker_id in (3, 2):
        cluster.silence(broker_id)
    alter(cluster, TOPIC, "retention.ms", "1000")
    assert told(cluster) == "1 1 2 -"


def test_one_broker_cannot_have_a_minimum_of_its_own_and_the_cluster_cannot_do_without() -> None:
    cluster = three()
    alter(cluster, ALL_BROKERS, MIN_ISR, "2")
    assert alter(cluster, BROKER_1, MIN_ISR, "2") == (
        ErrorCode.INVALID_CONFIG,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    assert alter(cluster, ALL_BROKERS, MIN_ISR, None) == (
        ErrorCode.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    without = Cluster(1)
    for resource, value in ((BROKER_1, "2"), (BROKER_1, None), (ALL_BROKERS, "2"), (ALL_BROKERS, None)):
        assert alter(without, resource, MIN_ISR, value) == (ErrorCode.NONE, None)
    assert not any(isinstance(each, ClearElrRecord) for each in without.log)


# Switching it


def switch(cluster: Cluster, level: int, kind: int = UP, *, dry: bool = False) -> str | None:
    return update(cluster, (ELR_VERSION, level, kind), validate_only=dry).error_message


def test_switching_it_on_gives_the_whole_cluster_one_minimum() -> None:
    cluster = Cluster(1, options=ControllerOptions(cluster_id=CLUSTER_ID, min_insync_replicas=2))
    alter(cluster, BROKER_1, MIN_ISR, "3")
    before = len(cluster.log)
    assert switch(cluster, 1, dry=True) is None
    assert len(cluster.log) == before
    assert switch(cluster, 1) is None
    assert cluster.image.features.is_elr_enabled
    assert cluster.image.config(ConfigResourceType.BROKER, "") == {MIN_ISR: "2"}
    assert MIN_ISR not in cluster.image.config(ConfigResourceType.BROKER, "1")


def test_a_minimum_that_the_cluster_has_already_stays() -> None:
    cluster = Cluster(1)
    alter(cluster, ALL_BROKERS, MIN_ISR, "3")
    assert switch(cluster, 1) is None
    assert cluster.image.config(ConfigResourceType.BROKER, "") == {MIN_ISR: "3"}


def test_switched_off_nobody_becomes_eligible_any_more() -> None:
    cluster = three()
    for broker_id in (3, 2):
        cluster.silence(broker_id)
    assert "Can't downgrade" in (switch(cluster, 0) or "")
    assert switch(cluster, 0, SAFE) is None
    assert not cluster.image.features.is_elr_enabled
    cluster.silence(1)
    assert cluster.partition("t").leader == NO_LEADER
    assert told(cluster) == "-1 1 - -"


def test_a_metadata_version_that_has_no_room_for_it() -> None:
    response = update(Cluster(), (ELR_VERSION, 1, UP), ("metadata.version", 22, SAFE))
    assert f"{ELR_VERSION} could not be set to 1 because it depends on metadata.version level 23" in refusal(response)
