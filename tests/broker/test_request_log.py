"""The request log in Kafka's form, without secrets, and the log of slow requests with the parts of their time."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.log_context import TRACE, said
from barnabas.base.log_lines import LimitedHandler
from barnabas.base.runtime import ManualClock
from barnabas.broker.configs import logger_levels
from barnabas.broker.request_log import without_secrets
from barnabas.metadata.configs import ConfigOperation
from barnabas.metadata.image import ConfigResourceType
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_topics import CreatableTopicConfig
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.broker.test_node import create, fetch, inside, produce
from tests.oracles import missing
from tests.oracles.kafka_server import KafkaServer

LOGGER = "kafka.request.logger"
#: What Kafka 4.3.1 has in such a line; ours has the sizes besides.
KAFKAS_KEYS = [
    "isForwarded",
    "requestHeader",
    "request",
    "response",
    "connection",
    "totalTimeMs",
    "requestQueueTimeMs",
    "localTimeMs",
    "remoteTimeMs",
    "throttleTimeMs",
    "responseQueueTimeMs",
    "sendTimeMs",
    "securityProtocol",
    "principal",
    "listener",
    "clientInformation",
]
HEADER_KEYS = ["requestApiKey", "requestApiVersion", "correlationId", "clientId", "requestApiKeyName"]
#: Kafka's jars bring no backend for its logger; this one is Debian's.
SLF4J = [Path("/usr/share/java/slf4j-api.jar"), Path("/usr/share/java/slf4j-simple.jar")]
PREFIX = "Completed request:"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    yield caplog
    logger_levels.reset_level(LOGGER)


def alter(node: str, **settings: str) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=ConfigOperation.SET, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=ConfigResourceType.BROKER, resource_name=node, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def completed(log: pytest.LogCaptureFixture, key: ApiKey | None = None) -> list[dict[str, Any]]:
    lines = [said(each) for each in log.records if each.name == "barnabas.request"]
    told = [json.loads(line.removeprefix(PREFIX)) for line in lines if line.startswith(PREFIX)]
    return [each for each in told if key is None or each["requestHeader"]["requestApiKey"] == key]


def slow(log: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        each.__dict__["fields"] for each in log.records if each.name == "barnabas.request.slow"
    ]
    return found


def in_world(story: Any) -> None:
    with World(1) as world:

        async def whole() -> None:
            node = await world.start_node(overrides={"offsets.topic.num.partitions": 1})
            await story(node, await world.client(node.bootstrap))
            await node.stop()

        world.run(whole())


def test_each_answered_request_is_a_line_in_kafkas_form(log: pytest.LogCaptureFixture) -> None:
    async def story(node: SimulatedNode, client: ScriptedClient) -> None:
        await client.ask(create("before"))
        assert completed(log) == []
        logger_levels.set_level(LOGGER, "DEBUG")
        await client.ask(create("t"))
        await client.ask(produce("t"), 11)
        await client.ask(fetch("t"), 11)
        (line,) = completed(log, ApiKey.PRODUCE)
        assert list(line) == [*KAFKAS_KEYS, "requestSizeBytes", "responseSizeBytes"]
        header = line["requestHeader"]
        assert list(header) == HEADER_KEYS
        assert (header["requestApiKeyName"], header["requestApiVersion"]) == ("PRODUCE", 11)
        assert header["clientId"] == "scripted"
        assert line["request"]["topicData"][0]["name"] == "t"
        # Of records only the size is told.
        assert line["request"]["topicData"][0]["partitionData"][0]["recordsSizeInBytes"] > 60
        assert line["response"]["responses"][0]["partitionResponses"][0]["baseOffset"] == 0
        assert (line["securityProtocol"], line["listener"]) == ("PLAINTEXT", "PLAINTEXT")
        assert line["principal"] == "User:ANONYMOUS"
        assert len(completed(log, ApiKey.FETCH)) == 1
        assert len(completed(log, ApiKey.CREATE_TOPICS)) == 1
        log.clear()
        logger_levels.reset_level(LOGGER)
        await client.ask(create("after"))
        assert completed(log) == []
        assert not [each for each in inside(node)._server.connections if each.captured is not None]

    in_world(story)


def test_long_bodies_are_told_by_their_size_unless_all_is_asked_for(log: pytest.LogCaptureFixture) -> None:
    topics = [MetadataRequestTopic(name=f"a-topic-of-no-account-{number}") for number in range(100)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    async def story(node: SimulatedNode, client: ScriptedClient) -> None:
        for level, is_whole in (("DEBUG", False), ("TRACE", True)):
            logger_levels.set_level(LOGGER, level)
            log.clear()
            await client.ask(request, 12)
            (line,) = completed(log, ApiKey.METADATA)
            assert ("sizeInBytes" in line["request"]) is not is_whole
            assert (len(line["request"].get("topics", ())) == 100) is is_whole

    assert logging.getLevelName(TRACE) == "TRACE"
    in_world(story)


def test_lines_reach_the_file_as_they_are(log: pytest.LogCaptureFixture) -> None:
    """Each is JSON without spaces, and longer than any word that somebody writes."""

    async def story(node: SimulatedNode, client: ScriptedClient) -> None:
        logger_levels.set_level(LOGGER, "DEBUG")
        await client.ask(create("t"))

    in_world(story)
    file = io.StringIO()
    handler = LimitedHandler(logging.StreamHandler(file), ManualClock().monotonic_ms, whole=[logger_levels.REQUEST_LOG])
    (record,) = (
        each for each in log.records if each.name == logger_levels.REQUEST_LOG and "CREATE_TOPICS" in said(each)
    )
    handler.handle(record)
    (line,) = file.getvalue().splitlines()
    told = json.loads(line.partition(PREFIX)[2])
    assert told["request"]["topics"][0]["name"] == "t"
    assert list(told)[: len(KAFKAS_KEYS)] == KAFKAS_KEYS


def test_no_secret_is_shown(log: pytest.LogCaptureFixture) -> None:
    async def story(node: SimulatedNode, client: ScriptedClient) -> None:
        logger_levels.set_level(LOGGER, "TRACE")
        secrets = {"listener.name.tls.ssl.keystore.password": "geheim1", "of.a.plug.in": "geheim2"}
        shown = {"log.retention.ms": "86400000"}
        request = alter("1", **secrets, **shown)
        await client.ask(request)
        topic = create("t")
        topic.topics[0].configs = [
            CreatableTopicConfig(name="retention.ms", value="3600000"),
            CreatableTopicConfig(name="unheard.of", value="geheim3"),
        ]
        await client.ask(topic)
        assert "geheim" not in log.text
        (line,) = completed(log, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        values = {each["name"]: each["value"] for each in line["request"]["resources"][0]["configs"]}
        assert values == dict.fromkeys(secrets, "[hidden]") | shown
        (line,) = completed(log, ApiKey.CREATE_TOPICS)
        assert [each["value"] for each in line["request"]["topics"][0]["configs"]] == ["3600000", "[hidden]"]

    in_world(story)


def test_what_proves_who_one_is_is_hidden() -> None:
    from barnabas.wire.json_form import to_json

    told = without_secrets(to_json(SaslAuthenticateRequest(auth_bytes=b"\0me\0geheim"), 2))
    assert told == {"authBytes": "[hidden]"}
    upsertions = [{"name": "me", "mechanism": 1, "iterations": 4096, "salt": "c2FsdA==", "saltedPassword": "eA=="}]
    assert without_secrets({"upsertions": upsertions})["upsertions"] == [
        {"name": "me", "mechanism": 1, "iterations": 4096, "salt": "[hidden]", "saltedPassword": "[hidden]"}
    ]
    assert without_secrets({"tokens": [{"tokenId": "t", "hmac": "eA=="}]}) == {
        "tokens": [{"tokenId": "t", "hmac": "[hidden]"}]
    }


def test_a_slow_request_is_told_with_the_parts_of_its_time(log: pytest.LogCaptureFixture) -> None:
    async def wait(*_: object) -> None:
        await asyncio.sleep(1.5)

    async def story(node: SimulatedNode, client: ScriptedClient) -> None:
        await client.ask(create("t"))
        # A fetch waits because it wants to.
        await client.ask(fetch("t", max_wait_ms=5000), 11)
        assert slow(log) == []
        inside(node).interceptor = lambda context, request: wait() if context.api_key is ApiKey.METADATA else None
        await client.ask(MetadataRequest(topics=[]), 12)
        (line,) = slow(log)
        assert (line["api"], line["version"], line["clientId"]) == ("METADATA", 12, "scripted")
        assert 1500 <= line["remoteTimeMs"] <= line["totalTimeMs"] < 1600
        assert line["requestQueueTimeMs"] + line["localTimeMs"] < 100
        (record,) = (each for each in log.records if each.name == "barnabas.request.slow")
        assert record.levelno == logging.WARNING
        assert said(record).startswith("METADATA v12 of client 'scripted' at ")
        assert f"took {line['totalTimeMs']} ms: " in said(record)
        # The threshold changes while the node runs.
        await client.ask(alter("1", logging_slow_request_ms="2000"))
        await client.ask(MetadataRequest(topics=[]), 12)
        assert len(slow(log)) == 1
        await client.ask(alter("1", logging_slow_request_ms="10"))
        await client.ask(MetadataRequest(topics=[]), 12)
        assert len([each for each in slow(log) if each["api"] == "METADATA"]) == 2

    in_world(story)


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason="needs Kafka's jars: make oracles")
@pytest.mark.skipif(not all(each.exists() for each in SLF4J), reason="needs Debian's libslf4j-java")
def test_the_form_is_kafkas(tmp_path: Path) -> None:
    jvm = (
        f"-Xbootclasspath/a:{':'.join(map(str, SLF4J))}",
        "-Xshare:off",
        "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug",
    )
    with KafkaServer(tmp_path, jvm=jvm) as server:

        async def ask() -> None:
            client = await ScriptedClient.connect(server.bootstrap, "scripted")
            await client.ask(create("t"))
            await client.close()

        asyncio.run(ask())
    lines = [line.partition(PREFIX)[2] for line in server.log_path.read_text().splitlines() if PREFIX in line]
    told = [json.loads(line) for line in lines]
    created, *_ = [each for each in told if each["requestHeader"]["requestApiKeyName"] == "CREATE_TOPICS"]
    assert list(created) == KAFKAS_KEYS
    assert list(created["requestHeader"]) == HEADER_KEYS
