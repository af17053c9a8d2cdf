"""Brokers join, beat, are fenced and leave; partitions follow."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.controller import Controller
from barnabas.metadata.image import NO_LEADER, ClusterImage
from barnabas.metadata.options import ControllerOptions
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from barnabas.wire.stored.cluster_metadata import AbortTransactionRecord, BeginTransactionRecord, TopicRecord
from tests.metadata.clusters import Cluster, new_topic, registration, uuid


def test_a_broker_registers_fenced_and_its_epoch_is_the_offset_of_that() -> None:
    cluster = Cluster()
    at = len(cluster.log)
    response = cluster.do(cluster.controller.register_broker(registration(1, rack="a"), 4, cluster.now_ms))
    broker = cluster.image.brokers[1]
    assert response.broker_epoch == broker.epoch == at
    assert broker.is_fenced
    assert broker.rack == "a"
    endpoint = broker.endpoint("PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("localhost", 9093)
    assert broker.endpoint("SSL") is None


def test_a_broker_works_once_it_has_read_its_own_registration() -> None:
    cluster = Cluster()
    cluster.do(cluster.controller.register_broker(registration(1), 4, cluster.now_ms))
    epoch = cluster.image.brokers[1].epoch
    behind = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch - 1, want_fence=False, want_shut_down=False
    )
    response = cluster.do(cluster.controller.heartbeat(behind, cluster.now_ms))
    assert (response.is_caught_up, response.is_fenced) == (False, True)
    response = cluster.beat(1)
    assert (response.is_caught_up, response.is_fenced) == (True, False)
    assert not cluster.image.brokers[1].is_fenced


def test_heartbeats_of_a_former_life_are_refused() -> None:
    cluster = Cluster(brokers=1)
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=0, current_metadata_offset=9, want_fence=False, want_shut_down=False
    )
    with pytest.raises(BrokerError) as refused:
        cluster.controller.heartbeat(request, cluster.now_ms)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    request.broker_id = 9
    with pytest.raises(BrokerError) as refused:
        cluster.controller.heartbeat(request, cluster.now_ms)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_two_brokers_cannot_have_one_id() -> None:
    cluster = Cluster(brokers=1)
    with pytest.raises(BrokerError) as refused:
        cluster.controller.register_broker(registration(1, life=2), 4, cluster.now_ms)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 9_000
    before = cluster.image.brokers[1].epoch
    cluster.join(1, life=2)
    assert cluster.image.brokers[1].epoch > before


def test_a_broker_that_asks_again_keeps_its_epoch_and_goes_on_working() -> None:
    cluster = Cluster(brokers=1)
    before = cluster.image.brokers[1]
    cluster.do(cluster.controller.register_broker(registration(1, rack="moved"), 4, cluster.now_ms))
    assert cluster.image.brokers[1] == replace(before, rack="moved")


def _of_another_cluster(request: BrokerRegistrationRequest) -> None:
    request.cluster_id = "other"


def _too_old(request: BrokerRegistrationRequest) -> None:
    request.features = [Feature(name="metadata.version", min_supported_version=7, max_supported_version=24)]


def _without_directories(request: BrokerRegistrationRequest) -> None:
    request.log_dirs = []


def _with_reserved_directory(request: BrokerRegistrationRequest) -> None:
    request.log_dirs = [uuid(5)]


def _with_directory_of_broker_1(request: BrokerRegistrationRequest) -> None:
    request.log_dirs = registration(1).log_dirs


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_of_another_cluster, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (_too_old, ErrorCode.UNSUPPORTED_VERSION),
        (_without_directories, ErrorCode.INVALID_REQUEST),
        (_with_reserved_directory, ErrorCode.INVALID_REQUEST),
        (_with_directory_of_broker_1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_broker_that_does_not_belong_here_is_refused(spoil: object, code: ErrorCode) -> None:
    cluster = Cluster(brokers=1)
    request = registration(2)
    assert callable(spoil)
    spoil(request)
    with pytest.raises(BrokerError) as refused:
        cluster.controller.register_broker(request, 4, cluster.now_ms)
    assert refused.value.code is code
    assert refused.value.message


def test_a_silent_broker_is_fenced_and_others_lead_in_its_place() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3], 1: [2, 3, 1]}))
    cluster.now_ms += 8_999
    for broker_id in (2, 3):
        cluster.beat(broker_id)
    assert cluster.do(cluster.controller.fence_expired_brokers(cluster.now_ms)) is None
    cluster.now_ms += 1
    assert cluster.do(cluster.controller.fence_expired_brokers(cluster.now_ms)) == 1
    assert cluster.do(cluster.controller.fence_expired_brokers(cluster.now_ms)) is None
    assert cluster.image.brokers[1].is_fenced
    led, followed = cluster.partition("t", 0), cluster.partition("t", 1)
    assert (led.isr, led.leader, led.leader_epoch, led.partition_epoch) == ((2, 3), 2, 1, 1)
    # The leader stays, and so does its epoch: only the set around it shrinks.
    assert (followed.isr, followed.leader, followed.leader_epoch, followed.partition_epoch) == ((2, 3), 2, 0, 1)


def test_the_last_in_sync_replica_waits_for_its_return() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    cluster.beat(2, fence=True)
    cluster.beat(1, fence=True)
    alone = cluster.partition("t")
    assert (alone.isr, alone.leader, alone.leader_epoch) == ((1,), NO_LEADER, 1)
    cluster.beat(2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.beat(1)
    back = cluster.partition("t")
    assert (back.isr, back.leader, back.leader_epoch) == ((1,), 1, 2)


def test_a_topic_may_prefer_losing_data_to_waiting() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}, configs={"unclean.leader.election.enable": "true"}))
    cluster.beat(2, fence=True)
    cluster.beat(1, fence=True)
    cluster.beat(2)
    partition = cluster.partition("t")
    assert (partition.isr, partition.leader, partition.leader_recovery_state) == ((2,), 2, 1)


def test_a_restarted_broker_first_gives_up_what_it_led() -> None:
    cluster = Cluster(brokers=1)
    cluster.create(new_topic("t", assignment={0: [1]}))
    cluster.now_ms += 10_000
    cluster.do(cluster.controller.register_broker(registration(1, life=2), 4, cluster.now_ms))
    assert cluster.partition("t").leader == NO_LEADER
    cluster.beat(1)
    assert (cluster.partition("t").leader, cluster.partition("t").leader_epoch) == (1, 2)


def test_a_controlled_shutdown_moves_leaders_and_waits_until_all_know() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    cluster.beat(2)
    response = cluster.beat(1, stop=True)
    assert (response.is_fenced, response.should_shut_down) == (False, False)
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    assert not cluster.beat(1, stop=True).should_shut_down
    cluster.beat(2)
    response = cluster.beat(1, stop=True)
    assert (response.is_fenced, response.should_shut_down) == (True, True)
    assert cluster.image.brokers[1].is_fenced


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    cluster = Cluster(brokers=2)
    response = cluster.beat(1, stop=True)
    assert response.should_shut_down
    assert cluster.beat(1, stop=True).should_shut_down


def test_a_broker_can_be_forgotten() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    cluster.do(cluster.controller.unregister_broker(1))
    assert list(cluster.image.brokers) == [2]
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    with pytest.raises(BrokerError):
        cluster.controller.unregister_broker(1)


def test_producer_ids_come_in_blocks_that_do_not_overlap() -> None:
    cluster = Cluster(brokers=1)
    epoch = cluster.image.brokers[1].epoch
    blocks = [cluster.do(cluster.controller.allocate_producer_ids(1, epoch)) for _ in range(3)]
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert cluster.image.next_producer_id == 3000
    with pytest.raises(BrokerError, match="speaks of epoch"):
        cluster.controller.allocate_producer_ids(1, epoch - 1)


def test_what_was_not_committed_is_forgotten_with_the_leadership() -> None:
    cluster = Cluster(brokers=1)
    cluster.controller.commit(len(cluster.log) - 1)
    cluster.create(new_topic("committed"))
    cluster.controller.commit(len(cluster.log) - 1)
    kept = cluster.image
    cluster.create(new_topic("lost"))
    assert "lost" in cluster.image.topics
    assert cluster.controller.committed_image == kept
    cluster.controller.roll_back()
    assert cluster.image == kept
    assert cluster.controller.next_offset == kept.offset + 1


def test_an_open_transaction_of_a_former_controller_is_aborted() -> None:
    cluster = Cluster(brokers=1)
    for record in (BeginTransactionRecord(name="half"), TopicRecord(name="t", topic_id=uuid(777))):
        cluster.controller.replay(record, cluster.controller.next_offset)
    outcome = cluster.controller.activate(2, cluster.controller.next_offset, cluster.now_ms)
    assert [type(record) for record in outcome.records] == [AbortTransactionRecord]
    cluster.do(outcome)
    assert cluster.image.pending is None
    assert "t" not in cluster.image.topics


def test_an_empty_log_needs_bootstrap_records() -> None:
    controller = Controller(ClusterImage(), ControllerOptions(), Random(1))
    with pytest.raises(BrokerError, match="format"):
        controller.activate(1, 0, 0)
