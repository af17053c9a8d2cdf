"""Users of PLAIN, mechanisms and sessions of a running broker: what changes with its settings, and what is refused."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.base.sasl import Mechanism
from barnabas.base.system_runtime import new_randomness
from barnabas.client.admin import AlterConfig
from barnabas.client.admin.configs import ConfigOp
from barnabas.net import Channel
from barnabas.net.errors import ChannelError
from barnabas.net.sasl_client import PasswordLogin
from barnabas.net.security import ChannelSecurity
from barnabas.testing import EmbeddedBroker, EmbeddedCluster, Security
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = {"admin": "admin-7Qx~"}
PREFIX = "listener.name.sasl_plaintext."
JAAS = f"{PREFIX}plain.sasl.jaas.config"
LOGIN = f'{MODULE} username="admin" password="admin-7Qx~" user_admin="admin-7Qx~"'
WITH_ANN = f'{LOGIN} user_ann="ann-7Qx~";'


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=Security(USERS)) as broker:
        yield broker


def admin(
    bootstrap: str, user: str = "admin", password: str = "admin-7Qx~", mechanism: str = "PLAIN"
) -> barnabas.Admin:
    return barnabas.Admin(
        bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=password,
    )


def change(bootstrap: str, changes: Mapping[str, str | None], node: str = "1") -> None:
    resource = barnabas.ConfigResource(barnabas.ConfigResourceType.BROKER, node)
    with admin(bootstrap) as found:
        found.alter_configs(
            {
                resource: [
                    AlterConfig(name, value, ConfigOp.DELETE if value is None else ConfigOp.SET)
                    for name, value in changes.items()
                ]
            }
        )


def is_let_in(*who: Any) -> bool:
    try:
        with admin(*who) as found:
            found.list_topics()
    except barnabas.BarnabasError:
        return False
    return True


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline_s, "it has not come true"
        time.sleep(0.1)


def test_users_of_plain_come_and_go(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    place = broker.bootstrap_servers
    assert not is_let_in(place, "ann", "ann-7Qx~")
    change(place, {JAAS: WITH_ANN})
    until(lambda: is_let_in(place, "ann", "ann-7Qx~"))
    broker.restart()
    assert is_let_in(place, "ann", "ann-7Qx~")
    resource = barnabas.ConfigResource(barnabas.ConfigResourceType.BROKER, "1")
    with admin(place) as found:
        shown = found.describe_configs([resource])[resource]
    assert shown[JAAS].value is None
    change(place, {JAAS: None})
    until(lambda: not is_let_in(place, "ann", "ann-7Qx~"))
    assert is_let_in(place)
    assert "7Qx~" not in caplog.text


def test_mechanisms_come_and_go_and_who_is_inside_stays(broker: EmbeddedBroker) -> None:
    place = broker.bootstrap_servers
    with admin(place, "admin", "admin-7Qx~", "SCRAM-SHA-512") as inside:
        inside.list_topics()
        change(place, {f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
        until(lambda: not is_let_in(place, "admin", "admin-7Qx~", "SCRAM-SHA-512"))
        assert is_let_in(place, "admin", "admin-7Qx~", "SCRAM-SHA-256")
        inside.list_topics()
    change(place, {f"{PREFIX}sasl.enabled.mechanisms": None})
    until(lambda: is_let_in(place, "admin", "admin-7Qx~", "SCRAM-SHA-512"))


def test_sessions_of_a_listener_end_from_now_on(broker: EmbeddedBroker) -> None:
    async def ends() -> bool:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        login = PasswordLogin(Mechanism.PLAIN, "admin", "admin-7Qx~", new_randomness())
        channel = Channel(host, int(port), client_id="t", randomness=new_randomness(), security=ChannelSecurity(login))
        try:
            await channel.connect()
            return math.isfinite(channel._session_ends_s)
        finally:
            await channel.close()

    assert not asyncio.run(ends())
    change(broker.bootstrap_servers, {f"{PREFIX}connections.max.reauth.ms": "60000"})
    until(lambda: asyncio.run(ends()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({JAAS: "nonsense"}, "sasl.jaas.config"),
        ({JAAS: f'{MODULE} username="admin" password="admin-7Qx~";'}, "knows no users"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "nodes use PLAIN"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "GSSAPI"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-1"}, "SCRAM-SHA-1"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "OAUTHBEARER"),
        ({"connections.max.reauth.ms": "1000"}, "listener.name.NAME"),
        ({"sasl.mechanism.controller.protocol": "PLAIN"}, "read at start"),
    ],
)
def test_what_could_not_work_is_refused(broker: EmbeddedBroker, changes: dict[str, str], words: str) -> None:
    with pytest.raises(barnabas.BarnabasError, match=words) as refusal:
        change(broker.bootstrap_servers, changes)
    assert "7Qx~" not in str(refusal.value)
    assert is_let_in(broker.bootstrap_servers)


def test_for_all_brokers_at_once_it_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(barnabas.BarnabasError, match="name the broker"):
        change(broker.bootstrap_servers, {"sasl.enabled.mechanisms": "PLAIN"}, node="")


def test_brokers_change_how_they_show_themselves_to_each_other() -> None:
    with EmbeddedCluster(3, security=Security(USERS)) as cluster:
        cluster.create_topic("t", partitions=3)
        for node in cluster.nodes:
            own = f'{SCRAM} username="admin" password="admin-7Qx~";'
            changes = {
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                f"{PREFIX}scram-sha-512.sasl.jaas.config": own,
            }
            change(cluster.bootstrap_of(node), changes, str(node))
        # Who was inside stays; new connections, as after a restart, are made in the new way.
        cluster.kill(2)
        cluster.restart(2)
        cluster.until_in_sync()
        with barnabas.Producer(cluster.bootstrap_servers, acks="all", **cluster.security.client_settings("admin")) as p:
            for partition in range(3):
                p.send("t", b"x", partition=partition).result(20)


# Beside Kafka's

QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("1", {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}),
    ("1", {"sasl.enabled.mechanisms": "PLAIN"}),
    ("1", {"sasl.mechanism.inter.broker.protocol": "GSSAPI"}),
    ("1", {"sasl.login.refresh.window.factor": "0.7"}),
    ("", {"sasl.enabled.mechanisms": "PLAIN"}),
    ("", {"sasl.jaas.config": WITH_ANN}),
    ("", {"sasl.login.refresh.window.factor": "0.7"}),
    ("1", {"connections.max.reauth.ms": "1000"}),
    ("1", {"sasl.mechanism.controller.protocol": "PLAIN"}),
    ("1", {"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1/x"}),
    ("1", {"ssl.principal.mapping.rules": "DEFAULT"}),
    ("1", {f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}),
    ("1", {f"{PREFIX}connections.max.reauth.ms": "60000"}),
    ("1", {f"{PREFIX}plain.connections.max.reauth.ms": "60000"}),
    ("1", {JAAS: WITH_ANN}),
]


async def codes(host: str, port: int) -> list[int]:
    """What a broker answers to each of the questions."""
    login = PasswordLogin(Mechanism.PLAIN, "admin", "admin-7Qx~", new_randomness())
    channel = Channel(host, port, client_id="t", randomness=new_randomness(), security=ChannelSecurity(login))
    found = []
    try:
        for broker, changes in QUESTIONS:
            configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in changes.items()]
            resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=configs)
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            found.append((await channel.request(request)).responses[0].error_code)
            await asyncio.sleep(0.3)
    except ChannelError as problem:
        raise AssertionError(f"after {found}: {problem}") from problem
    finally:
        await channel.close()
    return found


@needs_kafka()
@pytest.mark.slow
def test_kafka_accepts_and_refuses_the_same(broker: EmbeddedBroker, tmp_path: Path) -> None:
    server = KafkaServer(tmp_path)
    settings = Security(USERS).settings("127.0.0.1", server._port, "127.0.0.1", server._controller_port)
    settings |= {
        JAAS: f"{LOGIN};",
        "advertised.listeners": f"SASL_PLAINTEXT://{server.bootstrap}",
        **{f"{PREFIX}{each}.sasl.jaas.config": f"{SCRAM};" for each in ("scram-sha-256", "scram-sha-512")},
    }
    server._overrides |= {name: str(value) for name, value in settings.items()}
    with server:
        theirs = asyncio.run(codes("127.0.0.1", server._port))
    ours = asyncio.run(codes("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2])))
    assert list(zip(QUESTIONS, ours, strict=True)) == list(zip(QUESTIONS, theirs, strict=True))
