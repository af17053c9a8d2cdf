"""`storage`: ids, formatting and looking at directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.base.ids import Uuid
from tests.broker.metadata_files import BASE_SETTINGS, CLUSTER_ID
from tests.cli.tools import Tools, run_kafka
from tests.oracles import needs_kafka

STORAGE_TOOL = "kafka.tools.StorageTool"
BOOTSTRAP = {"controller_quorum_bootstrap_servers": "127.0.0.1:9093"}


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A server.properties with two directories that do not exist yet."""
    return write_config(tmp_path, f"{tmp_path}/a,{tmp_path}/b")


def write_config(folder: Path, directories: str, **changes: str) -> str:
    settings = {**BASE_SETTINGS, "log.dirs": directories} | {k.replace("_", "."): v for k, v in changes.items()}
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def test_random_ids_differ_and_are_ids(barnabas: Tools) -> None:
    first, second = (barnabas("storage", "random-uuid").out.strip() for _ in range(2))
    assert first != second
    assert str(Uuid.parse(first)) == first


def test_format_then_info(barnabas: Tools, config: str, tmp_path: Path) -> None:
    told = barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config)
    assert told.code == 0
    assert told.out.splitlines() == [
        f"Formatting metadata directory {tmp_path}/a with metadata.version 4.0-IV3.",
        f"Formatting data directory {tmp_path}/b with metadata.version 4.0-IV3.",
    ]
    told = barnabas("storage", "info", "-c", config, "--json")
    assert told.code == 0
    values = json.loads(told.out)
    assert values["logDirectories"] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert {each["cluster.id"] for each in values["metadata"].values()} == {CLUSTER_ID}
    assert values["problems"] == []


def test_formatting_again_needs_to_be_asked_for(barnabas: Tools, config: str, tmp_path: Path) -> None:
    barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config)
    told = barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config)
    assert told.code == 1
    assert told.err == (
        f"barnabas: log directory {tmp_path}/a is already formatted; use --ignore-formatted to leave it as it is and "
        "format the others\n"
    )
    told = barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config, "--ignore-formatted")
    assert (told.code, told.out) == (0, "All of the log directories are already formatted.\n")


def test_the_first_users_are_in_the_first_records(barnabas: Tools, config: str, tmp_path: Path) -> None:
    given = ("--add-scram", 'SCRAM-SHA-256=[name=ann,password="sword fish",iterations=8192]')
    assert barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config, *given).code == 0
    (path,) = tmp_path.rglob("bootstrap.checkpoint")
    assert b"ann" in path.read_bytes()
    assert b"sword fish" not in path.read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--add-scram", "PLAIN=[name=a,password=b]"),
            "PLAIN keeps no users; there are SCRAM-SHA-256 and SCRAM-SHA-512",
        ),
        (("--add-scram", "GSSAPI=[name=a,password=b]"), "GSSAPI (Kerberos) is not built"),
        (("--add-scram", "SCRAM-SHA-256=[password=b]"), "a name= is missing"),
        (("--add-scram", "SCRAM-SHA-256=[name=a]"), "a needs a password= or a saltedpassword=, and not both"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=b,iterations=1]"), "iterations= must be 4096 to 16384"),
        (("--add-scram", "SCRAM-SHA-256"), "write it like SCRAM-SHA-256=[name=ann,password=secret]"),
        (("--release-version", "4.3"), "metadata.version 30 is not built; built are metadata.version 7 (3.3-IV3) to"),
        (("--feature", "metadata.version=30"), "metadata.version=30: this level is not built; built are"),
        (("--feature", "group.version=1"), "only level 0 of group.version is built"),
    ],
)
def test_what_is_not_built_is_refused(
    barnabas: Tools, config: str, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    told = barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config, *options)
    assert told.code == 1
    assert said in told.err
    assert not (tmp_path / "a").exists()


def test_what_is_built_may_be_asked_for_by_name(barnabas: Tools, config: str) -> None:
    options = ("--release-version", "4.0-IV3", "-f", "metadata.version=25", "-f", "group.version=0")
    assert barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config, *options).code == 0


def test_a_quorum_of_one_whose_voters_may_change(barnabas: Tools, tmp_path: Path) -> None:
    config = write_config(tmp_path, f"{tmp_path}/a", controller_quorum_voters="", **BOOTSTRAP)
    told = barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config)
    assert told.code == 1
    assert "say who the first voters are: --standalone" in told.err
    told = barnabas("storage", "format", "--standalone", "-t", CLUSTER_ID, "-c", config)
    line = f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.0-IV3.\n"
    assert (told.code, told.out) == (0, line)
    told = barnabas("storage", "info", "-c", config, "--json")
    values = json.loads(told.out)
    directory_id = values["metadata"][f"{tmp_path}/a"]["directory.id"]
    assert values["firstVoters"] == [f"1@127.0.0.1:9093:{directory_id}"]
    assert f"Found first voters: {values['firstVoters'][0]}\n" in barnabas("storage", "info", "-c", config).out


def test_first_voters_give_this_node_its_directory_id(barnabas: Tools, tmp_path: Path) -> None:
    config = write_config(tmp_path, f"{tmp_path}/a", controller_quorum_voters="", **BOOTSTRAP)
    voters = "1@[::1]:9093:JEXY6aqzQY-32P5TStzaFg,2@b:9093:MvDxzVmcRsaTz33bUuRU6A"
    assert barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config, "-I", voters).code == 0
    values = json.loads(barnabas("storage", "info", "-c", config, "--json").out)
    assert values["firstVoters"] == voters.split(",")
    assert values["metadata"][f"{tmp_path}/a"]["directory.id"] == "JEXY6aqzQY-32P5TStzaFg"


def test_one_way_to_the_first_voters_is_enough(barnabas: Tools, config: str) -> None:
    told = barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config, "-s", "-N")
    assert told.code != 0
    assert "give only one of --standalone and --no-initial-controllers" in told.err


def test_a_directory_that_cannot_be_made_is_told_in_one_line(barnabas: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = barnabas("storage", "format", "-t", CLUSTER_ID, "-c", write_config(tmp_path, f"{tmp_path}/file/data"))
    assert (told.code, told.err) == (1, f"barnabas: cannot format {tmp_path}/file/data: Not a directory\n")


def test_settings_that_make_no_sense_are_told(barnabas: Tools, tmp_path: Path) -> None:
    told = barnabas("storage", "format", "-t", CLUSTER_ID, "-c", write_config(tmp_path, "x", node_id="minus one"))
    assert told.code == 1
    assert "node.id" in told.err


@needs_kafka()
def test_info_says_what_kafkas_tool_says(barnabas: Tools, tmp_path: Path) -> None:
    barnabas("storage", "format", "-t", CLUSTER_ID, "-c", write_config(tmp_path, f"{tmp_path}/good"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    config = write_config(tmp_path, ",".join(f"{tmp_path}/{name}" for name in ("good", "empty", "file", "missing")))
    kafkas, ours = run_kafka(STORAGE_TOOL, ["info", "-c", config]), barnabas("storage", "info", "-c", config)
    assert ours.out.splitlines() == kafkas.out.splitlines()
    assert ours.code == kafkas.code == 1


@needs_kafka()
def test_kafkas_tool_takes_our_format_for_its_own(barnabas: Tools, config: str) -> None:
    barnabas("storage", "format", "-t", CLUSTER_ID, "-c", config)
    told = run_kafka(STORAGE_TOOL, ["format", "-t", CLUSTER_ID, "-c", config, "--ignore-formatted"])
    assert told.code == 0
    assert "All of the log directories are already formatted." in told.out
