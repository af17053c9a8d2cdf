"""`dump-log` without Kafka: JSON, damage, and options that are refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest

from barnabas.broker.quorum.formatting import format_directories
from barnabas.records import BatchBuilder
from barnabas.storage.real_files import RealFileSystem
from tests.broker.metadata_files import CLUSTER_ID, RunningQuorum, config, node_settings
from tests.cli.tools import Tools

NAME = "00000000000000000000.log"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three batches of two records."""
    path = tmp_path / NAME
    data = b""
    for number in range(3):
        builder = BatchBuilder(10_000, base_offset=2 * number, leader_epoch=1)
        for each in range(2):
            builder.append(b"value %d" % each, b"\x00\x00\x00\x07", 1000 + number, headers=[("h", b"x")])
        data += builder.build()
    path.write_bytes(data)
    return path


def test_json_has_one_object_per_batch(barnabas: Tools, log: Path) -> None:
    told = barnabas("dump-log", "--files", str(log), "--print-data-log", "--json")
    assert (told.code, told.err) == (0, "")
    batches = [json.loads(line) for line in told.out.splitlines()]
    assert [each["baseOffset"] for each in batches] == [0, 2, 4]
    assert batches[2]["records"][1]["payload"] == "value 1"
    assert batches[2]["records"][1]["headerKeys"] == ["h"]


def test_the_metadata_log_as_json(barnabas: Tools, tmp_path: Path) -> None:
    files, settings = RealFileSystem(), node_settings(str(tmp_path))
    format_directories(files, settings, CLUSTER_ID, Random(1))

    async def write() -> None:
        running = await RunningQuorum(files, settings).start()
        await running.commit(config("a"))
        await running.quorum.stop()

    asyncio.run(write())
    path = tmp_path / "__cluster_metadata-0" / NAME
    told = barnabas("dump-log", "--cluster-metadata-decoder", "--json", "--files", str(path))
    batches = [json.loads(line) for line in told.out.splitlines()]
    assert batches[0]["records"][0]["LeaderChange"]["leaderId"] == 1
    assert [each["payload"]["type"] for each in batches[1]["records"]] == [
        "BEGIN_TRANSACTION_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "CONFIG_RECORD",
        "END_TRANSACTION_RECORD",
    ]
    assert batches[2]["records"][0]["payload"]["data"]["name"] == "a"


def test_other_decoders(barnabas: Tools, log: Path) -> None:
    told = barnabas("dump-log", "--files", str(log), "--key-decoder-class", "org.apache.kafka.tools.api.IntegerDecoder")
    assert " key: 7 payload: value 0" in told.out
    told = barnabas("dump-log", "--files", str(log), "--key-decoder-class", "LongDecoder")
    assert told.code == 1
    assert "LongDecoder takes 8 bytes, and a record has 4" in told.err
    told = barnabas("dump-log", "--files", str(log), "--value-decoder-class", "com.example.Mine")
    assert told.err == "barnabas: com.example.Mine: only StringDecoder, IntegerDecoder, LongDecoder can be used here\n"


def test_a_batch_that_is_not_whole_or_not_sound(barnabas: Tools, log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])
    told = barnabas("dump-log", "--files", str(log))
    assert told.code == 0
    size = len(whole) // 3 - 5
    assert told.out.splitlines()[-1] == f"Found {size} invalid bytes at the end of {NAME}"
    log.write_bytes(whole[:-1] + b"!")
    told = barnabas("dump-log", "--files", str(log))
    assert [line.rpartition(" ")[2] for line in told.out.splitlines()[2:]] == ["true", "true", "false"]


def test_what_is_not_a_log_is_told_with_its_place(barnabas: Tools, log: Path) -> None:
    whole = bytearray(log.read_bytes())
    position = len(whole) // 3
    whole[position + 8 : position + 12] = b"\xff\xff\xff\xff"
    log.write_bytes(whole)
    told = barnabas("dump-log", "--files", str(log))
    assert told.code == 1
    assert f"{log}: byte {position}: " in told.err


def test_the_other_files_are_shown_when_one_is_missing(barnabas: Tools, log: Path) -> None:
    told = barnabas("dump-log", "--files", f"{log.parent}/00000000000000000009.log,{log}")
    assert told.code == 1
    assert "No such file or directory" in told.err
    assert told.out.count("baseOffset") == 3


def test_a_large_batch_is_read_whole(barnabas: Tools, tmp_path: Path) -> None:
    builder = BatchBuilder(8_000_000)
    builder.append(b"x" * 3_000_000, None, 5)
    path = tmp_path / NAME
    path.write_bytes(builder.build())
    told = barnabas("dump-log", "--files", str(path))
    assert told.out.count("isvalid: true") == 1


def test_unknown_files_and_what_is_not_built(barnabas: Tools, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    told = barnabas("dump-log", "--files", str(tmp_path / "notes.txt"))
    assert told.err == f"Ignoring unknown file {tmp_path}/notes.txt\n"
    told = barnabas("dump-log", "--files", "x", "--remote-log-metadata-decoder")
    assert (told.code, told.err) == (
        1,
        "barnabas: --remote-log-metadata-decoder: tiered storage is not built yet\n",
    )
