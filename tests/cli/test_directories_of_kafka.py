"""Directories that Apache Kafka formatted: which ones work as they are, and what helps with the others."""

from __future__ import annotations

import re
from pathlib import Path

from tests.broker.metadata_files import CLUSTER_ID
from tests.cli.processes import refused, running
from tests.cli.test_storage import STORAGE_TOOL, write_config
from tests.cli.tools import Tools, run_kafka
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer

pytestmark = needs_kafka()

NO_WAY_BACK = """
    kafka-storage.sh format -t CLUSTER_ID -c FILE --release-version 4.0-IV3 --feature group.version=0 --feature \
transaction.version=0
"""


def formatted_by_kafka(folder: Path, *options: str) -> str:
    config = write_config(folder, str(folder / "data"), listeners="PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0")
    told = run_kafka(STORAGE_TOOL, ["format", "-t", CLUSTER_ID, "-c", config, *options])
    assert told.code == 0, told
    return config


def test_one_with_the_defaults_of_43_is_refused_with_the_command_for_another(tmp_path: Path) -> None:
    config = formatted_by_kafka(tmp_path)
    code, told = refused("server", "start", "-q", config, folder=tmp_path)
    assert code == 1
    assert "metadata.version 30 (4.3-IV0), group.version 1, " in told
    assert "Kafka has no way back from that." in told
    assert NO_WAY_BACK in told


def test_that_command_makes_one_that_works(tmp_path: Path) -> None:
    _, _, options = NO_WAY_BACK.strip().partition(" -c FILE ")
    config = formatted_by_kafka(tmp_path, *options.split())
    with running("server", "start", "-q", config, folder=tmp_path):
        pass


def test_levels_below_43_are_lowered_by_the_command_that_the_refusal_prints(tmp_path: Path, barnabas: Tools) -> None:
    with KafkaServer(tmp_path / "kafka", format_options=("--release-version", "4.2-IV1")) as kafka:
        assert barnabas.at(kafka.bootstrap, "topics --create --topic letters").code == 0
        kafka.stop()
        config = str(tmp_path / "kafka/server.properties")
        code, told = refused("server", "start", "-q", config, folder=tmp_path)
        assert code == 1
        command = re.search(r"^    kafka-features\.sh --bootstrap-server HOST:PORT (.*)$", told, re.MULTILINE)
        assert command is not None, told
        kafka.start()
        lowered = run_kafka(
            "org.apache.kafka.tools.FeatureCommand", ["--bootstrap-server", kafka.bootstrap, *command[1].split()]
        )
        assert lowered.code == 0, lowered
    with running("server", "start", "-q", config, folder=tmp_path) as (_, bootstrap):
        assert barnabas.at(bootstrap, "topics --list").out == "letters\n"
