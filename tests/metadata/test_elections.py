"""Who leads when brokers come and go, when somebody asks, and when the controller looks after it by itself."""

from __future__ import annotations

from dataclasses import replace

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.image import NO_LEADER, ConfigResourceType
from barnabas.metadata.options import ConfigSource, TopicDefault
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.stored.cluster_metadata import ConfigRecord, PartitionChangeRecord
from tests.metadata.clusters import Cluster, new_topic
from tests.metadata.test_alter_partition import propose

PREFERRED, UNCLEAN = 0, 1
ALLOWS_UNCLEAN: dict[str, str | None] = {"unclean.leader.election.enable": "true"}


def state(cluster: Cluster, topic: str = "t") -> tuple[int, tuple[int, ...]]:
    found = cluster.partition(topic)
    return found.leader, found.isr


def elect(cluster: Cluster, kind: int, *wanted: tuple[str, int], everything: bool = False) -> dict[str, list[str]]:
    asked = [TopicPartitions(topic=topic, partitions=[number]) for topic, number in wanted]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=None if everything else asked)
    response = cluster.do(cluster.controller.elect_leaders(request))
    return {
        each.topic: [ErrorCode.of(one.error_code).name for one in each.partition_result]
        for each in response.replica_election_results
    }


# Brokers come and go


def test_the_next_in_sync_replica_leads_when_the_leader_is_fenced() -> None:
    cluster = Cluster(3)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3]}))
    cluster.silence(1)
    assert state(cluster) == (2, (2, 3))
    assert cluster.partition("t").leader_epoch == 1
    # The lead does not go back by itself, and who was away is not in sync.
    cluster.restart(1, is_clean=True)
    assert state(cluster) == (2, (2, 3))


def test_the_last_one_stays_in_sync_without_leading_and_leads_when_it_is_back() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    cluster.silence(2)
    cluster.silence(1)
    assert state(cluster) == (NO_LEADER, (1,))
    cluster.restart(2, is_clean=True)
    assert state(cluster) == (NO_LEADER, (1,))
    cluster.restart(1, is_clean=True)
    assert state(cluster) == (1, (1,))


def test_a_follower_that_goes_leaves_the_leader_epoch_as_it_is() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    cluster.silence(2)
    assert (state(cluster), cluster.partition("t").leader_epoch) == ((1, (1,)), 0)


def test_a_controlled_shutdown_hands_everything_over_in_one_go() -> None:
    cluster = Cluster(3)
    cluster.create(*(new_topic(f"t{number}", 100, 3) for number in range(10)))
    led = sum(1 for _ in cluster.image.topics.led_by(1))
    assert led > 200
    before = len(cluster.log)
    assert not cluster.beat(1, stop=True).should_shut_down
    written = cluster.log[before:]
    assert not cluster.image.topics.leaders.has_any(1)
    # One change for each partition that had it in sync, and one that says that it goes.
    assert len(written) == 1001
    leaders = [each.leader for each in written if isinstance(each, PartitionChangeRecord) and each.leader >= 0]
    assert len(leaders) == led
    assert set(leaders) == {2, 3}
    for broker_id in (2, 3):
        cluster.beat(broker_id)
    assert cluster.beat(1, stop=True).should_shut_down


def test_a_shutdown_of_the_last_one_is_let_go_though_nobody_can_take_over() -> None:
    cluster = Cluster(1)
    cluster.create(new_topic("t", assignment={0: [1]}))
    cluster.beat(1, stop=True)
    assert state(cluster) == (NO_LEADER, (1,))
    assert cluster.beat(1, stop=True).should_shut_down


def test_a_broker_that_is_forgotten_leads_nothing() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    cluster.do(cluster.controller.unregister_broker(1))
    assert state(cluster) == (2, (2,))


# At the price of data


def test_an_unclean_leader_is_elected_only_where_that_is_allowed() -> None:
    cluster = Cluster(2)
    cluster.create(
        new_topic("t", assignment={0: [1, 2]}), new_topic("u", assignment={0: [1, 2]}, configs=ALLOWS_UNCLEAN)
    )
    cluster.silence(2)
    cluster.restart(2, is_clean=True)
    cluster.silence(1)
    assert state(cluster, "t") == (NO_LEADER, (1,))
    assert state(cluster, "u") == (2, (2,))
    assert cluster.partition("u").leader_recovery_state == 1
    # Who was in sync comes back as one that is not.
    cluster.restart(1, is_clean=True)
    assert state(cluster, "t") == (1, (1,))
    assert state(cluster, "u") == (2, (2,))


def only_two_is_left() -> Cluster:
    """Broker 2 was not in sync when broker 1, the last that was, went."""
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    propose(cluster, [1])
    cluster.silence(1)
    assert state(cluster) == (NO_LEADER, (1,))
    return cluster


