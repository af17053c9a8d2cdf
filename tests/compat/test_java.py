"""Apache Kafka's own Java clients and command-line tools do their daily work with a node.

The clients' stories are in tests/oracles/JavaClient.java and played once, in one process, for all tests here. The tools
share a process too: KafkaTools.java runs one after the other as it is told.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import pytest

from tests.compat.brokers import unique
from tests.oracles import java_program, needs_kafka, run_java

pytestmark = needs_kafka()

STORIES = ("admin", "errors", "records", "many", "eager", "cooperative", "static", "manual", "groups", "unbuilt")
TOOL_TIMEOUT_S = 60
NUMBERS = [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def told(node: str) -> dict[str, dict[str, Any]]:
    """What the clients told of each story."""
    printed = run_java("JavaClient.java", "", arguments=(node, f"{unique('java')}-", *STORIES))
    return {line["story"]: line for line in map(json.loads, printed.splitlines())}


def facts_of(story: str, told: dict[str, dict[str, Any]]) -> Any:
    assert "error" not in told[story], told[story]["error"]
    return told[story]["facts"]


def test_admin(told: dict[str, dict[str, Any]], node: str) -> None:
    facts = facts_of("admin", told)
    broker_id = facts["controller"]
    assert facts["nodes"] == [node]
    assert facts["clusterIdLength"] == 22
    assert (facts["listedAfterDryRun"], facts["listed"]) == (False, True)
    assert (facts["partitionsCreated"], facts["replicationCreated"]) == (2, 1)
    assert facts["retentionCreated"] == "123456"
    assert (facts["sameTopicId"], facts["describedById"]) == (True, True)
    assert facts["partitions"] == [[index, broker_id, 1, 1] for index in range(4)]
    assert facts["quorum"] == [True, 1, 0, True]
    assert facts["metadataVersion"] == 25
    assert facts["leftAfterDeletion"] is False


def test_settings_and_where_they_come_from(told: dict[str, dict[str, Any]]) -> None:
    facts = facts_of("admin", told)
    size = ["2000000", "DYNAMIC_TOPIC_CONFIG", False, "INT"]
    assert facts["configsChanged"] == {
        "cleanup.policy": ["delete,compact", "DYNAMIC_TOPIC_CONFIG", False, "LIST"],
        "max.message.bytes": size,
        "retention.ms": ["123456", "DYNAMIC_TOPIC_CONFIG", False, "LONG"],
    }
    assert facts["configsAgain"] == {
        "cleanup.policy": ["compact", "DYNAMIC_TOPIC_CONFIG", False, "LIST"],
        "max.message.bytes": size,
        "retention.ms": ["604800000", "DEFAULT_CONFIG", False, "LONG"],
    }
    assert facts["brokerConfigs"] == {
        "log.retention.hours": ["168", "DEFAULT_CONFIG", True, "INT"],
        "node.id": [str(facts["controller"]), "STATIC_BROKER_CONFIG", True, "INT"],
        "num.partitions": ["1", "DEFAULT_CONFIG", True, "INT"],
    }
    assert facts["brokerConfigChanged"] == {"log.retention.ms": ["86400000", "DYNAMIC_BROKER_CONFIG", False, "LONG"]}
    assert facts["inherited"] == {"retention.ms": ["86400000", "DYNAMIC_BROKER_CONFIG", False, "LONG"]}


def test_offsets_and_deletion_of_records(told: dict[str, dict[str, Any]]) -> None:
    facts = facts_of("admin", told)
    # The beginning, the end, a time in between, the youngest record, a time after all.
    assert facts["offsets"] == [0, 10, 5, 9, -1]
    assert (facts["lowWatermark"], facts["earliestAfterDeletion"]) == (6, 6)
    assert facts["deletedTooFar"] == "OffsetOutOfRangeException"
    assert (facts["logDirectories"], facts["replicaHasSize"]) == (1, True)


def test_errors_are_the_exceptions_that_programs_expect(told: dict[str, dict[str, Any]]) -> None:
    assert facts_of("errors", told) == {
        "exists": "TopicExistsException",
        "badName": "InvalidTopicException",
        "tooManyReplicas": "InvalidReplicationFactorException",
        "noPartitions": "InvalidPartitionsException",
        "badConfig": "InvalidConfigurationException",
        "unknownConfig": "InvalidConfigurationException",
        "unknownBroker": "InvalidReplicaAssignmentException",
        "assigned": None,
        "describeUnknown": "UnknownTopicOrPartitionException",
        "deleteUnknown": "UnknownTopicOrPartitionException",
        "fewerPartitions": "InvalidPartitionsException",
        "badAlteration": "InvalidConfigurationException",
        "deleteUnknownGroup": "GroupIdNotFoundException",
        "unknownPartition": "TimeoutException",
        "tooLarge": "RecordTooLargeException",
        "goesOn": None,
        "unknownProducePartition": "TimeoutException",
        "badTopicName": "InvalidTopicException",
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(told: dict[str, dict[str, Any]], codec: str) -> None:
    facts = facts_of("records", told)[codec]
    assert facts["acknowledged"] == [[0, offset] for offset in range(5)]
    plain, *others = facts["read"]
    assert plain == [0, "k", "plain", [], "CREATE_TIME", 1_700_000_000_123]
    headers = [["one", "eins"], ["none", None], ["one", "zwei"], ["", ""]]
    assert [each[:4] for each in others] == [
        [1, None, "with headers", headers],
        [2, "tombstone", None, []],
        [3, "", "", []],
        [4, "big", "true", []],  # 900,000 bytes that are all the same
    ]
    for *_, timestamp_type, timestamp_ms in others:
        assert timestamp_type == "CREATE_TIME"
        assert abs(timestamp_ms - time.time() * 1000) < 120_000


def test_many_records_with_acks_of_every_kind(told: dict[str, dict[str, Any]]) -> None:
    whole = [3000, 3000, True]
    assert facts_of("many", told) == {"0": whole, "1": whole, "all": whole}


@pytest.mark.parametrize(
    ("story", "assignor", "revoked"), [("eager", "range", [4]), ("cooperative", "cooperative-sticky", [2])]
)
def test_two_members_share_and_one_takes_over(
    told: dict[str, dict[str, Any]], story: str, assignor: str, revoked: list[int]
) -> None:
    assert facts_of(story, told) == {
        # Eagerly a member gives up all that it has, cooperatively only what goes to another.
        "revoked": revoked,
        "state": "Stable",
        "assignor": assignor,
        "members": [2, 2],
        "deletion": "GroupNotEmptyException",
        "distinct": 300,
        "count": 300,
    }


def test_a_static_member_keeps_its_partitions(told: dict[str, dict[str, Any]]) -> None:
    assert facts_of("static", told) == {
        "samePartition": True,
        "otherWasDisturbed": False,
        "fenced": "FencedInstanceIdException",
        "membersLeft": ["instance-1"],
    }


def test_manual_assignment(told: dict[str, dict[str, Any]]) -> None:
    assert facts_of("manual", told) == {
        "beginning": 0,
        "end": 10,
        "byTime": [5, 1_700_000_005_000, True],
        "sought": NUMBERS[5:],
        "whilePaused": 0,
        "resumed": NUMBERS,
        "lag": 0,
        "committed": [7, "seven", 0],
        "notCommitted": True,
        "afterCommit": NUMBERS[7:],
        "outOfRange": "OffsetOutOfRangeException",
        "committedOnlyInSmallSteps": NUMBERS,
    }


def test_offsets_of_groups_are_administered(told: dict[str, dict[str, Any]]) -> None:
    assert facts_of("groups", told) == {
        "altered": 4,
        "listed": [["Empty", ""]],
        "read": NUMBERS[4:],
        "deleteOffsetsInUse": "GroupSubscribedToTopicException",
        "alterInUse": "UnknownMemberIdException",
        "deleteOffsets": None,
        "offsetsLeft": 0,
        "deleteGroup": None,
        "describeDeleted": "GroupIdNotFoundException",
    }


# Tools


def test_what_is_not_built_is_refused_in_words(told: dict[str, dict[str, Any]]) -> None:
    facts = facts_of("unbuilt", told)
    transactions = facts.pop("transactions")
    assert facts == {
        "acls": "SecurityDisabledException",
        "tokens": "UnsupportedByAuthenticationException",
        "moves": 0,
        "unknownBroker": "BrokerIdNotRegisteredException",
    }
    # Kafka has them.
    assert transactions == "are there"


class Printed(NamedTuple):
    code: int
    out: str
    err: str


class Tools:
    """Kafka's command-line tools, in one process that is told what to run."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._process = subprocess.Popen(
            java_program("KafkaTools.java"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, tool: str, *arguments: str, text: str = "", code: int = 0) -> str:
        """What a tool printed, once it ended with the code that is expected."""
        name = tool if tool.startswith("kafka.") else f"org.apache.kafka.tools.{tool}"
        address = ("--bootstrap-server", self.node)
        given = [*arguments, *address] if tool == "ClusterTool" else [*address, *arguments]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = Timer(TOOL_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            print(json.dumps({"tool": name, "arguments": given, "input": text}), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert answer, f"{tool} did not end within {TOOL_TIMEOUT_S} s"
        printed = Printed(**json.loads(answer))
        assert printed.code == code, printed
        return printed.out

    def topics(self, *arguments: str, code: int = 0) -> str:
        return self.run("TopicCommand", *arguments, code=code)

    def configs(self, *arguments: str) -> str:
        return self.run("kafka.admin.ConfigCommand", *arguments)

    def groups(self, *arguments: str) -> str:
        return self.run("consumer.group.ConsumerGroupCommand", *arguments)

    def close(self) -> None:
        self._process.communicate(timeout=TOOL_TIMEOUT_S)


@pytest.fixture(scope="module")
def tools(node: str) -> Iterator[Tools]:
    running = Tools(node)
    yield running
    running.close()


@pytest.fixture
def topic(tools: Tools) -> str:
    name = unique("tools")
    tools.topics("--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=123456")
    return name


def table(printed: str) -> list[dict[str, str]]:
    """The rows below a line of headings."""
    heading, *rows = [line.split() for line in printed.strip().splitlines()]
    return [dict(zip(heading, row, strict=False)) for row in rows]


def test_topics_tool(tools: Tools, topic: str) -> None:
    assert "exists" in tools.topics("--create", "--topic", topic, code=1)
    tools.topics("--create", "--topic", topic, "--if-not-exists")
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    heading, *partitions = tools.topics("--describe", "--topic", topic).splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: " in heading
    assert "retention.ms=123456" in heading
    assert [re.findall(r"Partition: (\d+)", line) for line in partitions] == [["0"], ["1"], ["2"]]
    for line in partitions:
        assert re.search(r"Leader: (\d+)\tReplicas: \1\tIsr: \1\t", line)
    assert topic in tools.topics("--list").split()
    assert tools.topics("--describe", "--under-replicated-partitions") == ""
    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").split()
    assert "does not exist" in tools.topics("--delete", "--topic", topic, code=1)


def test_configs_tool(tools: Tools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    changes = ("--add-config", "cleanup.policy=[compact,delete]", "--delete-config", "retention.ms")
    assert "Completed updating config" in tools.configs("--alter", *entity, *changes)
    described = tools.configs("--describe", *entity)
    assert "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in described
    assert "DEFAULT_CONFIG:log.cleanup.policy=delete}" in described
    assert "retention.ms=123456" not in described

    everywhere = ("--entity-type", "brokers", "--entity-default")
    tools.configs("--alter", *everywhere, "--add-config", "log.retention.ms=86400000")
    wanted = "log.retention.ms=86400000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:"
    assert wanted in tools.configs("--describe", *everywhere)
    tools.configs("--alter", *everywhere, "--delete-config", "log.retention.ms")

    broker_id = re.findall(r"id: (\d+)", tools.run("BrokerApiVersionsCommand"))[0]
    everything = tools.configs("--describe", "--entity-type", "brokers", "--entity-name", broker_id, "--all")
    assert f"node.id={broker_id} sensitive=false synonyms={{STATIC_BROKER_CONFIG:" in everything
    assert "num.network.threads=3 sensitive=false synonyms={DEFAULT_CONFIG:" in everything
    assert everything.count(" sensitive=") > 150


def test_console_producer_consumer_and_groups_tool(tools: Tools, topic: str) -> None:
    keyed = ("--reader-property", "parse.key=true")
    lines = "h1:a,h2:b\tk1\tv1\nh1:c\tk2\tv2\n"
    tools.run("ConsoleProducer", "--topic", topic, *keyed, "--reader-property", "parse.headers=true", text=lines)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        text = f"{codec}\tof {codec}\n"
        tools.run("ConsoleProducer", "--topic", topic, *keyed, "--compression-codec", codec, text=text)
    shown = [f"print.{name}=true" for name in ("key", "headers", "partition", "offset")]
    printed = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", topic, "--from-beginning", "--max-messages", "6", "--timeout-ms", "20000", "--group", topic),
        *[argument for each in shown for argument in ("--formatter-property", each)],
    )
    records = sorted(line.split("\t")[2:] for line in printed.splitlines())
    assert records == [
        ["NO_HEADERS", "gzip", "of gzip"],
        ["NO_HEADERS", "lz4", "of lz4"],
        ["NO_HEADERS", "snappy", "of snappy"],
        ["NO_HEADERS", "zstd", "of zstd"],
        ["h1:a,h2:b", "k1", "v1"],
        ["h1:c", "k2", "v2"],
    ]
    rows = table(tools.groups("--describe", "--group", topic))
    assert sorted(row["PARTITION"] for row in rows) == ["0", "1"]
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 6
    assert {row["LAG"] for row in rows} == {"0"}
    assert re.search(rf"{topic}\s+Empty", tools.groups("--list", "--state"))
    assert re.search(
        rf"{topic}\s+{tools.node}\s+\(\d+\)\s+.*Empty\s+0", tools.groups("--describe", "--group", topic, "--state")
    )
    reset = tools.groups("--reset-offsets", "--group", topic, "--all-topics", "--to-earliest", "--execute")
    assert [row["NEW-OFFSET"] for row in table(reset)] == ["0", "0"]
    assert "Successful" in tools.groups("--delete-offsets", "--group", topic, "--topic", f"{topic}:0")
    assert "was successful" in tools.groups("--delete", "--group", topic)
    assert "GroupIdNotFoundException" in tools.groups("--describe", "--group", topic)


def test_offsets_and_deletion_tools(tools: Tools, topic: str, tmp_path: Path) -> None:
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": -1}], "version": 1}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted))
    for number in range(3):
        tools.run("ConsoleProducer", "--topic", topic, "--command-property", "linger.ms=0", text=f"{number}\n" * 20)

    def offsets(*arguments: str) -> list[int]:
        printed = tools.run("GetOffsetShell", "--topic", topic, *arguments)
        return [int(line.split(":")[2] or -1) for line in sorted(printed.splitlines())]

    ends = offsets()
    assert sum(ends) == 60
    assert offsets("--time", "earliest") == [0, 0]
    assert sum(offset >= 0 for offset in offsets("--time", "max-timestamp")) == sum(end > 0 for end in ends)
    assert f"partition: {topic}-0\tlow_watermark: {ends[0]}" in tools.run(
        "DeleteRecordsCommand", "--offset-json-file", str(file)
    )
    assert offsets("--time", "earliest") == [ends[0], 0]
    described = json.loads(tools.run("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1])
    (directory,) = described["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert sorted(each["partition"] for each in directory["partitions"]) == [f"{topic}-0", f"{topic}-1"]


def test_cluster_tools(tools: Tools) -> None:
    versions = tools.run("BrokerApiVersionsCommand")
    assert versions.startswith(f"{tools.node} (id: ")
    # The client in the same release finds a version in common for all that it needs.
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions
    status = dict(
        re.findall(r"^(\w+): +(.*)$", tools.run("MetadataQuorumCommand", "describe", "--status"), re.MULTILINE)
    )
    assert int(status["HighWatermark"]) > 0
    assert status["MaxFollowerLag"] == "0"
    assert f'"id": {status["LeaderId"]}, ' in status["CurrentVoters"]
    (row,) = table(tools.run("MetadataQuorumCommand", "describe", "--replication"))
    assert (row["NodeId"], row["Lag"], row["Status"]) == (status["LeaderId"], "0", "Leader")
    assert re.search(r"metadata\.version .*FinalizedVersionLevel: 4\.0-IV3", tools.run("FeatureCommand", "describe"))
    assert re.fullmatch(r"Cluster ID: \S{22}\n", tools.run("ClusterTool", "cluster-id"))
    tools.run("ClusterTool", "unregister", "--id", "77", code=1)
    (endpoint,) = table(tools.run("ClusterTool", "list-endpoints"))
    assert f"{endpoint['HOST']}:{endpoint['PORT']}" == tools.node


def test_performance_tools(tools: Tools, topic: str) -> None:
    load = ("--topic", topic, "--num-records", "20000")
    sent = tools.run("ProducerPerformance", *load, "--record-size", "100", "--throughput", "-1")
    assert "20000 records sent" in sent
    consumed = tools.run("ConsumerPerformance", *load, "--timeout", "20000").splitlines()
    figures = dict(zip(consumed[0].split(", "), consumed[1].split(", "), strict=True))
    assert int(figures["data.consumed.in.nMsg"]) == 20_000
    latency = tools.run(
        "EndToEndLatency", "--topic", topic, "--num-records", "50", "--producer-acks", "all", "--record-size", "20"
    )
    assert "Percentiles: 50th = " in latency
