"""Clients of others, and ours, over TLS: to our node and to Apache Kafka, each of them with a certificate to show.

Every client writes records of its own, reads them again, and is refused without a certificate where it says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import barnabas
from barnabas.testing.certificates import CertificateAuthority
from tests.cli.kafka_tools import KafkaTools
from tests.compat.brokers import OVERRIDES, OurServer, unique
from tests.compat.test_kafkajs import MODULES
from tests.compat.test_kafkajs import missing as no_kafkajs
from tests.oracles import missing as no_kafka
from tests.oracles import other_process
from tests.oracles.kafka_server import KafkaServer
from tests.ports import free_ports

COUNT = 50
VALUES = [b"value %d" % number for number in range(COUNT)]
PASSWORD = "for-tests-only"


@dataclass(frozen=True)
class Secured:
    """A broker with TLS, and the files that a client needs."""

    bootstrap: str
    folder: Path
    log: Path

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def certificate(self) -> str:
        return str(self.folder / "client.crt")

    @property
    def key(self) -> str:
        return str(self.folder / "client.key")

    @property
    def properties(self) -> Path:
        return self.folder / "client.properties"


def make_files(folder: Path) -> dict[str, str]:
    """Files of both sides; the settings of the broker's, in stores as Java makes them."""
    authority = CertificateAuthority.create()
    node, client = authority.issue("broker", ["127.0.0.1", "localhost"]), authority.issue("client")
    for name, content in {
        "ca.pem": authority.certificate_pem,
        "client.crt": client.chain_pem,
        "client.key": client.key_pem,
    }.items():
        (folder / name).write_text(content)
    for name, data in {
        "broker.p12": node.pkcs12(PASSWORD),
        "client.p12": client.pkcs12(PASSWORD),
        "trust.p12": authority.pkcs12(PASSWORD),
    }.items():
        (folder / name).write_bytes(data)
    stores = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
    }
    own = {"security.protocol": "SSL", **stores, "ssl.keystore.location": str(folder / "client.p12")}
    (folder / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    return {**stores, "ssl.keystore.location": str(folder / "broker.p12"), "ssl.client.auth": "required"}


@pytest.fixture(scope="module")
def kafka_tools() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp(request.param)
    port, plain, controller = free_ports(3)
    settings = {
        **OVERRIDES,
        **make_files(folder),
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{port}",
        "controller.quorum.voters": f"0@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    }
    if request.param == "barnabas":
        with OurServer(folder, settings) as ours:
            yield Secured(f"127.0.0.1:{port}", folder, ours.log_path)
        return
    if no_kafka() is not None:
        pytest.skip(str(no_kafka()))
    server = KafkaServer(folder, settings)
    server._port = plain
    with server:
        yield Secured(f"127.0.0.1:{port}", folder, server.log_path)


pytestmark = other_process(None)
#: What clients of others do at a Kafka shows that the tests are right, and is nothing for every day.
of_others = pytest.mark.parametrize(
    "secured", ["barnabas", pytest.param("kafka", marks=pytest.mark.slow)], indirect=True, scope="module"
)


@of_others
def test_confluent_kafka(secured: Secured) -> None:
    import confluent_kafka

    own = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": secured.ca,
        "ssl.certificate.location": secured.certificate,
        "ssl.key.location": secured.key,
    }
    topic = unique("confluent")
    producer = confluent_kafka.Producer(own)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer({**own, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline_s = time.monotonic() + 20
    while len(found) < COUNT and time.monotonic() < deadline_s:
        message = consumer.poll(1)
        if message is not None and not message.error():
            found.append(message.value())
    consumer.close()
    assert sorted(found) == sorted(VALUES)


@of_others
def test_kafka_python(secured: Secured) -> None:
    import kafka

    own = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": secured.ca,
        "ssl_certfile": secured.certificate,
        "ssl_keyfile": secured.key,
    }
    topic = unique("kafka-python")
    producer = kafka.KafkaProducer(**own)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush()
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **own, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == COUNT:
            break
    consumer.close()
    assert sorted(found) == sorted(VALUES)


@of_others
def test_aiokafka(secured: Secured) -> None:
    import aiokafka

    context = ssl.create_default_context(cafile=secured.ca)
    context.load_cert_chain(secured.certificate, secured.key)
    own = {"bootstrap_servers": secured.bootstrap, "security_protocol": "SSL", "ssl_context": context}
    topic = unique("aiokafka")

    async def story() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**own) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with aiokafka.AIOKafkaConsumer(topic, **own, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(20):
                return [(await consumer.getone()).value for _ in VALUES]

    assert sorted(asyncio.run(story())) == sorted(VALUES)


_KAFKAJS = """
const { Kafka, logLevel } = require('kafkajs'), fs = require('fs')
const [bootstrap, topic, ca, cert, key, count] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR,
  ssl: { ca: [fs.readFileSync(ca)], cert: fs.readFileSync(cert), key: fs.readFileSync(key) } })
const run = async () => {
  const admin = kafka.admin(); await admin.connect()
  await admin.createTopics({ topics: [{ topic }], waitForLeaders: true }); await admin.disconnect()
  const producer = kafka.producer(); await producer.connect()
  const messages = [...Array(+count).keys()].map(n => ({ value: `value ${n}` }))
  await producer.send({ topic, messages }); await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic }); await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const found = []
  await new Promise(done => consumer.run({ eachMessage: async ({ message }) => {
    found.push(message.value.toString()); if (found.length == count) done() } }))
  await consumer.disconnect(); console.log(JSON.stringify(found))
}
run().catch(error => { console.error(error.stack); process.exit(1) })
"""


@of_others
@pytest.mark.skipif(no_kafkajs() is not None, reason=str(no_kafkajs()))
def test_kafkajs(secured: Secured) -> None:
    program = secured.folder / "tls.js"
    program.write_text(_KAFKAJS)
    done = subprocess.run(
        ["node", str(program), secured.bootstrap, unique("kafkajs"), secured.ca, secured.certificate, secured.key,
         str(COUNT)],
        env=os.environ | {"NODE_PATH": str(MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(json.loads(done.stdout)) == sorted(value.decode() for value in VALUES)


@of_others
@pytest.mark.skipif(no_kafka() is not None, reason=str(no_kafka()))
def test_java(secured: Secured, kafka_tools: KafkaTools) -> None:
    """Kafka's own tools: they write, and say how far the topic goes; with stores in PKCS12."""
    topic = unique("java")
    shared = ("--bootstrap-server", secured.bootstrap, "--command-config", str(secured.properties))
    records = ("--topic", topic, "--num-records", str(COUNT), *shared)
    created = kafka_tools("topics", *shared, "--create", "--topic", topic)
    assert created.code == 0, created
    written = kafka_tools("producer-perf-test", *records, "--throughput", "-1", "--record-size", "100")
    assert written.code == 0, written
    assert f", {COUNT}, " in kafka_tools("consumer-perf-test", *records).out


# Ours


def our_settings(secured: Secured, style: str) -> dict[str, object]:
    """The same in Kafka's names and in those of other Python clients."""
    if style == "kafka":
        return {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": Path(secured.key).read_text(),
            "ssl.keystore.certificate.chain": Path(secured.certificate).read_text(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": Path(secured.ca).read_text(),
        }
    if style == "context":
        context = ssl.create_default_context(cafile=secured.ca)
        context.load_cert_chain(secured.certificate, secured.key)
        return {"security.protocol": "SSL", "ssl.context": context}
    if style == "stores":
        lines = secured.properties.read_text().splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}
    return {
        "security.protocol": "SSL",
        "ssl.cafile": secured.ca,
        "ssl.certfile": secured.certificate,
        "ssl.keyfile": secured.key,
    }


@pytest.mark.parametrize("style", ["kafka", "kafka-python", "context", "stores"])
def test_ours(secured: Secured, style: str) -> None:
    own = {"bootstrap.servers": secured.bootstrap, **our_settings(secured, style)}
    topic = unique("ours")
    with barnabas.Admin(own) as admin:
        admin.create_topics([barnabas.NewTopic(topic)])
    with barnabas.Producer(own) as producer:
        for value in VALUES:
            producer.send(topic, value=value)
    found: list[bytes] = []
    with barnabas.Consumer({**own, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + 20
        while len(found) < COUNT and time.monotonic() < deadline_s:
            found += [each.value for each in consumer.poll(1)]
    assert sorted(found) == sorted(VALUES)


def test_our_tools(secured: Secured) -> None:
    def tool(*arguments: str, settings: Path = secured.properties) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "barnabas", *arguments, "--bootstrap-server", secured.bootstrap]
        command += ["--command-config", str(settings)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert tool("topics", "--create", "--topic", unique("tool")).returncode == 0
    assert "Produce" in tool("broker-api-versions").stdout
    without = secured.folder / "without.properties"
    without.write_text(f"security.protocol=SSL\nssl.cafile={secured.ca}\n")
    refused = tool("topics", "--list", settings=without)
    assert refused.returncode == 1
    assert "certificate" in refused.stderr


def test_who_is_not_trusted_is_refused_at_once(secured: Secured) -> None:
    other = CertificateAuthority.create("Another")
    (secured.folder / "other.pem").write_text(other.certificate_pem)
    stranger = other.issue("client")
    (secured.folder / "stranger.pem").write_text(stranger.pem)
    cases = [
        {"ssl.cafile": secured.ca},
        {"ssl.cafile": secured.ca, "ssl.certfile": str(secured.folder / "stranger.pem")},
        {"ssl.cafile": str(secured.folder / "other.pem")},
    ]
    for case in cases:
        started_s = time.monotonic()
        own = {"bootstrap.servers": secured.bootstrap, "security.protocol": "SSL", **case}
        with pytest.raises(barnabas.BarnabasError, match="SSL handshake failed"), barnabas.Admin(own) as admin:
            admin.list_topics()
        with pytest.raises(barnabas.BarnabasError, match="SSL handshake failed"), barnabas.Producer(own) as producer:
            producer.send("t", value=b"x").result(20)
        assert time.monotonic() - started_s < 15
    assert PASSWORD not in secured.log.read_text(errors="replace")
