"""Settings that change at run time, as the controller sees them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.configs import ConfigOperation
from barnabas.metadata.image import ClusterImage, ConfigResource, ConfigResourceType
from barnabas.metadata.options import ConfigSource, ControllerOptions, TopicDefault
from barnabas.wire.messages import alter_configs as replacing
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.metadata.clusters import CLUSTER_ID, Cluster, new_topic

SET, DELETE, APPEND, SUBTRACT = ConfigOperation

Change = tuple[str, int, str | None]


class Rules:
    """Brokers with one list and a dislike of the value "bad"."""

    def is_list(self, name: str) -> bool:
        return name == "log.cleanup.policy"

    def default_value(self, name: str) -> str:
        return "delete"

    def check_other(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        if "bad" in configs.values():
            raise BrokerError(ErrorCode.INVALID_CONFIG, "bad")

    def check(self, broker: str, changes: Mapping[str, str | None], image: ClusterImage) -> None:
        if "bad" in changes.values():
            raise BrokerError(ErrorCode.INVALID_REQUEST, "bad")


def alter(
    cluster: Cluster, *resources: tuple[int, str, list[Change]], validate_only: bool = False
) -> list[tuple[ErrorCode, str | None]]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )
    responses = cluster.do(cluster.controller.incremental_alter_configs(request, Rules())).responses
    assert [(each.resource_type, each.resource_name) for each in responses] == [each[:2] for each in resources]
    return [(ErrorCode.of(each.error_code), each.error_message) for each in responses]


def replace_all(cluster: Cluster, kind: int, name: str, configs: dict[str, str | None]) -> ErrorCode:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacing.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[replacing.AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
        ],
        validate_only=False,
    )
    return ErrorCode.of(cluster.do(cluster.controller.alter_configs(request, Rules())).responses[0].error_code)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=1)
    cluster.create(new_topic("t", configs={"retention.ms": "5000"}))
    return cluster


def of_topic(cluster: Cluster) -> Mapping[str, str]:
    return cluster.image.config(ConfigResourceType.TOPIC, "t")


OK = (ErrorCode.NONE, None)


def test_settings_are_set_and_taken_back_one_by_one(cluster: Cluster) -> None:
    assert alter(cluster, (2, "t", [("flush.ms", SET, "9"), ("retention.ms", DELETE, None)])) == [OK]
    assert of_topic(cluster) == {"flush.ms": "9"}
    assert alter(cluster, (2, "t", [("flush.ms", DELETE, None)])) == [OK]
    assert ConfigResource(2, "t") not in cluster.image.configs


def test_lists_grow_and_shrink_from_their_default_on(cluster: Cluster) -> None:
    policy = "cleanup.policy"
    assert alter(cluster, (2, "t", [(policy, APPEND, "compact")])) == [OK]
    assert of_topic(cluster)[policy] == "delete,compact"
    assert alter(cluster, (2, "t", [(policy, APPEND, "compact")])) == [OK]
    assert of_topic(cluster)[policy] == "delete,compact"
    assert alter(cluster, (2, "t", [(policy, SUBTRACT, "delete, unheard-of")])) == [OK]
    assert of_topic(cluster)[policy] == "compact"
    assert alter(cluster, (2, "t", [(policy, SUBTRACT, "compact")])) == [OK]
    assert of_topic(cluster)[policy] == ""


def test_a_list_that_the_node_sets_is_the_one_that_grows() -> None:
    defaults = {"cleanup.policy": TopicDefault("compact", ConfigSource.STATIC_BROKER)}
    cluster = Cluster(1, options=ControllerOptions(cluster_id=CLUSTER_ID, topic_defaults=defaults))
    cluster.create(new_topic("t"))
    assert alter(cluster, (2, "t", [("cleanup.policy", APPEND, "delete")])) == [OK]
    assert of_topic(cluster)["cleanup.policy"] == "compact,delete"


def test_a_value_that_stays_is_not_written_again_unless_it_is_a_brokers(cluster: Cluster) -> None:
    before = len(cluster.log)
    assert alter(cluster, (2, "t", [("retention.ms", SET, "5000"), ("flush.ms", DELETE, None)])) == [OK]
    assert len(cluster.log) == before
    alter(cluster, (4, "1", [("log.retention.ms", SET, "1")]))
    assert alter(cluster, (4, "1", [("log.retention.ms", SET, "1")])) == [OK]
    assert len(cluster.log) == before + 2


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (2, "nope", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a b", [("retention.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (2, "", [("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (2, "__cluster_metadata", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "t", [("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        (2, "t", [("foo", SET, "1")], ErrorCode.INVALID_CONFIG),
        (2, "t", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (2, "t", [("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        (2, "t", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (2, "t", [("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        (2, "t", [("cleanup.policy", APPEND, "shred")], ErrorCode.INVALID_CONFIG),
        (2, "t", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        (2, "t", [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        (2, "t", [("flush.ms", SET, "1"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (
            2,
            "t",
            [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
            ErrorCode.INVALID_CONFIG,
        ),
        (4, "one", [("log.retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (4, "7", [("log.retention.ms", SET, "1")], ErrorCode.BROKER_ID_NOT_REGISTERED),
        (4, "1", [("log.retention.ms", SET, "bad")], ErrorCode.INVALID_REQUEST),
        (4, "1", [("log.retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (8, "1", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST),
        (16, "", [("interval.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (16, "m", [("interval.ms", SET, "bad")], ErrorCode.INVALID_CONFIG),
        (32, "", [("consumer.session.timeout.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (32, "g", [("consumer.session.timeout.ms", SET, "bad")], ErrorCode.INVALID_CONFIG),
        (0, "x", [("foo", SET, "1")], ErrorCode.INVALID_REQUEST),
        (99, "x", [("foo", SET, "1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    cluster: Cluster, kind: int, name: str, changes: list[Change], code: ErrorCode
) -> None:
    before = cluster.image
    ((refused, message),) = alter(cluster, (kind, name, changes))
    assert refused is code
    assert message
    assert cluster.image == before


def test_a_resource_that_stands_twice_is_refused_while_others_change(cluster: Cluster) -> None:
    cluster.create(new_topic("u"))
    first, second, other = alter(
        cluster,
        (2, "t", [("flush.ms", SET, "1")]),
        (2, "t", [("flush.ms", SET, "2")]),
        (2, "u", [("flush.ms", SET, "3")]),
    )
    assert first[0] is second[0] is ErrorCode.INVALID_REQUEST
    assert other == OK
    assert of_topic(cluster) == {"retention.ms": "5000"}
    assert cluster.image.config(ConfigResourceType.TOPIC, "u") == {"flush.ms": "3"}


def test_to_validate_changes_nothing(cluster: Cluster) -> None:
    before = cluster.image
    assert alter(cluster, (2, "t", [("retention.ms", SET, "99")]), validate_only=True) == [OK]
    assert alter(cluster, (2, "t", [("retention.ms", SET, "q")]), validate_only=True)[0][0] is ErrorCode.INVALID_CONFIG
    assert cluster.image == before


def test_brokers_have_settings_of_their_own_and_in_common(cluster: Cluster) -> None:
    assert alter(
        cluster, (4, "1", [("log.retention.ms", SET, "1")]), (4, "", [("log.cleanup.policy", APPEND, "compact")])
    ) == [OK, OK]
    assert cluster.image.config(ConfigResourceType.BROKER, "1") == {"log.retention.ms": "1"}
    assert cluster.image.config(ConfigResourceType.BROKER, "") == {"log.cleanup.policy": "delete,compact"}


def test_a_value_must_fit_into_a_record(cluster: Cluster) -> None:
    replicas = ",".join(f"{number}:1" for number in range(4000))
    name = "leader.replication.throttled.replicas"
    assert alter(cluster, (2, "t", [(name, SET, replicas)])) == [OK]
    more = ",".join(f"{number}:2" for number in range(4000))
    assert alter(cluster, (2, "t", [(name, APPEND, more)]))[0][0] is ErrorCode.INVALID_CONFIG


def test_the_old_request_replaces_everything(cluster: Cluster) -> None:
    assert replace_all(cluster, 2, "t", {"flush.ms": "8"}) is ErrorCode.NONE
    assert of_topic(cluster) == {"flush.ms": "8"}
    assert replace_all(cluster, 2, "t", {"flush.ms": None}) is ErrorCode.INVALID_REQUEST
    assert replace_all(cluster, 2, "t", {"foo": "1"}) is ErrorCode.INVALID_CONFIG
    assert replace_all(cluster, 8, "1", {"root": "INFO"}) is ErrorCode.INVALID_REQUEST
    assert replace_all(cluster, 2, "nope", {}) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert of_topic(cluster) == {"flush.ms": "8"}
    assert replace_all(cluster, 2, "t", {}) is ErrorCode.NONE
    assert of_topic(cluster) == {}


def test_who_may_not_change_settings_does_not(cluster: Cluster) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
            for kind, name in ((2, "t"), (4, "1"))
        ],
        validate_only=False,
    )
    outcome = cluster.controller.incremental_alter_configs(request, Rules(), may_alter=lambda resource: False)
    assert [each.error_code for each in outcome.response.responses] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ]