def test_a_topic_that_allows_it_later_gets_its_leader_then() -> None:
    cluster = only_two_is_left()
    assert not cluster.controller.elect_unclean_leaders().records
    allowed = ConfigRecord(
        resource_type=ConfigResourceType.TOPIC, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    cluster.controller.replay(allowed, cluster.controller.next_offset)
    cluster.do(cluster.controller.elect_unclean_leaders())
    assert state(cluster) == (2, (2,))


def test_a_cluster_that_allows_it_later_gets_its_leaders_then() -> None:
    cluster = only_two_is_left()
    allowed = {"unclean.leader.election.enable": TopicDefault("true", ConfigSource.DYNAMIC_DEFAULT_BROKER)}
    cluster.controller.options = replace(cluster.controller.options, topic_defaults=allowed)
    cluster.do(cluster.controller.elect_unclean_leaders())
    assert state(cluster) == (2, (2,))


def test_a_broker_that_is_only_thought_gone_costs_no_data() -> None:
    """Its session was cut short because it closed its connection: that can be a mistake."""
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}, configs=ALLOWS_UNCLEAN))
    propose(cluster, [1])
    cluster.controller.shorten_session(1, cluster.now_ms, 0)
    assert cluster.do(cluster.controller.fence_expired_brokers(cluster.now_ms)) == 1
    assert state(cluster) == (NO_LEADER, (1,))
    # When its session would have ended, there is no hope left for it.
    cluster.do(cluster.controller.elect_unclean_leaders())
    assert state(cluster) == (2, (2,))


def test_a_life_sign_within_the_grace_makes_the_session_whole_again() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}, configs=ALLOWS_UNCLEAN))
    propose(cluster, [1])
    cluster.controller.shorten_session(1, cluster.now_ms, 500)
    cluster.beat(1)
    cluster.now_ms += 501
    assert cluster.do(cluster.controller.fence_expired_brokers(cluster.now_ms)) is None
    cluster.silence(1)
    assert state(cluster) == (2, (2,))


# Asked for


def led_by_two() -> Cluster:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}), new_topic("u", assignment={0: [2, 1]}))
    cluster.silence(1)
    cluster.restart(1, is_clean=True)
    propose(cluster, [1, 2], by=2)
    assert state(cluster) == (2, (1, 2))
    return cluster


def test_the_preferred_leader_is_elected_when_asked_for() -> None:
    cluster = led_by_two()
    assert elect(cluster, PREFERRED, ("t", 0), ("u", 0)) == {"t": ["NONE"], "u": ["ELECTION_NOT_NEEDED"]}
    assert state(cluster) == (1, (1, 2))
    assert elect(cluster, PREFERRED, ("t", 0)) == {"t": ["ELECTION_NOT_NEEDED"]}


def test_asked_for_all_only_those_are_told_that_need_one() -> None:
    cluster = led_by_two()
    assert elect(cluster, PREFERRED, everything=True) == {"t": ["NONE"], "u": []}


def test_a_preferred_leader_that_is_not_in_sync_is_not_available() -> None:
    cluster = led_by_two()
    propose(cluster, [2], by=2)
    assert elect(cluster, PREFERRED, ("t", 0)) == {"t": ["PREFERRED_LEADER_NOT_AVAILABLE"]}


def test_an_unclean_election_is_done_when_asked_for_also_where_it_is_not_allowed() -> None:
    cluster = only_two_is_left()
    assert elect(cluster, UNCLEAN, ("t", 0)) == {"t": ["NONE"]}
    assert state(cluster) == (2, (2,))
    assert elect(cluster, UNCLEAN, ("t", 0)) == {"t": ["ELECTION_NOT_NEEDED"]}
    cluster.silence(2)
    assert elect(cluster, UNCLEAN, ("t", 0)) == {"t": ["ELIGIBLE_LEADERS_NOT_AVAILABLE"]}


def test_elections_of_what_is_not_there() -> None:
    cluster = led_by_two()
    assert elect(cluster, PREFERRED, ("x", 0), ("t", 7)) == {
        "x": ["UNKNOWN_TOPIC_OR_PARTITION"],
        "t": ["UNKNOWN_TOPIC_OR_PARTITION"],
    }
    assert elect(cluster, 7, ("t", 0)) == {"t": ["INVALID_REQUEST"]}


def test_leaders_are_balanced_a_thousand_at_a_time() -> None:
    cluster = Cluster(2)
    cluster.create(*(new_topic(f"t{number}", 300, 2) for number in range(8)))
    cluster.silence(1)
    cluster.restart(1, is_clean=True)
    # All replicas are in sync again.
    for topic in cluster.image.topics.values():
        for number, each in enumerate(topic.partitions):
            change = PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, isr=list(each.replicas))
            cluster.controller.replay(change, cluster.controller.next_offset)
    moved = sum(each.replicas[0] == 1 for topic in cluster.image.topics.values() for each in topic.partitions)
    assert moved > 1000
    steps = []
    while records := cluster.controller.balance_leaders().records:
        steps.append(len(records))
        for record in records:
            cluster.controller.replay(record, cluster.controller.next_offset)
    assert steps == [1000, moved - 1000]
    assert all(each.leader == each.replicas[0] for topic in cluster.image.topics.values() for each in topic.partitions)
