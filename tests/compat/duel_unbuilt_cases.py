"""What both brokers are asked about parts that our node has not: access rules, tokens, moves, groups of KIP-848."""

from __future__ import annotations

from typing import Any

from barnabas.wire.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_delegation_token,
    describe_producers,
    expire_delegation_token,
    list_config_resources,
    list_partition_reassignments,
    renew_delegation_token,
    unregister_broker,
)
from tests.compat.duel import COMPACTED, TOPIC, Ask

_ANY, _ALLOW, _MATCH, _LITERAL = 1, 3, 2, 3


def _describe_acls(resource_type: int = _ANY, operation: int = _ANY) -> Ask:
    return lambda _side: [
        describe_acls.DescribeAclsRequest(
            resource_type_filter=resource_type,
            resource_name_filter=None,
            pattern_type_filter=_MATCH,
            principal_filter=None,
            host_filter=None,
            operation=operation,
            permission_type=_ANY,
        )
    ]


def _create_acls(*names: str) -> Ask:
    wanted = [
        create_acls.AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=_LITERAL,
            principal="User:anna",
            host="*",
            operation=3,
            permission_type=_ALLOW,
        )
        for name in names
    ]
    return lambda _side: [create_acls.CreateAclsRequest(creations=wanted)]


def _delete_acls(*names: str | None) -> Ask:
    wanted = [
        delete_acls.DeleteAclsFilter(
            resource_type_filter=2,
            resource_name_filter=name,
            pattern_type_filter=_LITERAL,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        for name in names
    ]
    return lambda _side: [delete_acls.DeleteAclsRequest(filters=wanted)]


def _reassignments(*topics: tuple[str, list[int]], everything: bool = False) -> Ask:
    wanted = [
        list_partition_reassignments.ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
        for name, numbers in topics
    ]
    return lambda _side: [
        list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None if everything else wanted)
    ]


def _producers(*topics: tuple[str, list[int]]) -> Ask:
    wanted = [describe_producers.TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics]
    return lambda _side: [describe_producers.DescribeProducersRequest(topics=wanted)]


def _heartbeat(group: str = "new", epoch: int = 0, **others: Any) -> Ask:
    settings: dict[str, Any] = {
        "rebalance_timeout_ms": 45_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
        "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
    }
    return lambda _side: [
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=group, member_epoch=epoch, **(settings | others)
        )
    ]


def _describe_groups(*groups: str, operations: bool = False) -> Ask:
    return lambda _side: [
        consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=list(groups), include_authorized_operations=operations
        )
    ]


def _resources(*types: int) -> Ask:
    return lambda _side: [list_config_resources.ListConfigResourcesRequest(resource_types=list(types))]


def _unregister(broker: int) -> Ask:
    return lambda _side: [unregister_broker.UnregisterBrokerRequest(broker_id=broker)]


UNBUILT: dict[str, Ask] = {
    "acls: all": _describe_acls(),
    "acls: of topics": _describe_acls(resource_type=2),
    "acls: create": _create_acls("a", "b", "a"),
    "acls: create none": _create_acls(),
    "acls: create without a name": _create_acls(""),
    "acls: delete": _delete_acls("a", None, "a"),
    "acls: delete none": _delete_acls(),
    "reassignments: all": _reassignments(everything=True),
    "reassignments: of none": _reassignments(),
    "reassignments: of some": _reassignments((TOPIC, [0, 1, 9]), ("nothing", [0]), (TOPIC, [0])),
    "producers": _producers((COMPACTED, [0])),
    "producers: of nobody": _producers((TOPIC, [0])),
    "producers: unknown partitions": _producers((TOPIC, [9, -1]), ("nothing", [0]), ("sp ace", [0])),
    "producers: none": _producers(),
    "producers: no partitions": _producers((TOPIC, [])),
    "new groups: join": _heartbeat(),
    "new groups: heartbeat": _heartbeat(epoch=7, subscribed_topic_names=None, topic_partitions=None),
    "new groups: leave": _heartbeat(epoch=-1),
    "new groups: no name": _heartbeat(group=""),
    "new groups: of a classic group": _heartbeat(group="commits"),
    "new groups: describe": _describe_groups("new", "commits", ""),
    "new groups: describe none": _describe_groups(operations=True),
    "config resources": _resources(),
    "config resources: topics": _resources(2),
    "config resources: brokers": _resources(4),
    "config resources: loggers": _resources(8),
    "config resources: client metrics": _resources(16),
    "config resources: groups": _resources(32),
    "config resources: some, twice": _resources(2, 4, 2),
    "config resources: unknown": _resources(0),
    "config resources: unknown and known": _resources(2, 99),
    "unregister: unknown": _unregister(77),
    "unregister: negative": _unregister(-1),
    "token: create": lambda _side: [
        create_delegation_token.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
    ],
    "token: create for another": lambda _side: [
        create_delegation_token.CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="anna",
            renewers=[create_delegation_token.CreatableRenewers(principal_type="User", principal_name="b")],
            max_lifetime_ms=1000,
        ),
    ],
    "token: renew": lambda _side: [
        renew_delegation_token.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1000),
    ],
    "token: expire": lambda _side: [
        expire_delegation_token.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1000),
    ],
    "token: describe all": lambda _side: [describe_delegation_token.DescribeDelegationTokenRequest(owners=None)],
    "token: describe none": lambda _side: [describe_delegation_token.DescribeDelegationTokenRequest(owners=[])],
}
