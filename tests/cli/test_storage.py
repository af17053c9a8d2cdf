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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--standalone",),
            "--standalone: a quorum whose voters may change is not built yet. Run\n    barnabas storage",
        ),
        (("--no-initial-controllers",), "--no-initial-controllers: a quorum whose voters may change"),
        (("--initial-controllers", "1@a:1:x"), "--initial-controllers: a quorum whose voters may change"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=b]"), "SCRAM is not built yet"),
        (("--release-version", "4.3"), "--release-version 4.3: only 4.0-IV3 is built"),
        (("--feature", "metadata.version=30"), "only level 25 of metadata.version is built"),
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
