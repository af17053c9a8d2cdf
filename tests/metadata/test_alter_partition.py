"""AlterPartition: what a leader may propose, and what it is told otherwise."""

from __future__ import annotations

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.metadata.image import PartitionImage
from barnabas.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)
from barnabas.wire.stored.cluster_metadata import PartitionRecord
from tests.metadata.clusters import Cluster, new_topic, uuid

ANY_EPOCH = -1


def three(*, elr: bool = False, min_isr: int = 1) -> Cluster:
    """Broker 1 leads the only partition of `t`, and all three are in sync."""
    cluster = Cluster(3, elr=elr)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3]}, configs={"min.insync.replicas": str(min_isr)}))
    return cluster


def propose(
    cluster: Cluster,
    isr: list[int],
    *,
    by: int = 1,
    version: int = 3,
    broker_epochs: dict[int, int] | None = None,
    topic_id: Uuid | None = None,
    number: int = 0,
    **wrong: int,
) -> PartitionResult:
    state = cluster.partition("t")
    epochs = broker_epochs or {}
    data = PartitionData(
        partition_index=number,
        leader_epoch=wrong.get("leader_epoch", state.leader_epoch),
        partition_epoch=wrong.get("partition_epoch", state.partition_epoch),
        leader_recovery_state=wrong.get("recovery", 0),
    )
    if version < 3:
        data.new_isr = isr
    else:
        data.new_isr_with_epochs = [
            BrokerState(broker_id=each, broker_epoch=epochs.get(each, cluster.image.brokers[each].epoch))
            if each in cluster.image.brokers
            else BrokerState(broker_id=each)
            for each in isr
        ]
    request = AlterPartitionRequest(
        broker_id=by,
        broker_epoch=wrong.get("own_epoch", cluster.image.brokers[by].epoch),
        topics=[TopicData(topic_id=topic_id or cluster.image.topics["t"].topic_id, partitions=[data])],
    )
    return cluster.do(cluster.controller.alter_partition(request, version)).topics[0].partitions[0]


def refused(cluster: Cluster, isr: list[int], **how: object) -> ErrorCode:
    """The error, after a look that nothing was changed by it."""
    before = cluster.partition("t")
    result = propose(cluster, isr, **how)  # type: ignore[arg-type]
    assert cluster.partition("t") == before
    return ErrorCode.of(result.error_code)


@pytest.mark.parametrize("version", [2, 3])
def test_an_in_sync_set_shrinks_and_grows_again(version: int) -> None:
    cluster = three()
    before = cluster.partition("t")
    result = propose(cluster, [1, 2], version=version)
    after = cluster.partition("t")
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 2), 1, before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1
    assert (result.error_code, result.leader_id, result.isr) == (0, 1, [1, 2])
    assert (result.leader_epoch, result.partition_epoch) == (after.leader_epoch, after.partition_epoch)
    propose(cluster, [1, 2, 3], version=version)
    assert cluster.partition("t").isr == (1, 2, 3)


def test_a_proposal_of_what_is_so_changes_nothing() -> None:
    cluster = three()
    before = cluster.partition("t")
    assert propose(cluster, [1, 2, 3]).partition_epoch == before.partition_epoch
    assert cluster.partition("t") == before


def test_an_old_partition_epoch() -> None:
    cluster = three()
    propose(cluster, [1, 2])
    old = cluster.partition("t").partition_epoch - 1
    assert refused(cluster, [1], partition_epoch=old) is ErrorCode.INVALID_UPDATE_VERSION


def test_an_old_leader_epoch() -> None:
    cluster = three()
    cluster.silence(1)
    assert cluster.partition("t").leader == 2
    old = cluster.partition("t").leader_epoch - 1
    assert refused(cluster, [1], leader_epoch=old) is ErrorCode.FENCED_LEADER_EPOCH
    assert refused(cluster, [1, 2], leader_epoch=old, by=2) is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("ahead", ["leader_epoch", "partition_epoch"])
def test_kafka_14154_a_leader_that_knows_more_than_this_controller(ahead: str) -> None:
    """It has heard of a newer controller. Were it told that its epoch is old, it would give up for good."""
    cluster = three()
    state = cluster.partition("t")
    newer: int = getattr(state, ahead) + 1
    assert refused(cluster, [1, 2], **{ahead: newer}) is ErrorCode.NOT_CONTROLLER
    # Also if the other one is old.
    other = "leader_epoch" if ahead == "partition_epoch" else "partition_epoch"
    assert refused(cluster, [1, 2], **{ahead: newer, other: -1}) is ErrorCode.NOT_CONTROLLER


def test_somebody_else_than_the_leader() -> None:
    assert refused(three(), [1, 2], by=2) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("isr", [[], [2, 3], [1, 1], [1, 4]])
