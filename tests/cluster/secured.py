"""Nodes with TLS and SASL: certificates in files, logins, and clients that go on while the nodes change."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import confluent_kafka

import barnabas
from barnabas.testing.certificates import CertificateAuthority
from tests.cluster.kafka_nodes import KafkaNode

_MODULES: Final = "org.apache.kafka.common.security"


class Certificates:
    """An authority, and files for nodes and a client in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self._authority = CertificateAuthority.create()
        self.ca = folder / "ca.pem"
        self.ca.write_text(self._authority.certificate_pem)

    def settings(self, name: str, *hosts: str) -> dict[str, str]:
        """The settings of somebody new."""
        path = self._folder / f"{name}.pem"
        path.write_text(self._authority.issue(name, hosts).pem)
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(path),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }

    def client(self) -> dict[str, str]:
        return {"security.protocol": "SSL", **self.settings("client")}

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.settings("asker")["ssl.keystore.location"])
        return context


class TlsKafkaNode(KafkaNode):
    """One that is ready when TLS is spoken at its port."""

    certificates: Certificates

    def until_ready(self, timeout_s: float = 90.0) -> None:
        host, port = self.bootstrap.split(":")
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            assert self.is_running, f"Kafka's node {self.node_id} has ended:\n{self.tail()}"
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 2) as raw:
                self.certificates.context().wrap_socket(raw, server_hostname=host).close()
                return
            time.sleep(0.1)
        raise AssertionError(f"Kafka's node {self.node_id} was not ready:\n{self.tail()}")


def jaas(mechanism: str, user: str, password: str, users: Mapping[str, str] | None = None) -> str:
    """A login module: who logs in, and for PLAIN also who may."""
    kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    known = "".join(f' user_{name}="{each}"' for name, each in (users or {}).items())
    return f'{_MODULES}.{kind} required username="{user}" password="{password}"{known};'


class RunningClients:
    """A producer of ours and one of librdkafka, both with acks=all, and a consumer of ours in a group: threads each.
    They go on until `stop`. Records are numbered; what went wrong is in `problems`."""

    def __init__(self, topic: str, ours: Mapping[str, Any], librdkafka: Mapping[str, Any]) -> None:
        self._topic = topic
        # Here and not in their threads: before Python 3.13 two threads must not compile modules at the same time.
        self._producer = barnabas.Producer({"acks": "all", **ours})
        self._consumer = barnabas.Consumer({**ours, "group.id": "readers", "auto.offset.reset": "earliest"})
        self._librdkafka = {"acks": "all", "log_level": 0, **librdkafka}
        self._is_over = threading.Event()
        self._is_read = threading.Event()
        self.acknowledged: set[bytes] = set()
        self.read: list[bytes] = []
        self.problems: list[str] = []
        self._writers = [threading.Thread(target=self._watched, args=(each,)) for each in (self._send, self._produce)]
        self._reader = threading.Thread(target=self._watched, args=(self._consume,))
        for each in (*self._writers, self._reader):
            each.start()

    def stop(self, patience_s: float = 60.0) -> None:
        """Send no more, read what was sent, and end."""
        self._is_over.set()
        for each in self._writers:
            each.join(patience_s)
        deadline_s = time.monotonic() + patience_s
        while not self.acknowledged <= set(self.read) and time.monotonic() < deadline_s and not self.problems:
            time.sleep(0.1)
        self._is_read.set()
        self._reader.join(patience_s)

    def __enter__(self) -> RunningClients:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def until_more(self, count: int = 20, patience_s: float = 60.0) -> None:
        """Wait until so many more records were acknowledged and as many were read."""
        written, read = len(self.acknowledged), len(self.read)
        deadline_s = time.monotonic() + patience_s
        while len(self.acknowledged) < written + count or len(self.read) < read + count:
            assert not self.problems, self.problems
            assert time.monotonic() < deadline_s, "the clients do not get on"
            time.sleep(0.05)

    def _watched(self, work: Any) -> None:
        try:
            work()
        except Exception as problem:  # whatever it is, the test tells of it
            self.problems.append(f"{work.__name__}: {problem!r}")

    def _send(self) -> None:
        number = 0
        with self._producer as producer:
            while not self._is_over.wait(0.02):
                value = b"ours-%d" % number
                producer.send(self._topic, value, partition=number % 3).result(60)
                self.acknowledged.add(value)
                number += 1

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(self._librdkafka)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.add(message.value())
            else:
                self.problems.append(f"librdkafka: {error}")

        number = 0
        while not self._is_over.wait(0.02):
            producer.produce(self._topic, b"librdkafka-%d" % number, partition=number % 3, on_delivery=delivered)
            producer.poll(0)
            number += 1
        if producer.flush(60):
            self.problems.append("librdkafka: not all was delivered")

    def _consume(self) -> None:
        with self._consumer as consumer:
            consumer.subscribe([self._topic])
            while not self._is_read.is_set():
                self.read += [each.value for each in consumer.poll(0.5)]
            consumer.commit()
