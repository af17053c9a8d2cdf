"""`broker-api-versions` says of a broker what Kafka's own tool says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.cli.broker_api_versions import offers
from tests.cli.tools import Tools, run_kafka
from tests.oracles import needs_kafka


@needs_kafka()
def test_of_apache_kafka(barnabas: Tools, apache_kafka: str) -> None:
    arguments = ["--bootstrap-server", apache_kafka]
    kafkas = run_kafka("org.apache.kafka.tools.BrokerApiVersionsCommand", arguments)
    ours = barnabas("broker-api-versions", *arguments)
    told = json.loads(barnabas("broker-api-versions", *arguments, "--json").out)
    assert ours.code == kafkas.code == 0
    assert ours.out.splitlines() == kafkas.out.splitlines()
    (broker,) = told
    assert (broker["id"], broker["isFenced"]) == (1, False)
    produce = {"name": "Produce", "key": 0, "minVersion": 0, "maxVersion": 13}
    assert broker["apis"][0] == produce


def test_requests_that_only_one_side_knows() -> None:
    told = {each.key: str(each) for each in offers({0: (3, 11), 1: (900, 901), 2: (0, 0), 999: (1, 2)})}
    assert told[0] == "Produce(0): 3 to 11 [usable: 11]"
    assert told[1] == "Fetch(1): 900 to 901 [unusable: node too new]"
    assert told[2] == "ListOffsets(2): 0 [usable: 0]"
    assert told[3] == "Metadata(3): UNSUPPORTED"
    assert told[999] == "UNKNOWN(999): 1 to 2"


def test_nobody_is_there(barnabas: Tools, unused_port: int) -> None:
    told = barnabas("broker-api-versions", "--bootstrap-server", f"127.0.0.1:{unused_port}")
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith(f"barnabas: 127.0.0.1:{unused_port}: no connection: ")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("address", ["", "nowhere", "host:port"])
def test_an_address_that_is_none(barnabas: Tools, address: str) -> None:
    told = barnabas("broker-api-versions", "--bootstrap-server", address)
    assert told.code == 1
    assert told.err.startswith("barnabas: bootstrap.servers")
    assert told.err.count("\n") == 1


def test_security_that_is_not_built_is_refused(barnabas: Tools, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n")
    told = barnabas("broker-api-versions", "--bootstrap-server", "a:1", "--command-config", str(config))
    assert told.code == 1
    assert "GSSAPI" in told.err
