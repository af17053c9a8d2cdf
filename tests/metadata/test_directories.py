"""Directories of brokers: where replicas lie, and what a failed disk takes along."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.metadata.image import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY
from barnabas.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.metadata.clusters import Cluster, new_topic, registration, uuid
from tests.metadata.test_alter_partition import propose, refused


def cluster_with_two_disks() -> tuple[Cluster, Uuid, Uuid]:
    """Broker 1 has two directories, and leads the partitions 0 and 1 of a topic."""
    cluster = Cluster()
    request = registration(1, dirs=2)
    cluster.do(cluster.controller.register_broker(request, 4, cluster.now_ms))
    cluster.beat(1)
    cluster.create(new_topic("t", 2, 1))
    first, second = request.log_dirs
    return cluster, first, second


def assign(cluster: Cluster, directory: Uuid, *partitions: int, topic_id: Uuid | None = None) -> list[int]:
    known = cluster.image.topics["t"].topic_id
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        directories=[
            DirectoryData(
                id=directory,
                topics=[
                    TopicData(
                        topic_id=topic_id or known, partitions=[PartitionData(partition_index=n) for n in partitions]
                    )
                ],
            )
        ],
    )
    response = cluster.do(cluster.controller.assign_replicas_to_dirs(request))
    return [each.error_code for each in response.directories[0].topics[0].partitions]


def beat(cluster: Cluster, *offline: Uuid) -> None:
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        current_metadata_offset=cluster.image.offset,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=list(offline),
    )
    cluster.do(cluster.controller.heartbeat(request, cluster.now_ms))


def test_a_broker_says_where_its_replicas_lie() -> None:
    cluster, first, second = cluster_with_two_disks()
    assert cluster.partition("t").directories == (UNASSIGNED_DIRECTORY,)
    assert (assign(cluster, first, 0), assign(cluster, second, 1)) == ([0], [0])
    assert [cluster.partition("t", number).directories for number in (0, 1)] == [(first,), (second,)]
    end = len(cluster.log)
    assign(cluster, first, 0)
    assert len(cluster.log) == end, "what is known needs no record"


def test_a_failed_disk_takes_only_its_own_partitions_along() -> None:
    cluster, first, second = cluster_with_two_disks()
    assign(cluster, first, 0)
    assign(cluster, second, 1)
    beat(cluster, second)
    assert [cluster.partition("t", number).leader for number in (0, 1)] == [1, NO_LEADER]
    assert cluster.partition("t", 1).isr == (1,), "it has all that was acknowledged"
    assert cluster.image.brokers[1].log_dirs == (first,)
    end = len(cluster.log)
    beat(cluster, second)
    assert len(cluster.log) == end, "it is known already"


def test_a_broker_without_the_disk_does_not_lead_what_lay_on_it() -> None:
    cluster, first, second = cluster_with_two_disks()
    assign(cluster, first, 0)
    assign(cluster, second, 1)
    beat(cluster, second)
    cluster.beat(1, fence=True)
    cluster.beat(1)
    assert [cluster.partition("t", number).leader for number in (0, 1)] == [1, NO_LEADER]


def test_a_replica_that_is_found_on_another_disk_is_led_again() -> None:
    cluster, first, second = cluster_with_two_disks()
    assign(cluster, second, 1)
    beat(cluster, second)
    assign(cluster, first, 1)
    assert (cluster.partition("t", 1).leader, cluster.partition("t", 1).directories) == (1, (first,))


def test_a_replica_that_is_said_to_lie_on_a_failed_disk_loses_its_leader() -> None:
    cluster, _, second = cluster_with_two_disks()
    beat(cluster, second)
    assert cluster.partition("t", 1).leader == 1
    assign(cluster, second, 1)
    assert cluster.partition("t", 1).leader == NO_LEADER


def test_replicas_that_are_not_there() -> None:
    cluster, first, _ = cluster_with_two_disks()
    assert assign(cluster, first, 9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(cluster, first, 0, topic_id=uuid(99)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    cluster.join(2)
    cluster.create(new_topic("u", assignment={0: [2]}))
    assert assign(cluster, first, 0, topic_id=cluster.image.topics["u"].topic_id) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_lost_replica_neither_leads_nor_is_in_sync() -> None:
    cluster = Cluster(3)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3]}))
    assert assign(cluster, LOST_DIRECTORY, 0) == [ErrorCode.NONE]
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2, 3))
    assert refused(cluster, [2, 3, 1], by=2) is ErrorCode.INELIGIBLE_REPLICA, "that stands on a fetch from before"
    assign(cluster, cluster.image.brokers[1].log_dirs[0], 0)
    assert propose(cluster, [2, 3, 1], by=2).error_code == ErrorCode.NONE


def test_the_last_replica_in_sync_is_counted_on_though_it_is_lost() -> None:
    for elr in (False, True):
        cluster = Cluster(2, elr=elr)
        cluster.create(new_topic("t", assignment={0: [1, 2]}))
        cluster.silence(2)
        assign(cluster, LOST_DIRECTORY, 0)
        state = cluster.partition("t")
        assert state.leader == NO_LEADER
        assert (*state.isr, *state.eligible_leader_replicas) == (1,)
        assign(cluster, cluster.image.brokers[1].log_dirs[0], 0)
        assert cluster.partition("t").leader == 1
