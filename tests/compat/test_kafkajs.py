"""kafkajs, the client of the Node.js world, does its daily work with a node. Its stories are in kafkajs/stories.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from tests.oracles import ROOT, other_process

STORIES = Path(__file__).parent / "kafkajs" / "stories.js"
MODULES = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / "kafkajs" / "node_modules"
_TIMEOUT_S = 60

#: Where the value of a setting comes from, by Kafka's numbers.
DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5


def missing() -> str | None:
    if shutil.which("node") is None:
        return "node (Node.js) is not installed"
    return None if (MODULES / "kafkajs").is_dir() else "kafkajs is not in .oracles: run 'make oracles'"


pytestmark = other_process(missing())


def play(story: str, node: str) -> Any:
    """The facts that a story printed."""
    done = subprocess.run(
        ["node", str(STORIES), story, node, f"kafkajs-{uuid.uuid4().hex[:8]}-"],
        env=os.environ | {"NODE_PATH": str(MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_admin(node: str) -> None:
    facts = play("admin", node)
    assert facts["dryRun"] is True
    assert facts["listedAfterDryRun"] is False
    assert (facts["created"], facts["createdAgain"], facts["listed"]) == (True, False, True)
    (broker_id,) = facts["brokerIds"]
    assert facts["partitions"] == [[index, broker_id, [broker_id], [broker_id], 0] for index in range(4)]
    assert facts["brokers"] == [node]
    assert facts["controller"] == broker_id
    assert facts["clusterIdLength"] == 22
    assert facts["configs"] == {
        "retention.ms": ["123456", DYNAMIC_TOPIC_CONFIG],
        "cleanup.policy": ["delete", DEFAULT_CONFIG],
    }
    assert facts["allConfigs"] > 25
    # AlterConfigs sets all that it names and resets all that it does not.
    assert facts["configsAltered"] == {
        "retention.ms": ["604800000", DEFAULT_CONFIG],
        "cleanup.policy": ["compact", DYNAMIC_TOPIC_CONFIG],
    }
    assert facts["listedAfterDeletion"] is False


def test_errors_have_the_names_that_the_client_knows(node: str) -> None:
    assert play("errors", node) == {
        "tooManyReplicas": "INVALID_REPLICATION_FACTOR",
        "noPartitions": "INVALID_PARTITIONS",
        "badName": "INVALID_TOPIC_EXCEPTION",
        "badConfig": "INVALID_CONFIG",
        "unknownConfig": "INVALID_CONFIG",
        "deleteUnknown": "UNKNOWN_TOPIC_OR_PARTITION",
        "metadataUnknown": "INVALID_TOPIC_EXCEPTION",
        "fewerPartitions": "INVALID_PARTITIONS",
        "tooLarge": "MESSAGE_TOO_LARGE",
        "emptyGroup": "Dead",
        "deleteUnknownGroup": "GROUP_ID_NOT_FOUND",
        "keysWanted": "INVALID_RECORD",
    }


def test_records_come_back_as_they_were_sent(node: str) -> None:
    facts = play("records", node)
    assert facts["baseOffsets"] == ["0", "5", "10", "15"]
    assert facts["errorCodes"] == [0, 0, 0, 0]
    assert facts["logStartOffsets"] == ["0", "0", "0", "0"]
    records = facts["records"]
    assert [each["offset"] for each in records] == [str(number) for number in range(17)]
    for codec in range(3):
        plain, keyless, tombstone, empty, big = records[5 * codec : 5 * codec + 5]
        assert (plain["key"], plain["value"], plain["timestamp"]) == (f"k{codec}", "plain", "1700000000123")
        assert plain["headers"] == {}
        assert (keyless["key"], keyless["value"]) == (None, "no key")
        assert keyless["headers"] == {"one": "eins", "many": ["a", "b"], "empty": ""}
        assert abs(int(keyless["timestamp"]) - time.time() * 1000) < 60_000
        assert (tombstone["key"], tombstone["value"]) == ("tombstone", None)
        assert (empty["key"], empty["value"]) == ("", "")
        assert (big["key"], big["value"]) == ("äß漢🎉", 900_000)
    assert [each["value"] for each in records[15:]] == ["acks 1", "acks 0"]


def test_an_idempotent_producer_loses_and_repeats_nothing(node: str) -> None:
    assert play("idempotent", node) == {"count": 600, "distinct": 600, "orderedPerKey": True}


def test_two_members_share_and_one_takes_over(node: str) -> None:
    facts = play("rebalance", node)
    one, two = facts["shared"]
    assert sorted([*one, *two]) == [0, 1, 2, 3]
    assert facts["protocol"] == "RoundRobinAssigner"
    group = facts["group"]
    assert (group["state"], group["protocolType"], group["protocol"]) == ("Stable", "consumer", "RoundRobinAssigner")
    assert group["members"] == [["kafkajs-stories", "/127.0.0.1"]] * 2
    assert group["listed"]["protocolType"] == "consumer"
    assert group["deletion"] == "NON_EMPTY_GROUP"
    assert facts["after"]["state"] == "Empty"
    assert [each["errorCode"] for each in facts["after"]["deletion"]] == [0]
    assert facts["after"]["stateOfDeleted"] == "Dead"
    assert (facts["count"], facts["whole"]) == (300, True)


def test_offsets_are_committed_resumed_found_by_time_and_moved(node: str) -> None:
    facts = play("offsets", node)
    assert facts["first"] == [0, 1, 2, 3]
    assert facts["committed"] == [{"partition": 0, "offset": "4", "metadata": "after 3"}]
    assert facts["resumed"] == [4, 5, 6, 7, 8, 9]
    assert facts["topicOffsets"] == [{"partition": 0, "offset": "10", "high": "10", "low": "0"}]
    # A time after the last record is answered with the end.
    assert facts["byTime"] == ["0", "5", "9", "10"]
    assert facts["sought"] == [5, 6, 7]
    assert facts["afterSetOffsets"] == [8, 9]
    # kafkajs commits -1, its own mark for "the latest", as an offset.
    assert [each["offset"] for each in facts["afterReset"]] == ["-1"]
    assert facts["topicOffsetsAfterDeletion"] == [{"partition": 0, "offset": "10", "high": "10", "low": "6"}]
    # The committed offset is gone from the log: the client starts again at the beginning.
    assert facts["outOfRange"] == [6, 7, 8, 9]


def test_a_paused_partition_rests_while_others_go_on(node: str) -> None:
    facts = play("pause", node)
    assert facts["whilePaused"] == 1
    assert facts["seen"] == ["0:a", "0:b", "0:c", "1:a", "1:b", "1:c"]


def test_transactions(transacting: str) -> None:
    facts = play("transactions", transacting)
    assert facts["committed"] == [0, 1, 2, 6, 7, 10, 11]
    assert facts["offsets"] == ["0", "0", "6"]
    assert facts["fenced"] in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
