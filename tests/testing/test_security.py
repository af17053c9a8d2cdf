"""An embedded broker with TLS, users, rules and an issuer of tokens, in one line: every client gets its settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka.admin
import kafka
import pytest

import barnabas
from barnabas import Admin, Consumer, Producer
from barnabas.base.properties import format_properties
from barnabas.cli.main import main
from barnabas.testing import EmbeddedBroker, EmbeddedCluster, Security

USERS = {"admin": "admin-pw-7Qx~", "ann": 'sword"fish\\7Qx~'}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=Security(USERS, tls=True, oidc=True, super_users=["admin"])) as broker:
        broker.create_topic("open")
        allow(broker, "open", tmp_path_factory.mktemp("admin") / "client.properties")
        yield broker


def allow(broker: EmbeddedBroker, topic: str, path: Path) -> None:
    """By the tool, as people do it: ann may write and read."""
    path.write_text(format_properties(broker.security.properties("admin")))
    config = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(path)]
    words = ["--add", "--allow-principal", "User:ann", "--producer", "--consumer", "--topic", topic, "--group", "*"]
    assert main(["acls", *config, *words]) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_clients(broker: EmbeddedBroker, mechanism: str) -> None:
    own = broker.security.client_settings("ann", mechanism)
    with Producer(broker.bootstrap_servers, **own) as producer:
        producer.send("open", mechanism.encode()).result(20)
    with Consumer("open", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **own) as consumer:
        found: list[bytes] = []
        while mechanism.encode() not in found:
            found += [each.value for each in consumer.poll(20)]
    with Admin(
        {"bootstrap.servers": broker.bootstrap_servers, **broker.security.properties("ann", mechanism)}
    ) as admin:
        assert list(admin.list_topics()) == ["open"]


def test_kafka_python_and_aiokafka(broker: EmbeddedBroker) -> None:
    own = {"bootstrap_servers": broker.bootstrap_servers, **broker.security.client_settings("ann")}
    producer = kafka.KafkaProducer(**own)
    try:
        assert producer.send("open", b"kafka-python").get(20).offset >= 0
    finally:
        producer.close()

    async def story() -> int:
        async with aiokafka.AIOKafkaProducer(**own) as producer:
            return int((await producer.send_and_wait("open", b"aiokafka")).offset)

    assert asyncio.run(story()) >= 0


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_librdkafka(broker: EmbeddedBroker, mechanism: str) -> None:
    own = {"bootstrap.servers": broker.bootstrap_servers, **broker.security.librdkafka_settings("ann", mechanism)}
    outcomes: list[object] = []
    producer = confluent_kafka.Producer(own)
    producer.produce("open", b"confluent", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(20) == 0
    assert outcomes == [None]


def test_what_no_rule_allows_is_denied_and_strangers_learn_nothing(broker: EmbeddedBroker) -> None:
    broker.create_topic("closed")
    own = broker.security.client_settings("ann")
    with (
        Producer(broker.bootstrap_servers, **own) as producer,
        pytest.raises(barnabas.BarnabasError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        producer.send("closed", b"x").result(20)
    with Admin(broker.bootstrap_servers, **broker.security.client_settings("admin")) as admin:
        assert {"open", "closed"} <= set(admin.list_topics())
    wrong = {**own, "sasl_plain_password": "wrong"}
    with (
        pytest.raises(barnabas.BarnabasError, match="AUTHENTICATION"),
        Admin(broker.bootstrap_servers, **wrong) as admin,
    ):
        admin.list_topics()


def test_it_is_the_same_after_a_restart() -> None:
    with EmbeddedBroker(security=Security(USERS, tls=True, oidc=True)) as broker:
        own = broker.security.client_settings("ann", "OAUTHBEARER")
        with Producer(broker.bootstrap_servers, **own) as producer:
            producer.send("t", b"before").result(20)
            broker.restart()
            producer.send("t", b"after").result(20)


def test_certificates_instead_of_users() -> None:
    security = Security(tls=True, super_users=["admin"])
    with EmbeddedBroker(security=security) as broker:
        with Admin(broker.bootstrap_servers, **security.client_settings("admin")) as admin:
            admin.create_topics([barnabas.NewTopic("t")])
        with Admin(broker.bootstrap_servers, **security.client_settings("ann")) as admin:
            assert list(admin.list_topics()) == []
        own = {"bootstrap.servers": broker.bootstrap_servers, **security.librdkafka_settings("admin")}
        assert "t" in confluent_kafka.admin.AdminClient(own).list_topics(timeout=20).topics


def test_a_cluster_whose_nodes_know_each_other() -> None:
    with EmbeddedCluster(3, security=Security(USERS, tls=True, super_users=["admin"])) as cluster:
        cluster.create_topic("orders", partitions=3)
        with Producer(cluster.bootstrap_servers, acks="all", **cluster.security.client_settings("admin")) as producer:
            producer.send("orders", b"one coffee", partition=0).result(20)
            cluster.kill(cluster.leader("orders", 0))
            began_s = time.monotonic()
            producer.send("orders", b"the bill", partition=0).result(30)
            assert time.monotonic() - began_s < 30
        with Admin(cluster.bootstrap_servers, **cluster.security.client_settings("ann")) as admin:
            assert list(admin.list_topics()) == []


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(ValueError, match="somebody must be able to log in"):
        Security({})
    with pytest.raises(ValueError, match="tls=True"):
        _ = Security({"ann": "x"}).ca_pem
    with pytest.raises(ValueError, match="oidc=True"):
        Security({"ann": "x"}).client_settings("ann", "OAUTHBEARER")
    with pytest.raises(ValueError, match="there is no user 'bob': there are ann"):
        Security({"ann": "x-secret"}).client_settings("bob")
    assert "x-secret" not in repr(Security({"ann": "x-secret"}))
