"""What a node with users, tokens and keys tells of itself, by every tool that could: no secret is in it.

`dump-log` is left out: as Kafka's it shows what is in a file as it is, to whoever may read the file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import SettingsError
from barnabas.broker.settings import BrokerSettings
from barnabas.testing import EmbeddedBroker, Security
from tests.cli.tools import Told, Tools
from tests.secret_scan import places_in

USERS = {"node": "node-pw-7Qx~", "ann": "ann-pw-7Qx~"}
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

CALLS = """
configs --alter --entity-type users --entity-name bob --add-config SCRAM-SHA-256=[password=bob-pw-7Qx~]
configs --alter --entity-type brokers --entity-name 1 --add-config listener.name.x.ssl.keystore.password=store-7Qx~
configs --describe --entity-type brokers --entity-name 1
configs --describe --all --entity-type brokers --entity-name 1
configs --describe --all --entity-type brokers --entity-name 1 --json
configs --describe --entity-type users
configs --describe --entity-type users --entity-name bob --json
acls --list
broker-api-versions
""".strip().splitlines()

WRONG_CALLS = """
configs --alter --entity-type users --entity-name bob --add-config SCRAM-SHA-256=[iterations=1,password=bob-pw-7Qx~]
configs --alter --entity-type users --entity-name bob --add-config SCRAM-SHA-1=[password=bob-pw-7Qx~]
configs --alter --entity-type brokers --entity-name 1 --add-config listener.name.nowhere.ssl.keystore.password
""".strip().splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shown")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[EmbeddedBroker]:
    overrides = {
        "delegation.token.secret.key": "token-key-7Qx~",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:ann;User:ANONYMOUS",
    }
    with EmbeddedBroker(data_dir=str(folder / "data"), security=Security(USERS), overrides=overrides) as made:
        yield made


def _config(folder: Path, password: str) -> str:
    file = folder / f"{len(password)}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={_MODULE} required username="ann" password="{password}";\n'
    )
    return f"--command-config {file}"


def _shown(told: Told) -> list[str]:
    return [*places_in(told.out), *places_in(told.err)]


def test_tools_show_none(broker: EmbeddedBroker, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    barnabas, config = Tools(capsys), _config(folder, USERS["ann"])
    for call in CALLS:
        told = barnabas.at(broker.bootstrap_servers, f"{call} {config}")
        assert (told.code, _shown(told)) == (0, []), (call, told.err)
    for call in WRONG_CALLS:
        told = barnabas.at(broker.bootstrap_servers, f"{call} {config}")
        assert (told.code != 0, _shown(told)) == (True, []), call
    refused = barnabas.at(broker.bootstrap_servers, f"configs --describe --entity-type users {_config(folder, '7Qx~')}")
    assert (refused.code != 0, _shown(refused)) == (True, [])
    log = folder / "data" / "__cluster_metadata-0"
    for words in ("find /", "tree /", "cat /image/scram/SCRAM-SHA-256/bob"):
        told = barnabas("metadata-shell", "--directory", str(log), *shlex.split(words))
        assert _shown(told) == [], words
    assert "redacted" in told.out


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssl.keystore.password": "store-7Qx~", "ssl.keystore.location": "/nowhere"},
        {"listener.name.clients.plain.sasl.jaas.config": 'PlainLoginModule required password="pw-7Qx~"'},
        {"delegation.token.secret.key": "key-7Qx~", "node.id": "x"},
        {"ssl.keystore.key": "-----BEGIN PRIVATE KEY----- 7Qx~ -----END PRIVATE KEY-----"},
        {"sasl.oauthbearer.client.credentials.client.secret": "client-7Qx~", "num.partitions": "none"},
    ],
    ids=["a store", "a login module", "a key of tokens", "a key", "a client's secret"],
)
def test_settings_that_are_refused_show_none(wrong: dict[str, str]) -> None:
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "CLIENTS://127.0.0.1:9092,CONTROLLERS://127.0.0.1:9093",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLERS:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": "CONTROLLERS",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "sasl.enabled.mechanisms": "PLAIN",
        "num.io.threads": "0",  # so that each is refused for something
    }
    with pytest.raises(SettingsError) as refusal:
        BrokerSettings.load(given | wrong)
    assert list(places_in(str(refusal.value))) == []
    assert list(places_in(repr(refusal.value))) == []
