"""`barnabas why` and the reports of `topics --describe` on a cluster whose nodes go and come; what is decided from the
answers stands in `test_diagnosis`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from barnabas.testing import EmbeddedCluster
from tests.cli.kafka_tools import KafkaTools
from tests.cli.tools import Tools
from tests.oracles import needs_kafka

REPORTS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3) as made:
        made.create_topic("clicks", partitions=3)
        yield made


def until_fenced(cluster: EmbeddedCluster, node: int) -> None:
    """Until all that run know it, as any of them may be asked."""

    def is_fenced() -> bool | None:
        return all(image.brokers[node].is_fenced for image in cluster._images()) or None

    cluster._wait(f"node {node} is fenced", is_fenced)


def survivor(cluster: EmbeddedCluster, *dead: int) -> str:
    return cluster.bootstrap_of(next(each for each in cluster.nodes if each not in dead))


def test_from_well_to_refused_and_back(cluster: EmbeddedCluster, barnabas: Tools) -> None:
    told = barnabas.at(cluster.bootstrap_servers, "why clicks")
    assert told.code == 0
    assert told.out.count(" is well: broker ") == 3

    dead = next(each for each in cluster.nodes if each != cluster.controller)
    cluster.kill(dead)
    until_fenced(cluster, dead)
    told = barnabas.at(survivor(cluster, dead), "why clicks:0")
    assert told.out.splitlines()[0].startswith(
        "clicks-0 is written and read, but not all replicas are in sync: 2 of 3 replicas are in sync"
    )
    assert f"  - broker {dead} is fenced, and does not answer at {cluster.bootstrap_of(dead)}" in told.out
    assert "If one more is lost, acks=all is refused." in told.out
    (found,) = barnabas.json_at(survivor(cluster, dead), "why clicks:0")
    assert found["verdict"] == "under-replicated"
    assert dead not in found["isr"]

    cluster.restart(dead)
    cluster.until_in_sync()
    found = barnabas.json_at(cluster.bootstrap_servers, "why clicks")
    assert [each["verdict"] for each in found] == ["well"] * 3


def test_acks_all_is_refused(cluster: EmbeddedCluster, barnabas: Tools) -> None:
    """All three are needed, so that one may be missing while the controllers are still a majority."""
    barnabas.at(cluster.bootstrap_servers, "configs --alter --topic clicks --add-config min.insync.replicas=3")
    dead = next(each for each in cluster.nodes if each != cluster.controller)
    cluster.stop(dead)
    until_fenced(cluster, dead)
    (found,) = barnabas.json_at(survivor(cluster, dead), "why clicks:1")
    assert found["verdict"] == "acks=all refused"
    assert "refused with NOT_ENOUGH_REPLICAS: 2 of 3 replicas are in sync" in found["sentences"][0]
    lowered = found["advice"][-1]
    assert lowered["losesRecords"]
    assert barnabas(*lowered["command"].split()[1:]).code == 0
    (found,) = barnabas.json_at(survivor(cluster, dead), "why clicks:1")
    assert found["verdict"] == "under-replicated"


def test_nobody_leads_and_the_advice_helps(cluster: EmbeddedCluster, barnabas: Tools) -> None:
    cluster.create_topic("lonely", replication_factor=1)
    dead = cluster.leader("lonely")
    cluster.kill(dead)
    until_fenced(cluster, dead)
    told = barnabas.at(survivor(cluster, dead), "why lonely")
    assert told.out.splitlines()[0] == "Nobody leads lonely-0: it is neither written nor read."
    assert f"broker {dead} is fenced" in told.out
    cluster.restart(dead)
    assert cluster.leader("lonely") == dead
    assert "is well" in barnabas.at(cluster.bootstrap_servers, "why lonely").out


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("why clicks --bootstrap-server b:", "b:"),
        ("why clicks", "--bootstrap-server is missing"),
        ("why clicks:x --bootstrap-server b:1", "'clicks:x': a topic, or a topic and the number of a partition"),
        ("why --bootstrap-server b:1", "TOPIC[:PARTITION]"),
    ],
)
def test_wrong_calls_end_with_1(barnabas: Tools, call: str, said: str) -> None:
    told = barnabas(*call.split())
    assert told.code == 1
    assert said in told.err


def test_what_there_is_not(barnabas: Tools, our_node: str) -> None:
    assert "there is no topic nothing" in barnabas.at(our_node, "why nothing").err
    assert "clicks has no partition 9: they are 0 to 1" in barnabas.at(our_node, "why clicks:9").err


@needs_kafka()
def test_reports_elections_and_disks_as_kafkas_tools_tell_them(cluster: EmbeddedCluster, barnabas: Tools) -> None:
    dead = next(each for each in cluster.nodes if each != cluster.controller)
    with KafkaTools() as kafka:
        cluster.create_topic("single", partitions=3, replication_factor=1)
        cluster.stop(dead)
        until_fenced(cluster, dead)
        at = survivor(cluster, dead)
        for report in ("", *REPORTS):
            call = ("--bootstrap-server", at, "--describe", *report.split())
            ours, kafkas = barnabas("topics", *call), kafka("topics", *call)
            assert (ours.code, sorted(ours.out.splitlines())) == (0, sorted(kafkas.out.splitlines())), report
            assert ours.out, report
        cluster.restart(dead)
        cluster.until_in_sync()
        call = ("--bootstrap-server", at, "--election-type", "preferred", "--all-topic-partitions")
        told = kafka("leader-election", *call)
        assert told.out.startswith("Successfully completed leader election (PREFERRED) for partitions clicks-"), told
        assert barnabas("leader-election", *call).out == ""
        for broker_list in ((), ("--broker-list", "1,2")):
            call = ("--bootstrap-server", at, "--describe", "--topic-list", "clicks", *broker_list)
            assert sizes(barnabas("log-dirs", *call).out) == sizes(kafka("log-dirs", *call).out)


def sizes(text: str) -> object:
    *said, document = text.splitlines()
    brokers = json.loads(document)["brokers"]
    for broker in brokers:
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda each: each["partition"])
    return said, sorted(brokers, key=lambda each: each["broker"])
