"""A broker of ours and one of Apache Kafka's side by side, under a controller of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.compat.mock_cluster import Connection
from tests.oracles import needs_kafka
from tests.peers.nodes import HOST, Kind, PeerCluster
from tests.peers.replicas import Replicas, assert_same_segments
from tests.peers.transactions import OFFSETS, SETTINGS, STATES, Transactors, create_internal_topics
from tests.peers.work import Work

pytestmark = needs_kafka()

OURS, KAFKAS = 10, 11
PAID = "paid"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerCluster]:
    folder: Path = tmp_path_factory.mktemp("mixed")
    with PeerCluster(folder, {1: "controller", OURS: "broker", KAFKAS: "broker"}, SETTINGS) as cluster:
        cluster.start({1: Kind.OURS, OURS: Kind.OURS, KAFKAS: Kind.KAFKA})
        create_internal_topics(cluster.bootstrap, OURS, KAFKAS)
        yield cluster
    # All that coordinators of one kind wrote, those of the other have, byte for byte.
    for topic in (STATES, OFFSETS):
        assert_same_segments(cluster, topic, (0, 1), (OURS, KAFKAS), is_quiet=False)
    assert cluster.complaints() == []


def test_brokers_of_both_kinds_share_a_topic(cluster: PeerCluster) -> None:
    ours, kafkas = Work(cluster[OURS].address), Work(cluster[KAFKAS].address)
    assert ours.brokers() == kafkas.brokers() == {OURS, KAFKAS}
    kafkas.create("through-kafka", 4)
    ours.create("through-ours", 4)
    values = [f"value {number}" for number in range(40)]
    for work, topic in ((ours, "through-kafka"), (kafkas, "through-ours")):
        work.set_option(topic, "retention.ms", "123456")
        work.produce(topic, values)
    for work, topic in ((kafkas, "through-kafka"), (ours, "through-ours")):
        assert work.retention([topic]) == {topic: "123456"}
        assert work.leaders_of(topic) == {OURS, KAFKAS}
        assert work.read(topic, 40, group=f"readers-of-{topic}") == sorted(values)
    # Kafka's broker asks our controller, which advertises that one may.
    connection = Connection(HOST, cluster[KAFKAS].port)
    request = ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None)
    told = connection.call(request, ListPartitionReassignmentsResponse, 0)
    connection.close()
    assert (told.error_code, told.topics) == (0, [])


def test_transactions_go_on_when_coordinators_and_leaders_change_kind(cluster: PeerCluster) -> None:
    """Markers, questions whether a transaction is open, and what coordinators wrote go from each kind to the other."""
    bootstrap = cluster.bootstrap
    topics = [Replicas(cluster, each) for each in (PAID, STATES, OFFSETS)]
    topics[0].create({0: [OURS, KAFKAS], 1: [KAFKAS, OURS]})
    people = Transactors(bootstrap, PAID, 2)
    people.begin()
    people.write(0)
    people.end()

    people.begin()
    people.write(1)
    cluster[OURS].stop()
    for each in topics:
        each.until_led_by({KAFKAS})
    people.write(2, with_offset=False)
    people.end()

    cluster.start({OURS: Kind.OURS})
    for each in topics:
        each.until_in_sync({0: {OURS, KAFKAS}, 1: {OURS, KAFKAS}})
    people.begin()
    people.write(3, with_offset=False)
    for each in topics:
        each.elect_preferred()
    people.write(4, with_offset=False)
    people.end()
    people.check(bootstrap)
    people.close()
