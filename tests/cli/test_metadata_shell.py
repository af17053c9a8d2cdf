"""`metadata-shell`: the metadata as a tree, from a log, a snapshot, or both."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.base.ids import Uuid
from barnabas.broker.quorum.formatting import format_directories
from barnabas.cli.metadata_shell import Shell
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire.stored.cluster_metadata import (
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from tests.broker.metadata_files import CLUSTER_ID, RunningQuorum, config, node_settings
from tests.cli.tools import Tools, run_kafkas_shell
from tests.oracles import kafka_jars, missing, other_process

TOPIC_ID = Uuid(bytes(range(16)))


def records() -> list[MetadataRecord]:
    partitions = [
        PartitionRecord(
            partition_id=number,
            topic_id=TOPIC_ID,
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=4,
            partition_epoch=5,
            directories=[Uuid(bytes(range(1, 17)))],
        )
        for number in range(2)
    ]
    secret = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"salt", stored_key=b"secret", server_key=b"secret", iterations=4096
    )
    ids = ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000)
    password = config("listener.name.ssl.ssl.keystore.password", "secret")
    known = [config("log.retention.ms", "5"), ids, secret, password]
    return [TopicRecord(name="clicks", topic_id=TOPIC_ID), *partitions, *known]


#: Of what is secret only the name is shown.
REDACTED = {"listener.name.ssl.ssl.keystore.password": "[redacted]"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a snapshot, and a log that goes on after it."""
    files, settings = RealFileSystem(), node_settings(str(tmp_path))
    format_directories(files, settings, CLUSTER_ID, Random(1))

    async def write() -> None:
        running = await RunningQuorum(files, settings).start()
        await running.commit(*records())
        await running.take_snapshot()
        await running.commit(config("num.io.threads", "9"))
        await running.stop()

    asyncio.run(write())
    return tmp_path


def test_the_tree_has_kafkas_names(barnabas: Tools, data: Path) -> None:
    told = barnabas("metadata-shell", "-d", str(data), "find")
    assert told.code == 0
    found = told.out.splitlines()
    assert "/image/topics/byName/clicks/0" in found
    assert f"/image/topics/byId/{TOPIC_ID}/name" in found
    assert "/image/configs/BROKER/log.retention.ms" in found
    assert "/image/features/metadataVersion" in found
    assert "/image/producerIds/nextProducerId" in found
    assert "/local/version" in found
    top = barnabas("metadata-shell", "-d", str(data), "ls", "/image").out.split()
    assert top == [
        "acls",
        "clientQuotas",
        "cluster",
        "configs",
        "delegationToken",
        "features",
        "producerIds",
        "provenance",
        "scram",
        "topics",
    ]


def test_a_directory_is_read_from_its_snapshot_and_the_log_after_it(barnabas: Tools, data: Path) -> None:
    path = "/image/configs/BROKER"
    inner = str(data / "__cluster_metadata-0")
    for directory in (str(data), inner):
        told = json.loads(barnabas("metadata-shell", "-d", directory, "--json", "tree", path).out)
        assert told == {**REDACTED, "log.retention.ms": "5", "min.insync.replicas": "1", "num.io.threads": "9"}
    (snapshot,) = (data / "__cluster_metadata-0").glob("*.checkpoint")
    told = json.loads(barnabas("metadata-shell", "-s", str(snapshot), "--json", "tree", path).out)
    assert told == {**REDACTED, "log.retention.ms": "5", "min.insync.replicas": "1"}
    (segment,) = (data / "__cluster_metadata-0").glob("*.log")
    told = json.loads(barnabas("metadata-shell", "-s", str(segment), "--json", "tree", path).out)
    assert told == {**REDACTED, "log.retention.ms": "5", "min.insync.replicas": "1", "num.io.threads": "9"}


def test_files_are_shown_for_people_and_for_programs(barnabas: Tools, data: Path) -> None:
    cat = ("metadata-shell", "-d", str(data), "--json", "cat")
    assert json.loads(barnabas(*cat, "/image/features/metadataVersion").out) == "4.0-IV3"
    partition = json.loads(barnabas(*cat, "/image/topics/byName/clicks/0").out)
    assert (partition["leader"], partition["leaderEpoch"], partition["isr"]) == (1, 4, [1])
    both = json.loads(barnabas(*cat, "/image/topics/byName/clicks/{0,1}").out)
    assert sorted(both) == ["/image/topics/byName/clicks/0", "/image/topics/byName/clicks/1"]
    told = barnabas("metadata-shell", "-d", str(data), "cat", "/image/topics/byName/*/id")
    assert told.out == f"{TOPIC_ID}\n"


