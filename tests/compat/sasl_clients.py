"""Clients that log in by SASL: each sends a record, reads it again, and tells what it read, or raises what it heard."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas import Consumer, Producer, aio
from tests.compat.aiokafka_client import ak
from tests.compat.confluent_client import ck
from tests.compat.kafka_python_client import kp
from tests.compat.our_client_peers import KAFKAJS_MODULES
from tests.oracles import java

TIMEOUT_S: Final = 30
MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}
_KAFKAJS: Final = Path(__file__).parent / "kafkajs" / "sasl.js"


@dataclass(frozen=True)
class Login:
    """Who logs in, where and how. A token stands for user and password; with `ca`, a file, it is over TLS."""

    bootstrap: str
    mechanism: str
    user: str
    password: str
    token: str | None = None
    ca: str | None = None

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.ca is None else "SASL_SSL"

    @property
    def keywords(self) -> dict[str, Any]:
        """As our clients, kafka-python and aiokafka take it."""
        found = {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.protocol,
            "sasl_mechanism": self.mechanism,
        }
        if self.ca is not None:
            found["ssl_cafile"] = self.ca
        if self.token is None:
            found |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return found

    @property
    def properties(self) -> dict[str, str]:
        """As Java takes it, and our clients do, too."""
        trust = {} if self.ca is None else {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        return {
            **trust,
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{MODULES[self.mechanism]} required "
            f'username="{self.user}" password="{self.password}";',
        }


Client = Callable[[Login, str], str]


def ours(login: Login, topic: str) -> str:
    given = (
        login.keywords if login.token is None else login.keywords | {"sasl_oauth_token_provider": lambda: login.token}
    )
    with Producer(**given) as producer:
        producer.send(topic, b"from ours").result(TIMEOUT_S)
    with Consumer(topic, group_id=topic, auto_offset_reset="earliest", **given) as consumer:
        return str(consumer.poll(TIMEOUT_S)[0].value, "utf-8")


def ours_aio(login: Login, topic: str) -> str:
    async def provide() -> str | None:
        return login.token

    async def story() -> str:
        given = login.keywords
        if login.token is not None:
            given["sasl_oauth_token_provider"] = provide
        async with aio.Producer(**given) as producer:
            await (await producer.send(topic, b"from aio"))
        async with aio.Consumer(topic, group_id=topic, auto_offset_reset="earliest", **given) as consumer:
            return str((await consumer.poll(TIMEOUT_S))[0].value, "utf-8")

    return asyncio.run(story())


def confluent(login: Login, topic: str) -> str:
    errors: list[Any] = []
    given: dict[str, Any] = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "sasl.mechanism": login.mechanism,
        "error_cb": errors.append,
        "log_level": 0,
    }
    if login.ca is not None:
        given["ssl.ca.location"] = login.ca
    if login.token is None:
        given |= {"sasl.username": login.user, "sasl.password": login.password}
    else:
        given["oauth_cb"] = lambda _: (login.token, time.time() + 3600)
    producer = ck.Producer(given)
    producer.produce(topic, b"from confluent")
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(producer):
        producer.poll(0.1)
        if errors and errors[0].code() == ck.KafkaError._AUTHENTICATION:
            raise RuntimeError(str(errors[0]))
        assert time.monotonic() < deadline_s, errors
    consumer = ck.Consumer(given | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        while True:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                return str(message.value(), "utf-8")
            assert time.monotonic() < deadline_s, errors
    finally:
        consumer.close()


def kafka_python(login: Login, topic: str) -> str:
    given = login.keywords
    if login.token is not None:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str | None:
                return login.token

        given["sasl_oauth_token_provider"] = Provider()
    producer = kp.KafkaProducer(**given, max_block_ms=8000)
    try:
        producer.send(topic, b"from kafka-python").get(TIMEOUT_S)
    finally:
        producer.close(timeout=1)
    consumer = kp.KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **given
    )
    try:
        return str(next(iter(consumer)).value, "utf-8")
    finally:
        consumer.close()


def aiokafka(login: Login, topic: str) -> str:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str | None:
            return login.token

    async def story() -> str:
        given = login.keywords
        if given.pop("ssl_cafile", None) is not None:
            given["ssl_context"] = ssl.create_default_context(cafile=login.ca)
        if login.token is not None:
            given["sasl_oauth_token_provider"] = Provider()
        async with ak.AIOKafkaProducer(**given) as producer:
            await producer.send_and_wait(topic, b"from aiokafka")
        async with ak.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **given) as consumer:
            return str((await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value, "utf-8")

    return asyncio.run(story())


def kafkajs(login: Login, topic: str) -> str:
    given: Mapping[str, Any] = {"mechanism": login.mechanism, "username": login.user, "password": login.password}
    if login.token is not None:
        given = {"token": login.token}
    if login.ca is not None:
        given = {**given, "ca": Path(login.ca).read_text()}
    done = subprocess.run(
        ["node", str(_KAFKAJS), login.bootstrap, topic],
        input=json.dumps(given),
        env=os.environ | {"NODE_PATH": str(KAFKAJS_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def java_tool(
    folder: Path, login: Login, properties: Mapping[str, str], *arguments: str, options: tuple[str, ...] = ()
) -> str:
    """What one of Java's tools prints, with these settings."""
    config = folder / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    done = subprocess.run(
        [*java(*options), *arguments, "--bootstrap-server", login.bootstrap, "--command-config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


CLIENTS: Final[Mapping[str, Client]] = {
    "ours": ours,
    "ours-aio": ours_aio,
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kafkajs": kafkajs,
}
