"""`storage format` beside Kafka's: which calls both take, and what they leave on disk, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.raft.batches import LogBatch, read_batch
from barnabas.records.batch import iter_batches
from barnabas.storage.meta_properties import MetaProperties, read_meta_properties
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire.stored.control_records import SnapshotHeaderRecord, VotersRecord
from tests.broker.metadata_files import CLUSTER_ID
from tests.broker.role_cases import BROKER, COMBINED, CONTROLLER, Settings, changed, dynamic
from tests.cli.kafka_tools import KafkaTools
from tests.cli.tools import Tools
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer

pytestmark = needs_kafka()

ONE, TWO, THREE = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA"
VOTERS = f"1@a:9093:{ONE},2@b:9094:{TWO},3@c:9093:{THREE}"
#: So that Kafka finalises what we do.
LEVELS = ("--release-version", "4.0-IV3", "--feature", "group.version=0", "--feature", "transaction.version=0")
FIRST_VOTERS = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"

CASES: dict[str, tuple[Settings, tuple[str, ...]]] = {
    "static": (COMBINED, LEVELS),
    "static, a broker": (BROKER, LEVELS),
    "static, a controller": (CONTROLLER, LEVELS),
    "static at an older level": (COMBINED, ("--release-version", "3.7")),
    "static at the oldest level": (COMBINED, ("--feature", "metadata.version=7")),
    "static, with bootstrap servers": (changed(COMBINED, controller_quorum_bootstrap_servers="a:9093"), LEVELS),
    "static, and others come later": (COMBINED, (*LEVELS, "--no-initial-controllers")),
    "static, kraft.version 0": (COMBINED, (*LEVELS, "-f", "kraft.version=0")),
    "a broker whose voters are in the log": (dynamic(BROKER), LEVELS),
    "a controller that comes later": (dynamic(CONTROLLER), (*LEVELS, "-N")),
    "alone": (dynamic(COMBINED), (*LEVELS, "--standalone")),
    "alone, kraft.version 1": (dynamic(CONTROLLER), (*LEVELS, "-s", "-f", "kraft.version=1")),
    "alone at all addresses": (dynamic(CONTROLLER, listeners="CONTROLLER://0.0.0.0:9093"), (*LEVELS, "-s")),
    "alone at no address": (dynamic(CONTROLLER, listeners="CONTROLLER://:9093"), (*LEVELS, "-s")),
    "alone and advertised": (dynamic(CONTROLLER, advertised_listeners="CONTROLLER://x:1"), (*LEVELS, "-s")),
    "alone with two listeners": (
        dynamic(
            CONTROLLER, listeners="CONTROLLER://a:9093,OTHER://a:9094", controller_listener_names="OTHER,CONTROLLER"
        ),
        (*LEVELS, "-s"),
    ),
    "first voters": (dynamic(COMBINED), (*LEVELS, "--initial-controllers", VOTERS)),
    "first voters, of a broker": (dynamic(BROKER), (*LEVELS, "-I", VOTERS)),
    "first voters, of another controller": (dynamic(COMBINED, node_id="7"), (*LEVELS, "-I", VOTERS)),
    # Refused
    "static and alone": (COMBINED, (*LEVELS, "-s")),
    "static and first voters": (COMBINED, (*LEVELS, "-I", VOTERS)),
    "static and kraft.version 1": (COMBINED, (*LEVELS, "-f", "kraft.version=1")),
    "a controller that is not told of its voters": (dynamic(COMBINED), LEVELS),
    "a broker alone": (dynamic(BROKER), (*LEVELS, "-s")),
    "alone, kraft.version 0": (dynamic(COMBINED), (*LEVELS, "-s", "-f", "kraft.version=0")),
    "later, kraft.version 0": (dynamic(COMBINED), (*LEVELS, "-N", "-f", "kraft.version=0")),
    "alone, kraft.version 2": (dynamic(COMBINED), (*LEVELS, "-s", "-f", "kraft.version=2")),
    "alone and later": (dynamic(COMBINED), (*LEVELS, "-s", "-N")),
    "a voter without directory": (dynamic(COMBINED), (*LEVELS, "-I", "1@a:9093")),
    "a voter twice": (dynamic(COMBINED), (*LEVELS, "-I", f"1@a:9093:{ONE},1@b:9093:{TWO}")),
    "no voters": (dynamic(COMBINED), (*LEVELS, "-I", "")),
    "a release before the first": (COMBINED, ("--release-version", "3.2")),
    "a level before the first": (COMBINED, ("--feature", "metadata.version=6")),
    "a feature that is none": (COMBINED, (*LEVELS, "-f", "foo=1")),
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


def config_in(folder: Path, settings: Settings) -> str:
    folder.mkdir()
    path = folder / "server.properties"
    given = {**settings, "log.dirs": f"{folder}/a,{folder}/b"}
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return str(path)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def snapshot(path: Path) -> list[LogBatch]:
    return [_without_times(read_batch(batch)) for batch in iter_batches(path.read_bytes())]


def _without_times(batch: LogBatch) -> LogBatch:
    controls = tuple(
        each
        if not isinstance(each.message, SnapshotHeaderRecord)
        else replace(each, message=SnapshotHeaderRecord(version=0, last_contained_log_timestamp=0))
        for each in batch.controls
    )
    return replace(batch, append_time_ms=0, controls=controls)


def identity(folder: Path) -> MetaProperties:
    found = read_meta_properties(RealFileSystem(), str(folder))
    assert found is not None
    return found


def voters_in(batches: list[LogBatch]) -> VotersRecord:
    (found,) = (each.message for each in batches[0].controls if isinstance(each.message, VotersRecord))
    return found


@pytest.mark.parametrize(("settings", "options"), CASES.values(), ids=CASES)
def test_the_same_call_leaves_the_same_on_disk(
    barnabas: Tools, kafka: KafkaTools, tmp_path: Path, settings: Settings, options: tuple[str, ...]
) -> None:
    theirs, ours = tmp_path / "kafka", tmp_path / "barnabas"
    call: tuple[Any, ...] = ("storage", "format", "-t", CLUSTER_ID, *options, "-c")
    told_theirs, told = kafka(*call, config_in(theirs, settings)), barnabas(*call, config_in(ours, settings))
    assert (told.code == 0) == (told_theirs.code == 0), (told, told_theirs)
    # Kafka writes the first records into every directory, and reads those beside the metadata log alone.
    assert files_in(ours) == [each for each in files_in(theirs) if each != "b/bootstrap.checkpoint"]
    if told.code != 0:
        return
    said = [line.replace(str(theirs), str(ours)) for line in told_theirs.out.splitlines() if "Formatting" in line]
    assert sorted(told.out.splitlines()) == sorted(said)
    assert snapshot(ours / "a/bootstrap.checkpoint") == snapshot(theirs / "a/bootstrap.checkpoint")
    for each in ("a", "b"):
        assert replace(identity(ours / each), directory_id=None) == replace(identity(theirs / each), directory_id=None)
    if (ours / "a" / FIRST_VOTERS).exists():
        batches, kafkas = snapshot(ours / "a" / FIRST_VOTERS), snapshot(theirs / "a" / FIRST_VOTERS)
        if "-I" in options:
            assert identity(ours / "a").directory_id != identity(ours / "b").directory_id
            assert (identity(ours / "a").directory_id == identity(theirs / "a").directory_id) == (
                settings["node.id"] in "123"
            )
        elif len(voters_in(batches).voters) == 1:
            # Each made up a directory id of its own, and put it into both files.
            own, kafkas_own = voters_in(batches).voters[0], voters_in(kafkas).voters[0]
            assert own.voter_directory_id == identity(ours / "a").directory_id
            own.voter_directory_id = kafkas_own.voter_directory_id
        assert batches == kafkas


def test_what_we_format_is_formatted_for_kafka(barnabas: Tools, kafka: KafkaTools, tmp_path: Path) -> None:
    config = config_in(tmp_path / "node", dynamic(COMBINED))
    assert barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config, "-I", VOTERS).code == 0
    told = kafka("storage", "format", "-t", CLUSTER_ID, "-c", config, "-I", VOTERS, "-g")
    assert told.code == 0
    assert "All of the log directories are already formatted." in told.out


def test_kafka_runs_as_the_quorum_of_one_that_we_formatted(barnabas: Tools, tmp_path: Path) -> None:
    server = KafkaServer(
        tmp_path / "kafka",
        {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "127.0.0.1:9093"},
    )
    config = str(server.write_properties())
    assert barnabas("storage", "format", "--standalone", "-t", CLUSTER_ID, "-c", config).code == 0
    with server:
        told = barnabas.at(server.bootstrap, "topics --create --topic letters")
        assert told.code == 0, told
        assert barnabas.at(server.bootstrap, "topics --list").out == "letters\n"
