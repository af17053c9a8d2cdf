"""Our declarations against the facts of Apache Kafka 4.3.1, and the documentation against our declarations.

`kafka_settings.json` holds what Kafka's own definitions say: names, types, defaults, ranges, importance, whether a
broker setting can change at run time, and which broker setting a topic setting follows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.settings import Registry, Setting, SettingState
from barnabas.base.settings.markdown import as_markdown
from barnabas.broker.settings import BROKER_SETTINGS
from barnabas.client.settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from barnabas.storage.settings import TOPIC_SETTINGS

REGISTRIES = [BROKER_SETTINGS, TOPIC_SETTINGS, PRODUCER_SETTINGS, CONSUMER_SETTINGS, ADMIN_SETTINGS]
KAFKA: dict[str, dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("kafka_settings.json").read_text())
DOCS = Path(__file__).parents[2] / "docs" / "settings"

# Known to Kafka, but not to the definition that a broker is loaded with.
OURS_ONLY = {
    **dict.fromkeys(
        (
            "ssl.cafile",
            "ssl.certfile",
            "ssl.keyfile",
            "ssl.password",
            "ssl.check.hostname",
            "ssl.ciphers",
            "ssl.context",
        ),
        "as kafka-python and aiokafka spell it",
    ),
    "super.users": "belongs to Kafka's authorizer; declared so that it is refused, not unknown",
    "allow.everyone.if.no.acl.found": "belongs to Kafka's authorizer; declared so that it is refused, not unknown",
    "leader.replication.throttled.rate": "exists only as a dynamic setting in Kafka",
    "follower.replication.throttled.rate": "exists only as a dynamic setting in Kafka",
    "sasl.plain.username": "kafka-python's and aiokafka's; Java has sasl.jaas.config alone",
    "sasl.plain.password": "as sasl.plain.username",
    "sasl.oauth.token.provider": "kafka-python's and aiokafka's; Java has sasl.login.callback.handler.class alone",
    **dict.fromkeys(
        ("metrics.listener", "metrics.listener.user", "metrics.listener.password", "metrics.requests.enable"),
        "in Kafka an agent of the JVM offers metrics",
    ),
    **dict.fromkeys(
        (
            "logging.file",
            "logging.file.max.bytes",
            "logging.file.max.count",
            "logging.file.roll.ms",
            "logging.format",
            "logging.levels",
            "logging.slow.request.ms",
        ),
        "in Kafka a file of log4j's says this",
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": "exists only as a dynamic setting in Kafka",
}
OTHER_DEFAULT = {
    "key.serializer": "bytes pass as they are unless somebody says otherwise; Java insists on a class",
    "value.serializer": "as key.serializer",
    "key.deserializer": "as key.serializer",
    "value.deserializer": "as key.serializer",
    "share.acquire.mode": "the same value; Kafka's default is in capitals, its documentation is not",
}
JAVAS_OWN = {
    "ssl.protocol",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
}
DYNAMIC_IN_KAFKA_READ_AT_START_HERE = {"listeners", "listener.security.protocol.map", "metric.reporters"}

#: The second one for a listener, which Kafka takes and does not follow.
LIVE_AND_OURS = {"logging.slow.request.ms", "connections.max.reauth.ms"}

each_kind = pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)


def kafka_default(setting: Setting) -> object:
    """Our default in the form of the facts: lists, and Java's names of the plug-ins that we have."""

    def plain(value: object) -> object:
        return setting.value_type.builtin.get(str(value), str(value)) if setting.value_type.plugins else value

    if isinstance(setting.default, tuple):
        return [plain(value) for value in setting.default]
    return setting.default if setting.default is None else plain(setting.default)


@each_kind
def test_every_setting_of_kafka_is_declared(registry: Registry) -> None:
    assert set(registry) - set(OURS_ONLY) == set(KAFKA[registry.kind])


@each_kind
def test_types_importance_and_defaults_are_those_of_kafka(registry: Registry) -> None:
    for name, fact in KAFKA[registry.kind].items():
        setting = registry[name]
        assert (name, setting.type.label) == (name, fact["type"])
        assert (name, setting.importance.value) == (name, fact["importance"])
        assert (name, setting.internal) == (name, fact.get("internal", False))
        if name not in OTHER_DEFAULT:
            assert (name, setting.required) == (name, fact.get("required", False))
        if name not in OTHER_DEFAULT and not setting.required:
            assert (name, kafka_default(setting)) == (name, fact["default"])


@each_kind
def test_ranges_are_those_of_kafka(registry: Registry) -> None:
    for name, fact in KAFKA[registry.kind].items():
        if "range" not in fact:
            continue
        lowest, *_, highest = fact["range"].strip("[]").split(",")
        allowed = registry[name].allowed
        assert allowed is not None, name
        assert allowed.accepts(float(lowest)), name
        assert not allowed.accepts(float(lowest) - 0.001), name
        if highest not in ("...", "2147483647"):
            assert allowed.accepts(float(highest)), name
            assert not allowed.accepts(float(highest) + 0.001), name


def test_only_what_kafka_can_change_at_run_time_is_live() -> None:
    dynamic = {name for name, fact in KAFKA["broker"].items() if fact.get("dynamic")}
    live = {name for name, setting in BROKER_SETTINGS.items() if setting.state is SettingState.LIVE}
    start = {name for name, setting in BROKER_SETTINGS.items() if setting.state is SettingState.READ_AT_START}
    assert live - LIVE_AND_OURS <= dynamic
    assert start & dynamic == DYNAMIC_IN_KAFKA_READ_AT_START_HERE


def test_topics_follow_the_broker_settings_that_kafka_says() -> None:
    for name, fact in KAFKA["topic"].items():
        server_default = fact.get("server_default")
        assert TOPIC_SETTINGS[name].server_default == server_default
        assert server_default is None or server_default in BROKER_SETTINGS


@each_kind
def test_security_that_is_not_built_is_refused(registry: Registry) -> None:
    """What has no effect belongs to Java's way of doing the same, and takes nothing away from what is asked for."""
    for name, setting in registry.items():
        if name.startswith(("ssl.", "sasl.", "security.protocol", "authorizer.", "super.users", "delegation.")):
            assert setting.state is not SettingState.NO_EFFECT or name in JAVAS_OWN, name
            assert setting.state is not SettingState.NOT_BUILT or setting.refused, name


@each_kind
def test_every_setting_has_one_line_of_documentation(registry: Registry) -> None:
    for name, setting in registry.items():
        assert setting.doc.endswith("."), name
        assert "\n" not in setting.doc, name
        assert 10 <= len(setting.doc) <= 160, name
        assert setting.attribute == name.replace(".", "_")


@each_kind
def test_each_name_belongs_to_one_class(registry: Registry) -> None:
    declaring: dict[str, list[str]] = {}
    for base in registry.model.__mro__:
        for value in vars(base).values():
            if isinstance(value, Setting):
                declaring.setdefault(value.name, []).append(value.group)
    for name, groups in declaring.items():
        assert len(set(groups)) == 1, f"{name} is declared in {groups}"


@each_kind
def test_the_documentation_is_up_to_date(registry: Registry) -> None:
    page = (DOCS / f"{registry.kind}.md").read_text(encoding="utf-8")
    assert page == as_markdown(registry), "write it again: see barnabas/base/settings/markdown.py"
