"""SASL_SSL: first TLS, then who somebody is by SASL; a certificate only where the listener itself asks for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

import barnabas
from barnabas.testing import EmbeddedBroker
from barnabas.testing.certificates import CertificateAuthority

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="geheim-1" user_admin="geheim-1" user_ann="geheim-2";'
)


def settings(folder: Path) -> dict[str, str]:
    authority = CertificateAuthority.create()
    (folder / "ca.pem").write_text(authority.certificate_pem)
    (folder / "ann.pem").write_text(authority.issue("ann").pem)
    node = authority.issue("node", ["127.0.0.1"])
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": node.key_pem,
        "ssl.keystore.certificate.chain": node.chain_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
        "ssl.client.auth": "required",  # which is for listeners without SASL
    }


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides=settings(tmp_path)) as broker:
        yield broker


def client(broker: EmbeddedBroker, folder: Path, password: str = "geheim-2") -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.cafile": str(folder / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.plain.username": "ann",
        "sasl.plain.password": password,
    }


def test_who_logs_in_over_tls_writes_and_reads(broker: EmbeddedBroker, tmp_path: Path) -> None:
    own = client(broker, tmp_path)
    with barnabas.Producer(own) as producer:
        assert producer.send("t", value=b"x" * 200_000).result(20).offset == 0
    theirs = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "geheim-2",
        "group.id": "g",
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(theirs)
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.error() is None
    assert len(message.value()) == 200_000


def test_tls_alone_is_not_enough_nor_a_wrong_password(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    only_tls = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.cafile": str(tmp_path / "ca.pem"),
        "ssl.certfile": str(tmp_path / "ann.pem"),
        "default.api.timeout.ms": "2000",
    }
    for own in (only_tls, client(broker, tmp_path, "wrong-geheim")):
        started_s = time.monotonic()
        with pytest.raises(barnabas.BarnabasError) as refused, barnabas.Admin(own) as admin:
            admin.list_topics()
        assert time.monotonic() - started_s < 10
        assert "geheim" not in str(refused.value)
    assert not [each for each in caplog.records if "geheim" in each.getMessage()]
