"""Settings of topics, brokers and loggers: what is told about them, and what can be changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.base.log_context import TRACE
from barnabas.broker.configs.config_resources import (
    TopicSettingsCache,
    controller_options,
    effective_settings,
    effective_topic_settings,
)
from barnabas.broker.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from barnabas.metadata.authorizer import AclOperation
from barnabas.metadata.configs import ConfigOperation
from barnabas.metadata.image import ClusterImage, ConfigResource, ConfigurationsImage
from barnabas.metadata.options import ConfigSource
from barnabas.wire.messages import alter_configs as replacing
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.admin import AdminNode, Deny, node_settings
from tests.metadata.clusters import new_topic

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def describe(
    node: AdminNode,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    synonyms: bool = True,
    documentation: bool = False,
    version: int = 4,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    result: DescribeConfigsResult = node.ask(describe_configs, request, version).results[0]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def described(node: AdminNode, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    (config,) = describe(node, kind, name, [key]).configs
    return config


def change(node: AdminNode, kind: int, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes],
            )
        ],
        validate_only=False,
    )
    (response,) = node.ask(incremental_alter_configs, request, 1).responses
    assert bool(response.error_code) == bool(response.error_message)
    return ErrorCode.of(response.error_code)


def places(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


@pytest.fixture
def node() -> AdminNode:
    node = AdminNode()
    node.cluster.create(new_topic("t", configs={"retention.ms": "7"}))
    node.metadata.image = node.cluster.image
    return node


def test_a_topic_tells_all_its_settings_and_nothing_internal(node: AdminNode) -> None:
    result = describe(node, TOPIC, "t")
    assert (result.error_code, result.error_message) == (0, "")  # not null, as in Kafka
    names = [each.name for each in result.configs]
    assert names == sorted(names)
    assert len(names) == 33
    assert {each.name: each.config_type for each in result.configs if each.name in ("cleanup.policy", "flush.ms")} == {
        "cleanup.policy": 7,
        "flush.ms": 5,
    }
    assert describe(node, TOPIC, "t", []).configs == result.configs


def test_the_places_of_a_value_are_listed_from_strong_to_weak(node: AdminNode) -> None:
    change(node, BROKER, "1", ("log.retention.ms", SET, "100000"))
    change(node, BROKER, "", ("log.retention.ms", SET, "200000"))
    config = described(node, TOPIC, "t", "retention.ms")
    assert (config.value, config.config_source, config.read_only) == ("7", ConfigSource.TOPIC, False)
    assert places(config) == [
        ("retention.ms", "7", 1),
        ("log.retention.ms", "100000", 2),
        ("log.retention.ms", "200000", 3),
        ("log.retention.hours", "168", 5),
    ]
    change(node, TOPIC, "t", ("retention.ms", DELETE, None))
    assert described(node, TOPIC, "t", "retention.ms").value == "100000"
    change(node, BROKER, "1", ("log.retention.ms", DELETE, None))
    assert described(node, TOPIC, "t", "retention.ms").value == "200000"
    change(node, BROKER, "", ("log.retention.ms", DELETE, None))
    config = described(node, TOPIC, "t", "retention.ms")
    assert (config.value, config.config_source) == ("604800000", ConfigSource.DEFAULT)


def test_a_coarser_unit_in_the_file_counts_but_is_not_told_as_in_kafka() -> None:
    node = AdminNode(node_settings(log_retention_hours="2", log_segment_bytes="2000000"))
    node.cluster.create(new_topic("t"))
    node.metadata.image = node.cluster.image
    config = described(node, TOPIC, "t", "retention.ms")
    assert (config.value, config.config_source) == ("7200000", ConfigSource.DEFAULT)
    assert places(config) == []
    config = described(node, BROKER, "1", "log.retention.hours")
    assert places(config) == [("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)]
    config = described(node, BROKER, "1", "log.segment.bytes")
    assert places(config) == [("log.segment.bytes", "2000000", 4), ("log.segment.bytes", "1073741824", 5)]


def test_new_topics_are_answered_with_the_same_values_and_sources() -> None:
    node = AdminNode(node_settings(log_index_interval_bytes="2"))
    change(node, BROKER, "", ("log.segment.bytes", SET, "3000000"))
    (created,) = node.cluster.create(new_topic("t", configs={"flush.ms": "5"}))
    node.metadata.image = node.cluster.image
    told = {each.name: (each.value, each.config_source) for each in created.configs or ()}
    assert told == {each.name: (each.value, each.config_source) for each in describe(node, TOPIC, "t").configs}
    assert told["segment.bytes"] == ("3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_a_broker_tells_its_settings(node: AdminNode) -> None:
    result = describe(node, BROKER, "1")
    by_name = {each.name: each for each in result.configs}
    assert by_name["node.id"].read_only
    assert (by_name["node.id"].value, by_name["node.id"].config_source) == ("1", ConfigSource.STATIC_BROKER)
    assert not by_name["log.retention.ms"].read_only
    assert not by_name["num.io.threads"].read_only
    assert by_name["num.partitions"].read_only
    assert (by_name["log.retention.ms"].value, by_name["log.retention.hours"].value) == (None, "168")
    secret = by_name["ssl.keystore.password"]
    assert (secret.is_sensitive, secret.value, secret.config_type) == (True, None, 9)
    assert by_name["log.dirs"].config_type == 7
    # As Kafka shows them.
    assert by_name["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    principal_builder = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    assert by_name["principal.builder.class"].value == principal_builder
    assert not [each for each in result.configs if each.documentation]
    explained = describe(node, BROKER, "1", documentation=True)
    assert all(each.documentation for each in explained.configs)


def test_only_what_was_asked_for_is_told(node: AdminNode) -> None:
    assert [each.name for each in describe(node, BROKER, "1", ["num.partitions", "no.such"]).configs] == [
        "num.partitions"
    ]
    assert not describe(node, BROKER, "1", ["num.partitions"], synonyms=False).configs[0].synonyms
    oldest = describe(node, TOPIC, "t", ["retention.ms"], version=1)
    assert oldest.configs[0].config_source == ConfigSource.TOPIC


def test_the_broker_without_a_name_tells_what_was_set_for_all(node: AdminNode) -> None:
    assert describe(node, BROKER, "").configs == []
    change(node, BROKER, "", ("log.retention.ms", SET, "200000"), ("plugin.password", SET, "hush"))
    configs = {each.name: each for each in describe(node, BROKER, "").configs}
    assert (configs["log.retention.ms"].value, configs["log.retention.ms"].config_source) == ("200000", 3)
    assert (configs["plugin.password"].value, configs["plugin.password"].is_sensitive) == (None, True)
    assert places(configs["plugin.password"]) == [("plugin.password", None, 3)]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_here_is_not_described(node: AdminNode, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(node, kind, name)
    assert ErrorCode.of(result.error_code) is code
    assert result.error_message
    assert not result.configs


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("1", ("log.retention.ms", SET, "100000"), ErrorCode.NONE),
        ("", ("log.retention.ms", SET, "200000"), ErrorCode.NONE),
        ("1", ("log.cleanup.policy", APPEND, "compact"), ErrorCode.NONE),
        ("1", ("num.io.threads", SET, "4"), ErrorCode.NONE),
        ("1", ("foo.bar", SET, "7"), ErrorCode.NONE),
        ("1", ("node.id", DELETE, None), ErrorCode.NONE),
        ("1", ("node.id", SET, "7"), ErrorCode.INVALID_REQUEST),
        ("", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST),
        ("", ("num.partitions", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("", ("listeners", SET, "PLAINTEXT://:9092"), ErrorCode.INVALID_REQUEST),
        ("1", ("ssl.keystore.password", SET, "x"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        ("1", ("num.io.threads", SET, "many"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.segment.bytes", SET, "10"), ErrorCode.INVALID_REQUEST),
        ("", ("message.max.bytes", SET, "-1"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.retention.ms", SET, "0"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("1", ("cordoned.log.dirs", SET, "*"), ErrorCode.INVALID_CONFIG),
        ("7", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        ("abc", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_broker_takes_only_changes_that_it_can_follow(
    node: AdminNode, name: str, changes: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = node.metadata.image.configs
    assert change(node, BROKER, name, changes) is code
    if code is not ErrorCode.NONE:
        assert node.metadata.image.configs == before


def test_the_node_follows_what_was_changed(node: AdminNode) -> None:
    change(node, BROKER, "", ("log.retention.ms", SET, "200000"), ("num.io.threads", SET, "3"))
    assert node.settings.log_retention_ms == 200_000
    change(node, BROKER, "1", ("log.retention.ms", SET, "100000"))
    assert node.settings.log_retention_ms == 100_000
    assert node.settings.as_loaded is node.static
    change(node, BROKER, "1", ("log.retention.ms", DELETE, None))
    change(node, BROKER, "", ("log.retention.ms", DELETE, None))
    assert node.settings == node.static


def test_a_stored_value_that_does_not_fit_any_more_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    stored = {
        ConfigResource(BROKER, ""): {"log.segment.bytes": "5", "log.retention.ms": "9", "listeners": "x", "other": "y"},
        ConfigResource(BROKER, "1"): {"log.retention.bytes": "77"},
        ConfigResource(BROKER, "2"): {"log.retention.bytes": "88"},
    }
    with caplog.at_level(logging.WARNING):
        settings = effective_settings(node_settings(), ClusterImage(configs=ConfigurationsImage(stored)), 1)
    assert "log.segment.bytes" in caplog.text
    assert (settings.log_segment_bytes, settings.log_retention_ms, settings.log_retention_bytes) == (2**30, 9, 77)
    assert controller_options(node_settings(), "c", ClusterImage(configs=ConfigurationsImage(stored))).topic_defaults[
        "retention.ms"
    ] == (
        "9",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


def test_topics_that_say_the_same_share_their_settings() -> None:
    def image(**retention_ms: str) -> ClusterImage:
        stored = {ConfigResource(TOPIC, name): {"retention.ms": value} for name, value in retention_ms.items()}
        return ClusterImage(configs=ConfigurationsImage(stored))

    cache, settings = TopicSettingsCache(), node_settings()
    before, after = image(a="5", b="5", c="6"), image(a="7", b="5")
    found = [cache.find(settings, before, topic) for topic in "abcd"]
    assert found == [effective_topic_settings(settings, before, topic) for topic in "abcd"]
    assert [each.retention_ms for each in found[:3]] == [5, 5, 6]
    assert found[0] is found[1]
    assert [cache.find(settings, after, topic).retention_ms for topic in "ab"] == [7, 5]
    changed = settings.with_live_changes({"log.segment.bytes": str(1 << 20)})
    assert cache.find(changed, before, "a") == effective_topic_settings(changed, before, "a") != found[0]
    assert cache.find(settings, before, "a") == found[0]


def test_the_old_request_replaces_what_was_set(node: AdminNode) -> None:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacing.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="t",
                configs=[replacing.AlterableConfig(name="flush.ms", value="9")],
            )
        ],
        validate_only=False,
    )
    (response,) = node.ask(alter_configs, request, 2).responses
    assert response.error_code == 0
    assert described(node, TOPIC, "t", "flush.ms").value == "9"
    assert described(node, TOPIC, "t", "retention.ms").config_source == ConfigSource.DEFAULT


def test_who_may_not_is_refused(node: AdminNode) -> None:
    node.authorizer = Deny(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
    assert describe(node, TOPIC, "t").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert describe(node, BROKER, "1").error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert change(node, TOPIC, "t", ("flush.ms", SET, "1")) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert change(node, LOGGER, "1", ("root", SET, "INFO")) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("barnabas.tests.of.levels")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_loggers_have_kafkas_names_too(node: AdminNode) -> None:
    request_log = logging.getLogger("barnabas.request")
    assert described(node, LOGGER, "1", "kafka.request.logger").value == "WARN"
    try:
        assert change(node, LOGGER, "1", ("kafka.request.logger", SET, "TRACE")) is ErrorCode.NONE
        assert request_log.level == TRACE
        assert described(node, LOGGER, "1", "barnabas.request").value == "TRACE"
        # As in Kafka's set-up, it does not follow the others: it would drown them.
        assert change(node, LOGGER, "1", ("kafka.request.logger", DELETE, None)) is ErrorCode.NONE
        assert described(node, LOGGER, "1", "kafka.request.logger").value == "WARN"
        both = (("kafka", SET, "DEBUG"), ("org.apache.kafka.controller", SET, "ERROR"))
        assert change(node, LOGGER, "1", *both) is ErrorCode.NONE
        assert logging.getLogger("barnabas.broker").getEffectiveLevel() == logging.DEBUG
        assert logging.getLogger("barnabas.controller").getEffectiveLevel() == logging.ERROR
        assert described(node, LOGGER, "1", "kafka.request.logger").value == "WARN"
    finally:
        request_log.setLevel(logging.WARNING)
        for name in ("barnabas", "barnabas.controller"):
            logging.getLogger(name).setLevel(logging.NOTSET)


def test_levels_of_loggers_are_told_and_changed(node: AdminNode, logger: logging.Logger) -> None:
    assert change(node, LOGGER, "1", (logger.name, SET, "DEBUG")) is ErrorCode.NONE
    assert logger.level == logging.DEBUG
    config = described(node, LOGGER, "1", logger.name)
    assert (config.value, config.config_source) == ("DEBUG", ConfigSource.DYNAMIC_BROKER_LOGGER)
    assert change(node, LOGGER, "1", (logger.name, SET, "LOUD")) is ErrorCode.INVALID_CONFIG
    assert change(node, LOGGER, "1", ("no.such.logger", SET, "INFO")) is ErrorCode.INVALID_CONFIG
    assert change(node, LOGGER, "1", (logger.name, APPEND, "INFO")) is ErrorCode.INVALID_REQUEST
    assert change(node, LOGGER, "2", (logger.name, SET, "INFO")) is ErrorCode.INVALID_REQUEST
    assert logger.level == logging.DEBUG
    assert change(node, LOGGER, "1", (logger.name, DELETE, None)) is ErrorCode.NONE
    assert logger.level == logging.NOTSET
    assert described(node, LOGGER, "1", "root").name == "root"


def test_ids_of_topics_do_not_matter_to_settings(node: AdminNode) -> None:
    """A topic that was deleted and created again begins without settings."""
    node.cluster.delete("t")
    node.cluster.create(new_topic("t"))
    node.metadata.image = node.cluster.image
    assert node.metadata.image.topics["t"].topic_id != Uuid.ZERO
    assert described(node, TOPIC, "t", "retention.ms").config_source == ConfigSource.DEFAULT


# Settings of what is not built


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "source", "default"),
    [
        (GROUP, "g", "consumer.session.timeout.ms", "50000", ConfigSource.GROUP, "45000"),
        (GROUP, "g", "share.isolation.level", "read_committed", ConfigSource.GROUP, "read_uncommitted"),
        (METRICS, "m", "interval.ms", "5000", ConfigSource.CLIENT_METRICS, "300000"),
        (BROKER, "1", "leader.replication.throttled.rate", "7", ConfigSource.DYNAMIC_BROKER, str(2**63 - 1)),
        (TOPIC, "t", "follower.replication.throttled.replicas", "0:1", ConfigSource.TOPIC, ""),
    ],
)
def test_settings_of_what_is_not_built_are_kept_with_a_warning(
    node: AdminNode,
    caplog: pytest.LogCaptureFixture,
    kind: int,
    name: str,
    key: str,
    value: str,
    source: ConfigSource,
    default: str,
) -> None:
    assert described(node, kind, name, key).value == default
    assert change(node, kind, name, (key, SET, value)) is ErrorCode.NONE
    [warning] = caplog.messages
    assert warning.endswith(f" {name!r}: kept, but nothing here follows it: {key}")
    kept = described(node, kind, name, key)
    assert (kept.value, kept.config_source, kept.read_only) == (value, source, False)
    assert change(node, kind, name, (key, DELETE, None)) is ErrorCode.NONE
    assert described(node, kind, name, key).value == default
    assert len(caplog.messages) == 1


def test_replaced_settings_of_a_group_are_kept_with_a_warning(
    node: AdminNode, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = replacing.AlterableConfig(name="consumer.session.timeout.ms", value="50000")
    resource = replacing.AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[wanted])
    request = replacing.AlterConfigsRequest(resources=[resource], validate_only=False)
    assert node.ask(alter_configs, request, 2).responses[0].error_code == ErrorCode.NONE
    assert described(node, GROUP, "g", "consumer.session.timeout.ms").value == "50000"
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "key", ["ssl.keystore.location", "sasl.mechanism.controller.protocol", "listener.security.protocol.map"]
)
def test_security_settings_stay_refused(node: AdminNode, key: str) -> None:
    assert change(node, BROKER, "1", (key, SET, "x")) is ErrorCode.INVALID_REQUEST


def test_resources_with_settings_are_listed(node: AdminNode) -> None:
    def listed(version: int, *types: int) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(types))
        answer = node.ask(list_config_resources, request, version)
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert listed(1, GROUP, METRICS) == listed(0) == []
    change(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    change(node, METRICS, "m", ("interval.ms", SET, "5000"))
    assert listed(0) == [(METRICS, "m")]
    assert listed(1, METRICS, GROUP, METRICS) == [(GROUP, "g"), (METRICS, "m")]
    assert {(GROUP, "g"), (METRICS, "m"), (BROKER, "1"), (LOGGER, "1"), (TOPIC, "t")} <= set(listed(1))
