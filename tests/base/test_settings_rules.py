"""Rules between the settings of a node, a topic and the clients."""

from __future__ import annotations

import re
from typing import Any

import pytest

from barnabas.base.properties import parse_properties
from barnabas.base.settings import InvalidSettingsError, Plugin, Settings
from barnabas.broker.settings import BrokerSettings, topic_defaults
from barnabas.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from barnabas.storage.settings import TopicSettings

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.quorum.voters": "1@localhost:9093",
}
BROKER_ONLY = {"process.roles": "broker", "node.id": "2", "listeners": "PLAINTEXT://:9092"}
CLIENT = {"bootstrap.servers": "localhost:9092"}


def node(**changes: Any) -> BrokerSettings:
    return BrokerSettings.load(NODE, {name.replace("_", "."): value for name, value in changes.items()})


def refusal(kind: type[Settings], *sources: dict[str, Any]) -> str:
    with pytest.raises(InvalidSettingsError) as caught:
        kind.load(*sources)
    return str(caught.value)


def test_the_settings_that_kafka_ships_with_load_without_a_warning_that_surprises() -> None:
    shipped = parse_properties("""
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        socket.receive.buffer.bytes=102400
        socket.request.max.bytes=104857600
        log.dirs=/tmp/kraft-combined-logs
        num.partitions=1
        num.recovery.threads.per.data.dir=2
        offsets.topic.replication.factor=1
        share.coordinator.state.topic.replication.factor=1
        share.coordinator.state.topic.min.isr=1
        transaction.state.log.replication.factor=1
        transaction.state.log.min.isr=1
        log.retention.hours=168
        log.segment.bytes=1073741824
        log.retention.check.interval.ms=300000
    """)
    settings = BrokerSettings.load(shipped)
    assert {warning.name for warning in settings.warnings} == {
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    }
    assert [str(each) for each in settings.advertised_endpoints] == ["PLAINTEXT://localhost:9092"]