def test_secrets_are_not_shown(barnabas: Tools, data: Path) -> None:
    told = barnabas("metadata-shell", "-d", str(data), "tree", "/image/scram")
    assert "alice" in told.out
    assert "4096" in told.out
    assert "secret" not in told.out
    assert "c2VjcmV0" not in told.out
    told = barnabas("metadata-shell", "-d", str(data), "tree", "/image/configs")
    assert "listener.name.ssl.ssl.keystore.password" in told.out
    assert "secret" not in told.out


def test_looking_changes_nothing(barnabas: Tools, data: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in data.rglob("*") if path.is_file()}
    barnabas("metadata-shell", "-d", str(data), "tree")
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in data.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("cat", "/image/nothing"), "/image/nothing: no such file or directory"),
        (("cat", "/image"), "it is a directory"),
        (("cat",), "which file?"),
        (("cd", "/image/provenance"), "not a directory"),
        (("fly",), "there is no command fly"),
        (("man", "fly"), "there is no command fly"),
        (("history", "some"), "some is not a number"),
    ],
)
def test_what_cannot_be_done_is_told(barnabas: Tools, data: Path, command: tuple[str, ...], said: str) -> None:
    told = barnabas("metadata-shell", "-d", str(data), *command)
    assert told.code == 1
    assert told.err.startswith("barnabas: ")
    assert said in told.err


@pytest.mark.parametrize("option", ["--snapshot", "--directory"])
def test_files_that_are_missing_are_told_of(barnabas: Tools, tmp_path: Path, option: str) -> None:
    told = barnabas("metadata-shell", option, str(tmp_path / "gone"), "ls")
    assert told.code == 1
    assert "gone" in told.err
    told = barnabas("metadata-shell", "--directory", str(tmp_path), "ls")
    assert "holds neither a log nor a snapshot" in told.err


def test_a_session_at_the_prompt(barnabas: Tools, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["cd image/topics/byName", "pwd", "ls", "cd clicks", "cat name", "cd ../../..", "pwd"]
    typed += ["cat 'unended", "ls nowhere", "history 2", "exit", "ls"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(typed) + "\n"))
    told = barnabas("metadata-shell", "-d", str(data))
    assert told.code == 0
    assert told.out.splitlines() == [
        "/image/topics/byName",
        "clicks",
        "clicks",
        "/image",
        "    8  ls nowhere",
        "    9  history 2",
    ]
    assert told.err.count("barnabas: ") == 2


def test_paths_are_completed() -> None:
    shell = Shell({"image": {"topics": {"byName": {}, "byId": {}}, "provenance": "x"}, "local": {}})
    assert shell.continuations("") == ["image/", "local/"]
    assert shell.continuations("/im") == ["/image/"]
    assert shell.continuations("image/topics/by") == ["image/topics/byId/", "image/topics/byName/"]
    assert shell.continuations("image/p") == ["image/provenance "]
    assert shell.continuations("image/provenance/x") == []
    shell.cd(["image/topics"])
    assert shell.continuations("../prov") == ["../provenance "]


def no_shell() -> str | None:
    """Why Kafka's shell cannot run here: it is a jar of its own, which older folders lack."""
    jars = kafka_jars()
    has_shell = jars is None or any(jars.glob("kafka-shell-*.jar"))
    return missing() if has_shell else "Kafka's shell is not in .oracles: run 'make oracles'"


def same_as(ours: list[str]) -> Callable[[list[str]], bool]:
    return lambda theirs: sorted(ours) == sorted(theirs)


@other_process(no_shell())
@pytest.mark.parametrize("pattern", ["*.checkpoint", "*.log"])
def test_kafkas_shell_finds_the_same_in_our_files(barnabas: Tools, data: Path, pattern: str) -> None:
    (path,) = (data / "__cluster_metadata-0").glob(pattern)
    for call in (("find", "/image"), ("cat", "/image/topics/byName/clicks/id"), ("ls", "/image/configs/BROKER")):
        ours = barnabas("metadata-shell", "-s", str(path), *call)
        assert ours.code == 0
        run_kafkas_shell(["--snapshot", str(path), *call], same_as(ours.out.split()))
