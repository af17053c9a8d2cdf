"""What a cluster does not allow, or does not have, is told in a sentence that says what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas import Admin, NewTopic, Producer, UnsupportedRequestError
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.client.admin.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from barnabas.client.errors import KeyedError
from barnabas.spark.core.exactly_once.refusals import DeliveryError
from barnabas.spark.sink.writing import WriteError
from barnabas.testing import EmbeddedBroker
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer
from tests.spark.exactly_once.real_batches import RealBatches

PREFIX = "barnabas-spark."


def test_a_timeout_that_is_longer_than_the_brokers_allow(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> None:
    batches = RealBatches(broker.bootstrap_servers, new_topic(), timeout_ms=10_000_000)
    with pytest.raises(WriteError, match=r"no longer than transaction\.max\..* 10000000, and that 900000\."):
        batches.write(0, [["a"]])


def test_a_cluster_without_transactions(
    broker: EmbeddedBroker, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise UnsupportedRequestError(broker.bootstrap_servers, "it knows no InitProducerId")

    monkeypatch.setattr(Producer, "init_transactions", refuse)
    batches = RealBatches(broker.bootstrap_servers, new_topic())
    with pytest.raises(WriteError, match=r"no InitProducerId\. Brokers of Apache Kafka have what is needed from"):
        batches.write(0, [["a"]])


def test_a_transaction_of_a_task_that_is_gone_and_still_open(
    broker: EmbeddedBroker, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = RealBatches(broker.bootstrap_servers, new_topic())
    written = batches.write(0, [["a"]])

    def hidden(*arguments: object, **more: object) -> None:
        raise BrokerError(ErrorCode.UNSTABLE_OFFSET_COMMIT)

    with monkeypatch.context() as patched:
        patched.setattr(Admin, "list_group_offsets", hidden)
        with pytest.raises(
            DeliveryError,
            match=r"which hides what was committed\. It ends with its time-out, kafka",
        ):
            batches.commit(0, written)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka that forbids what it is told to, and nothing else."""
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaServer(tmp_path_factory.mktemp("kafka"), overrides) as server:
        with Admin(bootstrap_servers=server.bootstrap) as admin:
            admin.create_topics([NewTopic("out", 1)])
        # With the control topic, the topics of groups and of transactions.
        batches = RealBatches(server.bootstrap, "out")
        batches.commit(0, batches.write(0, [["a"]]))
        yield server.bootstrap


#: What is forbidden, and what is said of it: by a task, and by the driver if tasks are not concerned.
_FORBIDDEN = [
    (
        ResourceType.TRANSACTIONAL_ID,
        PREFIX,
        AclOperation.WRITE,
        WriteError,
        f"transactional ids.*{PREFIX}",
    ),
    (
        ResourceType.GROUP,
        PREFIX,
        AclOperation.READ,
        WriteError,
        f"Read on groups.*{PREFIX}",
    ),
    (
        ResourceType.TOPIC,
        "barnabas-spark-control",
        AclOperation.WRITE,
        DeliveryError,
        "Read, Write and Describe on the control topic 'barnabas-spark-control'",
    ),
    (
        ResourceType.TOPIC,
        "barnabas-spark-control",
        AclOperation.DESCRIBE,
        WriteError,
        "Read, Write and Describe on the control topic 'barnabas-spark-control'",
    ),
]


@needs_kafka()
@pytest.mark.parametrize(
    ("kind", "name", "operation", "error", "told"), _FORBIDDEN, ids=["ids", "groups", "write", "see"]
)
def test_what_is_forbidden(
    guarded: str, kind: ResourceType, name: str, operation: AclOperation, error: type[BarnabasError], told: str
) -> None:
    batches = RealBatches(guarded, "out")
    batches.commit(0, batches.write(0, [["0"]]))

    def rule(operation: AclOperation, permission: AclPermission) -> Acl:
        return Acl(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.PREFIXED,
            principal="User:ANONYMOUS",
            operation=operation,
            permission=permission,
        )

    with Admin(bootstrap_servers=guarded) as admin:
        # Where there is a rule, what none allows is forbidden; tasks commit their receipts as readers of the topic.
        admin.create_acls([rule(operation, AclPermission.DENY)])
        if operation is AclOperation.WRITE and kind is ResourceType.TOPIC:
            admin.create_acls([rule(AclOperation.READ, AclPermission.ALLOW)])
        try:
            with pytest.raises(error, match=told) as raised:
                batches.commit(1, batches.write(1, [["1"]]))
            assert "\n" not in str(raised.value)
        finally:
            admin.delete_acls([AclFilter(resource_type=kind, resource_name=name, pattern_type=PatternType.ANY)])
    # Allowed again, the batch is written.
    batches.restart()
    batches.commit(1, batches.write(1, [["1"]]))
    batches.left.close()


def test_a_cluster_of_which_some_brokers_are_old_tells_what_the_others_know(
    broker: EmbeddedBroker, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a rolling upgrade: none of the old ones knows of lists, nor all of the newer ones of patterns."""
    batches = RealBatches(broker.bootstrap_servers, new_topic())
    batches.commit(0, batches.write(0, [["a"]]))
    left = batches.write_task(1, 5, ["gone"], attempt=7)
    assert left.handle is not None
    batches.restart()
    listed = Admin.list_transactions
    old = UnsupportedRequestError("old:9092", "it knows no such request")

    def partly(self: Admin, *, pattern: str | None = None, **filters: Any) -> None:
        told = {} if pattern is not None else {1: listed(self, **filters)}
        raise KeyedError({2: old}, told)

    monkeypatch.setattr(Admin, "list_transactions", partly)
    batches.commit(1, batches.write(1, [["b"]]))
    assert batches.rows() == ["a", "b"], "what the dead driver left is found, and aborted"
    other = BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def refused(*arguments: object, **filters: object) -> None:
        raise KeyedError({1: other, 2: old}, {})

    monkeypatch.setattr(Admin, "list_transactions", refused)
    with pytest.raises(BarnabasError, match="CLUSTER_AUTHORIZATION_FAILED"):
        batches.commit(2, batches.write(2, [["c"]]))