SASL = {"listeners": "PLAINTEXT://:1,SASL_PLAINTEXT://:2,CONTROLLER://:3"}


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
        {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
        {"listeners": "plaintext://:9092 , controller://:9093"},
        {"advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093"},
        {"process.roles": "controller", "listeners": "CONTROLLER://:9093"},
        BROKER_ONLY,
        {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "localhost:9093"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:3,[::1]:5"},
        {"log.retention.ms": "-5"},
        {"log.cleanup.policy": ""},
        {"cordoned.log.dirs": "*"},
        {"log.dirs": "/a,/b", "cordoned.log.dirs": "/a"},
        {"early.start.listeners": "PLAINTEXT"},
        {"process.roles": "broker,broker,controller"},
    ],
)
def test_a_node_accepts(changes: dict[str, str]) -> None:
    loaded = BrokerSettings.load(NODE, changes)
    assert all(loaded.is_given(name) for name in changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"process.roles": ""}, "process.roles = '': the value is not allowed; allowed: a list"),
        ({"process.roles": "zookeeper"}, "items broker, controller, at least one"),
        ({"node.id": "-1"}, "node.id = '-1': the value is not allowed; allowed: a whole number, at least 0"),
        ({"broker.id": "2"}, "node.id = 1, broker.id = 2: both name this node, so they must be equal"),
        ({"listeners": "PLAINTEXT:9092,CONTROLLER://:9093"}, "'PLAINTEXT:9092' does not look like NAME://host:port"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:70000"}, "does not look like NAME://host:port"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "PLAINTEXT and CONTROLLER share port 9092"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3"}, "two listeners are named PLAINTEXT"),
        ({"listeners": "PLAINTEXT://:1,FOO://:2,CONTROLLER://:3"}, "does not say which protocol FOO uses"),
        (
            {"listeners": "PLAINTEXT://:1,SSL://:2,CONTROLLER://:3"},
            "does not say which protocol CONTROLLER uses",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "does not say which protocol CONTROLLER uses"),
        ({"listener.security.protocol.map": "PLAINTEXT:FOO,CONTROLLER:PLAINTEXT"}, "no protocol is called FOO"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "'PLAINTEXT' does not look like NAME:PROTOCOL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to 0.0.0.0"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "clients cannot connect to 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "PLAINTEXT is advertised twice"),
        ({"advertised.listeners": "FOO://h:9092"}, "FOO is advertised, but the node does not listen under that name"),
        ({"listeners": "CONTROLLER://:9093"}, "a broker needs a listener that is not one of the controller's"),
        ({"listeners": "PLAINTEXT://:9092"}, "a controller must listen under all of its controller.listener.names"),
        ({"process.roles": "controller"}, "must open only listeners of controller.listener.names"),
        ({**BROKER_ONLY, "listeners": NODE["listeners"]}, "CONTROLLER belongs to the controllers"),
        ({**BROKER_ONLY, "node.id": "1"}, "a node that is only a broker cannot be one of the voters"),
        ({"controller.quorum.voters": "2@a:1"}, "a node that is controller too must be one of the voters"),
        ({"controller.quorum.voters": "1@0.0.0.0:1"}, "others cannot connect to 0.0.0.0"),
        ({"controller.quorum.voters": "1@a"}, "allowed: a list, separated by commas, each id@host:port"),
        ({"controller.quorum.voters": ""}, "one of the last two must say where the controllers are"),
        ({**BROKER_ONLY, "controller.quorum.auto.join.enable": "true"}, "only a controller can join the voters"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "CONTROLLER is one of controller.listener.names"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "give only one of the first two",
        ),
        ({"early.start.listeners": "FOO"}, "the node does not listen as FOO"),
        ({"max.connections.per.ip": "0"}, "nobody could connect"),
        ({"max.connections.per.ip.overrides": "foo"}, "must look like host:count"),
        ({"max.connections.per.ip.overrides": "foo:bar"}, "must look like host:count"),
        ({"queued.max.request.bytes": "5"}, "the queue must have room for the largest request"),
        ({"connection.failed.authentication.delay.ms": "700000"}, "the delay must be shorter"),
        ({"log.retention.ms": "0"}, "the time must be -1, for ever, or at least 1"),
        ({"log.retention.hours": "0"}, "the time must be -1, for ever, or at least 1"),
        ({"log.roll.ms": "0"}, "log.roll.ms = 0, log.roll.hours = 168 (default): the time must be at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "the time must be at least 0"),
        ({"log.dirs": ""}, "at least one"),
        ({"log.dirs": "/a,,/b"}, "the value is not allowed"),
        ({"cordoned.log.dirs": "/x"}, "/x is not a directory of this node"),
        ({"cordoned.log.dirs": "*,/x"}, "* already means all directories"),
        ({"log.cleaner.dedupe.buffer.size": "10"}, "the cleaner needs more than 1 MiB per thread"),
        (
            {"replica.fetch.wait.max.ms": "31000", "replica.socket.timeout.ms": "40000"},
            "replica.fetch.wait.max.ms = 31000, replica.lag.time.max.ms = 30000 (default): the wait must not be longer",
        ),
        ({"replica.socket.timeout.ms": "1"}, "the wait must not be longer than the timeout of the socket"),
        ({"broker.heartbeat.interval.ms": "9000"}, "heartbeats must come more often"),
        ({"group.min.session.timeout.ms": "1800001"}, "no session timeout would be allowed"),
        ({"group.consumer.session.timeout.ms": "44999"}, "the value must lie between its bounds"),
        ({"group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"}, "between its bounds"),
        ({"group.streams.heartbeat.interval.ms": "1"}, "the value must lie between its bounds"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "classic cannot be switched off"),
        ({"offsets.topic.compression.codec": "9"}, "0 to 4"),
        ({"log.message.timestamp.type": "createtime"}, "one of CreateTime, LogAppendTime"),
        ({"compression.gzip.level": "0"}, "1 to 9, or -1"),
        ({"super.users": "User:admin;bob"}, "'bob' is no principal"),
        ({"ssl.engine.factory.class": "a.B"}, "this is not built yet"),
        ({"sasl.kerberos.service.name": "kafka"}, "this is not built yet"),
        (SASL, "GSSAPI (Kerberos) is not built; there are PLAIN"),
        (SASL | {"sasl.enabled.mechanisms": ""}, "SASL_PLAINTEXT asks for SASL, and no mechanism is enabled on it"),
        (SASL | {"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN on SASL_PLAINTEXT knows no users"),
        (SASL | {"sasl.enabled.mechanisms": "OAUTHBEARER"}, "has no keys to check tokens with"),
        (
            SASL | {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "security.inter.broker.protocol": "SASL_PLAINTEXT"},
            "GSSAPI (Kerberos) is not built",
        ),
        (
            SASL
            | {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            },
            "nodes use SCRAM-SHA-512 on SASL_PLAINTEXT, where it is not enabled",
        ),
        (
            SASL
            | {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            },
            "nodes cannot log in on SASL_PLAINTEXT: give listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config",
        ),
        ({"remote.log.storage.system.enable": "true"}, "this is not built yet"),
        ({"listener.name.a.ssl.engine.factory.class": "a.B"}, "listener.name.a.ssl.engine.factory.class = 'a.B'"),
        ({"listener.name.internal.max.connections": "-1"}, "allowed: a whole number, at least 0"),
        (
            {"metrics.listener": "127.0.0.1:99999"},
            "metrics.listener = '127.0.0.1:99999': the value is not allowed; allowed: text, HOST:PORT or "
            "SSL://HOST:PORT, with a port of 0 to 65535",
        ),
    ],
)
def test_a_node_refuses(changes: dict[str, str], message: str) -> None:
    assert message in refusal(BrokerSettings, NODE, changes)


def test_what_a_node_must_be_told() -> None:
    text = refusal(BrokerSettings, {"process.roles": "broker"})
    assert "node.id is required" in text
    assert "controller.listener.names is required" in text
    # Without roles there is no point in telling what else a file of another time lacks.
    assert refusal(BrokerSettings, {}).startswith("process.roles is not given")


def test_broker_id_stands_in_for_node_id() -> None:
    assert BrokerSettings.load({**NODE, "node.id": None, "broker.id": "1"}).node_id == 1


def test_the_password_of_a_mechanism_is_known_and_hidden() -> None:
    name = "listener.name.internal.scram-sha-256.sasl.jaas.config"
    text = refusal(
        BrokerSettings,
        NODE,
        {
            "listeners": "PLAINTEXT://:1,INTERNAL://:2,CONTROLLER://:3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            name: "swordfish",
        },
    )
    assert f"{name}: a login module, a control flag and a semicolon at the end are expected" in text
    assert "swordfish" not in text
    assert f"{name} = [hidden]" in refusal(BrokerSettings, NODE, {name: True})


@pytest.mark.parametrize(
    ("changes", "retention_ms"),
    [
        ({}, 7 * 24 * 3_600_000),
        ({"log_retention_hours": 1}, 3_600_000),
        ({"log_retention_hours": 1, "log_retention_minutes": 2}, 120_000),
        ({"log_retention_hours": 1, "log_retention_minutes": 2, "log_retention_ms": 3}, 3),
        ({"log_retention_hours": 1, "log_retention_ms": -1}, -1),
        ({"log_retention_minutes": -1}, -1),
    ],
)
def test_the_finest_unit_wins(changes: dict[str, int], retention_ms: int) -> None:
    assert node(**changes).retention_ms == retention_ms


def test_topics_follow_the_broker_until_they_say_otherwise() -> None:
    broker = node(
        log_roll_hours=2, log_flush_scheduler_interval_ms=5, log_cleanup_policy="compact", message_max_bytes=99
    )
    topic = TopicSettings.load(topic_defaults(broker), {"max.message.bytes": "7"})
    assert (topic.segment_ms, topic.flush_ms, topic.cleanup_policy, topic.max_message_bytes) == (
        7_200_000,
        5,
        ("compact",),
        7,
    )


def test_topics_of_a_broker_that_says_nothing_have_the_defaults() -> None:
    assert TopicSettings.load(topic_defaults(node())) == TopicSettings()


def test_a_listener_may_have_its_own_values() -> None:
    settings = node(max_connections=9, listener_name_internal_max_connections=5)
    assert settings.warnings == ()
    assert (settings.max_connections, settings.for_listener("INTERNAL").max_connections) == (9, 5)
    assert settings.for_listener("OTHER").max_connections == 9


def test_directories_and_limits_are_read() -> None:
    settings = node(log_dir="/a", max_connections_per_ip_overrides="127.0.0.1:3, ::1:5")
    assert (settings.data_dirs, settings.metadata_dir) == (("/a",), "/a")
    assert node(log_dir="/a", log_dirs="/b,/c").data_dirs == ("/b", "/c")
    assert settings.connection_limits == {"127.0.0.1": 3, "::1": 5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1},
            "the shortest lag must not be longer than the longest",
        ),
        ({"leader.replication.throttled.replicas": "1"}, "each partition:broker, or *"),
        ({"leader.replication.throttled.replicas": "*,1:2"}, "* already means all replicas"),
        ({"follower.replication.throttled.replicas": "*,1:2"}, "* already means all replicas"),
        ({"cleanup.policy": "delete,shred"}, "items compact, delete"),
        ({"segment.bytes": 1000}, "at least 1048576"),
        ({"remote.storage.enable": "true"}, "this is not built yet"),
    ],
)
def test_a_topic_refuses(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(TopicSettings, changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acks": 1, "enable.idempotence": True}, "enable.idempotence = true, acks = 1: idempotence needs acks = all"),
        ({"retries": 0, "enable.idempotence": True}, "idempotence needs retries"),
        ({"max.in.flight.requests.per.connection": 6}, "idempotence allows at most 5 requests in flight"),
        ({"transactional.id": "t", "enable.idempotence": False}, "transactions need idempotence"),
        ({"transactional.id": "t", "acks": 1}, "transactions need idempotence"),
        ({"transactional.id": ""}, "text, not empty"),
        ({"delivery.timeout.ms": 1000}, "must be at least linger.ms + request.timeout.ms"),
        ({"acks": "ALL"}, "one of all, -1, 0, 1"),
        ({"bootstrap.servers": ""}, "each host:port, at least one"),
        ({"bootstrap.servers": "localhost"}, "each host:port, at least one"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI (Kerberos) is not built"),
        ({"security.protocol": "SSL", "ssl.cafile": "a", "ssl.truststore.location": "b"}, "give one of them"),
        ({"security.protocol": "SSL", "ssl.keyfile": "a"}, "the key needs its certificate"),
        ({"security.protocol": "SSL", "ssl.context": "a.b"}, "it takes an object"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI (Kerberos) is not built; there are PLAIN"),
        ({"key.serializer": "org.apache.kafka.common.serialization.ListSerializer"}, "has no counterpart here"),
    ],
)
def test_a_producer_refuses(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(ProducerSettings, CLIENT, changes)


def test_idempotence_that_nobody_asked_for_gives_way() -> None:
    for changes in ({"acks": "1"}, {"retries": 0}):
        settings = ProducerSettings.load(CLIENT, changes)
        assert not settings.enable_idempotence
        assert "idempotence is switched off" in str(settings.warnings[0])


def test_a_delivery_timeout_that_nobody_gave_makes_room() -> None:
    settings = ProducerSettings.load(CLIENT, {"request.timeout.ms": 130_000})
    assert settings.delivery_timeout_ms == 130_005
    assert (
        str(settings.warnings[0])
        == "delivery.timeout.ms: raised to 130005, the sum of linger.ms and request.timeout.ms"
    )


def test_a_first_wait_may_be_longer_than_the_default_of_the_longest() -> None:
    assert ProducerSettings.load(CLIENT, {"retry.backoff.ms": 2000}).retry_backoff_max_ms == 2000


def test_a_java_configuration_finds_our_plugins() -> None:
    java = "org.apache.kafka.common.serialization.StringSerializer"
    assert ProducerSettings.load(CLIENT, {"key.serializer": java}).key_serializer == Plugin("string")
    assignors = "org.apache.kafka.clients.consumer.StickyAssignor, my.Assignor"
    settings = ConsumerSettings.load(CLIENT, {"partition.assignment.strategy": assignors})
    assert settings.partition_assignment_strategy == (Plugin("sticky"), Plugin("my.Assignor"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group.id": ""}, "the name of a group cannot be empty"),
        ({"enable.auto.commit": True}, "offsets can be committed only for a group"),
        ({"group.id": "g", "heartbeat.interval.ms": 45_000}, "heartbeats must come more often"),
        ({"group.protocol": "CONSUMER"}, "this protocol is not built yet; use classic"),
        ({"auto.offset.reset": "LATEST"}, "earliest, latest, none, or by_duration:PnDTnHnMn.nS"),
        ({"auto.offset.reset": "by_duration:-P1D"}, "by_duration"),
        ({"auto.offset.reset": "by_duration:P"}, "by_duration"),
        ({"isolation.level": "READ_COMMITTED"}, "one of read_committed, read_uncommitted"),
        ({"share.acknowledgement.mode": "explicit"}, "this is not built yet"),
    ],
)
def test_a_consumer_refuses(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(ConsumerSettings, CLIENT, changes)


@pytest.mark.parametrize(
    "reset", ["earliest", "none", "by_duration:P1D", "by_duration:PT1H30M", "by_duration:P2DT0.5S"]
)
def test_a_consumer_may_start(reset: str) -> None:
    assert ConsumerSettings.load(CLIENT, auto_offset_reset=reset).auto_offset_reset == reset


def test_offsets_are_committed_by_default_only_in_a_group() -> None:
    assert ConsumerSettings.load(CLIENT, group_id="g").enable_auto_commit
    assert not ConsumerSettings.load(CLIENT).enable_auto_commit


def test_an_admin_connects_to_brokers_or_controllers() -> None:
    assert AdminSettings.load({"bootstrap.controllers": "localhost:9093"}).bootstrap_controllers == ("localhost:9093",)
    for neither_or_both in ({}, {**CLIENT, "bootstrap.controllers": "localhost:9093"}):
        assert re.search(r"brokers or controllers", refusal(AdminSettings, dict(neither_or_both)))