def test_sets_that_cannot_be(isr: list[int]) -> None:
    assert refused(three(), isr) is ErrorCode.INVALID_REQUEST


def test_partitions_that_are_not_there() -> None:
    cluster = three()
    assert refused(cluster, [1, 2], topic_id=uuid(7)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert refused(cluster, [1, 2], number=1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_of_a_former_life() -> None:
    cluster = three()
    with pytest.raises(BrokerError) as refusal:
        propose(cluster, [1, 2], own_epoch=cluster.image.brokers[1].epoch - 1)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_kip_903_a_follower_that_restarted_since_it_fetched() -> None:
    """It may have lost what it had: by its old epoch it does not come back into the in-sync set."""
    cluster = three()
    cluster.silence(3)
    old = cluster.image.brokers[3].epoch
    cluster.restart(3, is_clean=False)
    assert cluster.partition("t").isr == (1, 2)
    assert refused(cluster, [1, 2, 3], broker_epochs={3: old}) is ErrorCode.INELIGIBLE_REPLICA
    # Whoever does not say which life it means, as leaders before Fetch 15, is believed.
    assert propose(cluster, [1, 2, 3], broker_epochs={3: ANY_EPOCH}).error_code == 0


def test_kafka_15021_brokers_that_are_fenced_or_shut_down_are_not_eligible() -> None:
    cluster = three()
    cluster.create(new_topic("u", assignment={0: [3, 1]}))
    cluster.silence(2)
    assert refused(cluster, [1, 2, 3]) is ErrorCode.INELIGIBLE_REPLICA
    cluster.beat(3, stop=True)
    assert cluster.image.brokers[3].in_controlled_shutdown
    assert cluster.partition("t").isr == (1,)
    assert refused(cluster, [1, 3]) is ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_that_was_forgotten_is_not_eligible() -> None:
    cluster = three()
    cluster.silence(3)
    cluster.do(cluster.controller.unregister_broker(3))
    assert refused(cluster, [1, 2, 3]) is ErrorCode.INELIGIBLE_REPLICA


def recovering() -> Cluster:
    """Only broker 2, which was not in sync, is left, and leads at the price of data."""
    cluster = Cluster(2)
    configs: dict[str, str | None] = {"unclean.leader.election.enable": "true"}
    cluster.create(new_topic("t", assignment={0: [1, 2]}, configs=configs))
    propose(cluster, [1])
    cluster.silence(1)
    state = cluster.partition("t")
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), 1)
    return cluster


def test_a_leader_that_recovers_is_alone_until_it_says_that_it_has() -> None:
    cluster = recovering()
    cluster.restart(1, is_clean=True)
    assert refused(cluster, [1, 2], by=2, recovery=1) is ErrorCode.INVALID_REQUEST
    result = propose(cluster, [1, 2], by=2, recovery=0)
    assert (result.error_code, result.leader_recovery_state) == (0, 0)
    assert cluster.partition("t").leader_recovery_state == 0
    # And never again without an election.
    assert refused(cluster, [2], by=2, recovery=1) is ErrorCode.INVALID_REQUEST
    assert refused(cluster, [2], by=2, recovery=9) is ErrorCode.INVALID_REQUEST


def test_a_reassignment_that_this_completes_may_take_the_lead_away() -> None:
    cluster = Cluster(3)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    topic_id = cluster.image.topics["t"].topic_id
    moving = PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=[3, 2, 1],
        isr=[1, 2],
        removing_replicas=[1],
        adding_replicas=[3],
        leader=1,
        leader_epoch=0,
        partition_epoch=1,
        directories=[cluster.image.brokers[each].log_dirs[0] for each in (3, 2, 1)],
    )
    cluster.controller.replay(moving, len(cluster.log))
    cluster.log.append(moving)
    result = propose(cluster, [1, 2, 3])
    assert ErrorCode.of(result.error_code) is ErrorCode.NEW_LEADER_ELECTED
    after = cluster.partition("t")
    assert after == PartitionImage(
        replicas=(3, 2),
        isr=(2, 3),
        leader=3,
        leader_epoch=1,
        partition_epoch=2,
        directories=tuple(cluster.image.brokers[each].log_dirs[0] for each in (3, 2)),
    )


def test_below_the_minimum_who_leaves_becomes_eligible() -> None:
    cluster = three(elr=True, min_isr=2)
    propose(cluster, [1, 2])
    assert cluster.partition("t").eligible_leader_replicas == ()
    propose(cluster, [1])
    assert cluster.partition("t").eligible_leader_replicas == (2,)
    propose(cluster, [1, 3])
    assert cluster.partition("t").eligible_leader_replicas == ()
