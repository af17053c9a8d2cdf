"""Rules on running nodes: on the compiled ways of records, in sessions, and in requests that are forwarded.

People are told apart by where they come from: loopback has many addresses, and rules name hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, Resource
from barnabas.testing import EmbeddedBroker, EmbeddedCluster
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.envelope import EnvelopeRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.vote import VoteRequest
from tests.compat.duel import Side
from tests.compat.duel_data_cases import batch_of

_NODES, _PERSON, _ADMIN = "127.0.0.1", "127.0.0.2", "127.0.0.3"
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def creation(
    kind: Resource,
    name: str,
    host: str,
    operation: AclOperation = AclOperation.ALL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(side: Side, *creations: AclCreation) -> None:
    answer = side.call(CreateAclsRequest(creations=list(creations)), 3)
    assert [each.error_code for each in answer.results] == [0] * len(creations)


class ByAddress:
    """A plug-in: nodes and the administrator may do everything, others nothing."""

    def is_allowed(self, caller: Any, operation: AclOperation, resource_type: Resource, resource_name: str) -> bool:
        return caller.client_host in (_NODES, _ADMIN)


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    """From the first rules on, what none allows is denied: the administrator may do everything."""
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedBroker(overrides=overrides) as broker:
        broker.create_topic("t")
        broker.create_topic("hidden")
        kinds = {Resource.CLUSTER: CLUSTER_NAME, Resource.TOPIC: "*", Resource.GROUP: "*"}
        create(Side(broker.bootstrap_servers, _ADMIN), *(creation(kind, name, _ADMIN) for kind, name in kinds.items()))
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=3, overrides={"authorizer.class.name": f"{__name__}:ByAddress"}) as cluster:
        yield cluster


def produce(side: Side) -> int:
    data = PartitionProduceData(index=0, records=memoryview(batch_of()))
    topic = TopicProduceData(name="t", partition_data=[data])
    answer = side.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def fetch(side: Side, session: int = 0, epoch: int = -1, topics: Sequence[str] = ("t",)) -> Any:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    asked = [FetchTopic(topic=each, partitions=[wanted]) for each in topics]
    return side.call(
        FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch, topics=asked), 12
    )


def fetch_error(answer: Any) -> int:
    code: int = answer.responses[0].partitions[0].error_code
    return code


def test_compiled_ways_ask_the_authorizer_too(node: str) -> None:
    person, admin = Side(node, _PERSON), Side(node, _ADMIN)
    assert produce(admin) == 0
    assert produce(person) == _DENIED
    assert fetch_error(fetch(person)) == _DENIED
    create(admin, creation(Resource.TOPIC, "t", _PERSON, AclOperation.READ))
    assert fetch_error(fetch(person)) == 0
    assert produce(person) == _DENIED
    session = fetch(person, epoch=0).session_id
    assert session
    create(admin, creation(Resource.TOPIC, "t", _PERSON, AclOperation.READ, AclPermissionType.DENY))
    assert fetch_error(fetch(person, session, 1, ())) == _DENIED
    assert fetch_error(fetch(person)) == _DENIED
    assert fetch_error(fetch(admin)) == 0


def test_who_may_not_does_not_learn_what_there_is(node: str) -> None:
    person = Side(node, _PERSON)
    assert [each.partitions[0].error_code for each in fetch(person, topics=("hidden", "nothing")).responses] == [
        _DENIED,
        _DENIED,
    ]
    assert "hidden" not in [each.name for each in person.call(MetadataRequest(topics=None), 12).topics]
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="hidden")])
    assert person.call(asked, 12).topics[0].error_code == _DENIED


def test_what_is_forwarded_is_decided_by_who_asked(cluster: EmbeddedCluster) -> None:
    forwards = next(node for node in cluster.nodes if node != cluster.controller)
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    outcomes = [
        Side(cluster.bootstrap_of(forwards), who).call(request, 7).topics[0].error_code for who in (_PERSON, _ADMIN)
    ]
    assert outcomes == [_DENIED, 0]


def test_strangers_on_the_controllers_listener_are_no_nodes(cluster: EmbeddedCluster) -> None:
    active = cluster.controller
    [port] = {
        endpoint.port
        for controller in cluster._newest_image().controllers.values()
        if controller.controller_id == active
        for endpoint in controller.endpoints
    }
    stranger = Side(f"127.0.0.1:{port}", _PERSON)
    opened = stranger.call(EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=bytes(4)), 0)
    assert opened.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    vote = stranger.call(VoteRequest(cluster_id=None, voter_id=1, topics=[]), 2)
    assert vote.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
