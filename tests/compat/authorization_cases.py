"""What both brokers are asked to see who may do what: at least one request of each API that asks for a permission.

Where a request can name several things it names one that a rule may be about, another, and one that is not there.
"""

from __future__ import annotations

from typing import Any

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request
from barnabas.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tests.compat.duel import COMPACTED, TOPIC, UNKNOWN_ID, ZERO, Ask, Side
from tests.compat.duel_data_cases import batch_of

#: Deleted by whoever may, and there again for the next.
VICTIM = "victim"
GROUP, OTHER_GROUP, NO_GROUP = "group", "other", "nobody"
TXN_ID = "txn"
TOPICS = (TOPIC, COMPACTED, "nothing")
_LARGE = 1 << 20
_TOPIC, _BROKER, _METRICS, _GROUP = 2, 4, 16, 32
_SET = 0


def asking(*requests: Request) -> Ask:
    return lambda _side: list(requests)


def _id(side: Side, topic: str) -> Uuid:
    return side.topic_ids.get(topic, UNKNOWN_ID)


# Records


def _produce(records: bytes, *topics: str, transactional_id: str | None = None) -> Ask:
    def ask(side: Side) -> list[Request]:
        return [
            produce.ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    produce.TopicProduceData(
                        name=topic,
                        topic_id=_id(side, topic),
                        partition_data=[produce.PartitionProduceData(index=0, records=memoryview(records))],
                    )
                    for topic in topics
                ],
            )
        ]

    return ask


def _fetch(*topics: str, replica: int = -1, **others: Any) -> Ask:
    def ask(side: Side) -> list[Request]:
        wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
        asked = [fetch.FetchTopic(topic=each, topic_id=_id(side, each), partitions=[wanted]) for each in topics]
        settings: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "topics": asked} | others
        older = fetch.FetchRequest(replica_id=replica, **settings)
        if replica < 0:
            return [older]
        state = fetch.ReplicaState(replica_id=replica, replica_epoch=1)
        return [older, fetch.FetchRequest(replica_state=state, **settings)]

    return ask


_RECORDS: dict[str, Ask] = {
    "produce": _produce(batch_of(), *TOPICS),
    "produce: one": _produce(batch_of(), TOPIC),
    "produce: internal": _produce(batch_of(), "__consumer_offsets"),
    "produce: in a transaction": _produce(
        batch_of(producer_id=4711, producer_epoch=0, base_sequence=0, transactional=True),
        TOPIC,
        transactional_id=TXN_ID,
    ),
    "fetch": _fetch(*TOPICS),
    "fetch: one": _fetch(TOPIC),
    "fetch: another": _fetch(COMPACTED),
    "fetch: new session": _fetch(*TOPICS, session_id=0, session_epoch=0),
    "fetch: as a follower": _fetch("nothing", replica=9),
    "list offsets": asking(
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=each, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-2)]
                )
                for each in TOPICS
            ],
        )
    ),
    "offset for leader epoch": asking(
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=-2,
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic=each,
                    partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
                )
                for each in TOPICS
            ],
        )
    ),
    "delete records": asking(
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name=each, partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
                )
                for each in (TOPIC, "nothing", "__consumer_offsets")
            ],
            timeout_ms=1000,
        )
    ),
    "describe producers": asking(
        describe_producers.DescribeProducersRequest(
            topics=[
                describe_producers.TopicRequest(name=each, partition_indexes=[0]) for each in ("nothing", COMPACTED)
            ]
        )
    ),
}

# Topics and the cluster


def _metadata(*topics: str | None, create: bool = False) -> Ask:
    asked = [metadata.MetadataRequestTopic(name=each) for each in topics]
    settings: dict[str, Any] = {"topics": asked if topics else None, "allow_auto_topic_creation": create}
    return asking(
        metadata.MetadataRequest(
            include_cluster_authorized_operations=True, include_topic_authorized_operations=True, **settings
        ),
        metadata.MetadataRequest(include_topic_authorized_operations=True, **settings),
        metadata.MetadataRequest(**settings),
        metadata.MetadataRequest(topics=asked),
    )


def _metadata_by_id(side: Side) -> list[Request]:
    topics = [metadata.MetadataRequestTopic(topic_id=_id(side, each), name=None) for each in TOPICS]
    return [metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)]


def _delete_by_id(side: Side) -> list[Request]:
    topics = [delete_topics.DeleteTopicState(topic_id=_id(side, each)) for each in (VICTIM, "nothing")]
    return [delete_topics.DeleteTopicsRequest(topics=topics, timeout_ms=1000)]


def _creatable(name: str) -> Any:
    return create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])


_TOPICS: dict[str, Ask] = {
    "metadata": _metadata(*TOPICS, "__consumer_offsets"),
    "metadata: all": _metadata(),
    "metadata: to be created": _metadata(TOPIC, "nothing", "nothing-else", create=True),
    "metadata: by id": _metadata_by_id,
    "describe topic partitions": asking(
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=each) for each in TOPICS]
        )
    ),
    "describe topic partitions: all": asking(describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[])),
    "create topics": asking(
        create_topics.CreateTopicsRequest(
            topics=[_creatable(each) for each in (TOPIC, "new", "newer")], timeout_ms=1000, validate_only=True
        )
    ),
    "create partitions": asking(
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name=each, count=5, assignments=None) for each in TOPICS],
            timeout_ms=1000,
            validate_only=True,
        )
    ),
    "delete topics": asking(
        delete_topics.DeleteTopicsRequest(topic_names=[VICTIM, "nothing"], timeout_ms=1000),
        delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=each, topic_id=ZERO) for each in (VICTIM, "nothing")],
            timeout_ms=1000,
        ),
    ),
    "delete topics: by id": _delete_by_id,
    "describe cluster": asking(
        describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
    ),
    "describe log dirs": asking(
        describe_log_dirs.DescribeLogDirsRequest(
            topics=[describe_log_dirs.DescribableLogDirTopic(topic=TOPIC, partitions=[0])]
        )
    ),
    "describe quorum": asking(
        describe_quorum.DescribeQuorumRequest(
            topics=[
                describe_quorum.TopicData(
                    topic_name=TOPIC, partitions=[describe_quorum.PartitionData(partition_index=0)]
                )
            ]
        )
    ),
    "elect leaders": asking(
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic=each, partitions=[0]) for each in (TOPIC, "nothing")],
            timeout_ms=1000,
        )
    ),
    "list partition reassignments": asking(list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)),
    "unregister broker": asking(unregister_broker.UnregisterBrokerRequest(broker_id=77)),
    "describe users": asking(
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=[describe_user_scram_credentials.UserName(name="nobody")]
        )
    ),
    "alter users": asking(
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]
        )
    ),
    "alter quotas": asking(
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.EntryData(
                    entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="nobody")],
                    ops=[alter_client_quotas.OpData(key="request_percentage", value=100.0, remove=False)],
                )
            ],
            validate_only=True,
        )
    ),
    "describe quotas": asking(describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False)),
    "update features": asking(
        update_features.UpdateFeaturesRequest(
            feature_updates=[update_features.FeatureUpdateKey(feature="no.such", max_version_level=1)]
        )
    ),
}

# Settings


def _described(kind: int, *names: str, keys: tuple[str, ...] = ("segment.bytes",)) -> Ask:
    return asking(
        describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=list(keys)
                )
                for name in names
            ]
        )
    )


def _altered(kind: int, *names: str, setting: str, value: str) -> Ask:
    changed = incremental_alter_configs.AlterableConfig(name=setting, config_operation=_SET, value=value)
    return asking(
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=kind, resource_name=name, configs=[changed]
                )
                for name in names
            ],
            validate_only=True,
        )
    )


def _replaced(kind: int, *names: str, setting: str, value: str) -> Ask:
    changed = alter_configs.AlterableConfig(name=setting, value=value)
    return asking(
        alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[changed])
                for name in names
            ],
            validate_only=True,
        )
    )


_CONFIGS: dict[str, Ask] = {
    "describe configs: topics": _described(_TOPIC, *TOPICS),
    "describe configs: a broker": _described(_BROKER, "0", keys=("log.segment.bytes",)),
    "describe configs: a group": _described(_GROUP, GROUP, keys=("consumer.session.timeout.ms",)),
    "describe configs: client metrics": _described(_METRICS, "m", keys=("interval.ms",)),
    "alter configs: topics": _altered(_TOPIC, *TOPICS, setting="retention.ms", value="5"),
    "alter configs: a broker": _altered(_BROKER, "0", setting="log.cleaner.threads", value="2"),
    "alter configs: a group": _altered(_GROUP, GROUP, setting="consumer.session.timeout.ms", value="50000"),
    "alter configs: client metrics": _altered(_METRICS, "m", setting="interval.ms", value="5000"),
    "replace configs: topics": _replaced(_TOPIC, *TOPICS, setting="retention.ms", value="5"),
    "replace configs: a group": _replaced(_GROUP, GROUP, setting="consumer.session.timeout.ms", value="50000"),
    "list config resources": asking(
        list_config_resources.ListConfigResourcesRequest(resource_types=[4]),
        list_config_resources.ListConfigResourcesRequest(),
    ),
}

# ACLs


def _acls() -> dict[str, Ask]:
    entry: dict[str, Any] = {"principal": "User:somebody", "host": "*", "operation": 3, "permission_type": 3}
    filtered: dict[str, Any] = {
        "resource_type_filter": 2,
        "resource_name_filter": "of-somebody",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    resources = [(2, "of-somebody", 3), (2, "", 3), (4, "x", 3), (6, "token", 4)]

    def creating(kind: int, name: str, pattern: int = 3, **changes: Any) -> create_acls.AclCreation:
        return create_acls.AclCreation(
            resource_type=kind, resource_name=name, resource_pattern_type=pattern, **(entry | changes)
        )

    return {
        "create acls": asking(create_acls.CreateAclsRequest(creations=[creating(*each) for each in resources])),
        "create acls: users": asking(
            create_acls.CreateAclsRequest(
                creations=[
                    creating(7, "User:ann", operation=13, principal="User:b"),
                    creating(7, "User:ann", operation=3, principal="User:"),
                ]
            )
        ),
        "create acls: no principal": asking(
            create_acls.CreateAclsRequest(creations=[creating(2, "of-somebody", principal="nobody")])
        ),
        "describe acls": asking(describe_acls.DescribeAclsRequest(**filtered)),
        "describe acls: match": asking(
            describe_acls.DescribeAclsRequest(**(filtered | {"pattern_type_filter": 2, "principal_filter": "User:b"}))
        ),
        "delete acls": asking(
            delete_acls.DeleteAclsRequest(
                filters=[
                    delete_acls.DeleteAclsFilter(**filtered),
                    delete_acls.DeleteAclsFilter(**filtered),
                    delete_acls.DeleteAclsFilter(**(filtered | {"resource_name_filter": None, "host_filter": "h"})),
                    delete_acls.DeleteAclsFilter(
                        **(filtered | {"resource_type_filter": 7, "resource_name_filter": None})
                    ),
                ]
            )
        ),
    }


# Groups


def _commit(group: str, *topics: str) -> Ask:
    wanted = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")

    def ask(side: Side) -> list[Request]:
        asked = [
            offset_commit.OffsetCommitRequestTopic(name=each, topic_id=_id(side, each), partitions=[wanted])
            for each in topics
        ]
        return [offset_commit.OffsetCommitRequest(group_id=group, topics=asked)]

    return ask


def _committed(group: str, *topics: str) -> Ask:
    def ask(side: Side) -> list[Request]:
        older = [offset_fetch.OffsetFetchRequestTopic(name=each, partition_indexes=[0]) for each in topics]
        newer = [
            offset_fetch.OffsetFetchRequestTopics(name=each, topic_id=_id(side, each), partition_indexes=[0])
            for each in topics
        ]
        return [
            offset_fetch.OffsetFetchRequest(group_id=group, topics=older or None),
            offset_fetch.OffsetFetchRequest(
                groups=[
                    offset_fetch.OffsetFetchRequestGroup(group_id=each, topics=newer or None)
                    for each in (group, OTHER_GROUP)
                ]
            ),
        ]

    return ask


def _coordinator(kind: int, *keys: str) -> Ask:
    return asking(
        find_coordinator.FindCoordinatorRequest(key=keys[0], key_type=kind),
        find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys)),
    )


_GROUPS: dict[str, Ask] = {
    "find coordinator: groups": _coordinator(0, GROUP, OTHER_GROUP),
    "find coordinator: transactions": _coordinator(1, TXN_ID, "other"),
    "join group": asking(
        join_group.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="x",
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
    ),
    "sync group": asking(
        sync_group.SyncGroupRequest(
            group_id=GROUP,
            generation_id=1,
            member_id="x",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
    ),
    "heartbeat": asking(heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="x")),
    "leave group": asking(
        leave_group.LeaveGroupRequest(group_id=GROUP, member_id="x"),
        leave_group.LeaveGroupRequest(group_id=GROUP, members=[leave_group.MemberIdentity(member_id="x")]),
    ),
    "offset commit": _commit(GROUP, *TOPICS),
    "offset commit: one": _commit(GROUP, TOPIC),
    "offset fetch": _committed(GROUP, *TOPICS),
    "offset fetch: all": _committed(GROUP),
    "offset delete": asking(
        offset_delete.OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=each, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
                )
                for each in ("nothing", COMPACTED)
            ],
        )
    ),
    "describe groups": asking(
        describe_groups.DescribeGroupsRequest(
            groups=[GROUP, OTHER_GROUP, NO_GROUP], include_authorized_operations=True
        ),
        describe_groups.DescribeGroupsRequest(groups=[GROUP, OTHER_GROUP, NO_GROUP]),
    ),
    "list groups": asking(list_groups.ListGroupsRequest()),
    "delete groups": asking(delete_groups.DeleteGroupsRequest(groups_names=[NO_GROUP, "nobody-else"])),
}

# Transactions


def _add_partitions(*topics: str) -> Ask:
    named = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=each, partitions=[0]) for each in topics]
    return asking(
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TXN_ID,
            v3_and_below_producer_id=4711,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=named,
        ),
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            transactions=[
                add_partitions_to_txn.AddPartitionsToTxnTransaction(
                    transactional_id=TXN_ID, producer_id=4711, producer_epoch=0, topics=named
                )
            ]
        ),
    )


_TRANSACTIONS: dict[str, Ask] = {
    "init producer id": asking(
        init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    ),
    "init producer id: transactional": asking(
        init_producer_id.InitProducerIdRequest(transactional_id=TXN_ID, transaction_timeout_ms=60_000)
    ),
    "add partitions to txn": _add_partitions(*TOPICS),
    "add partitions to txn: one": _add_partitions(TOPIC),
    "add offsets to txn": asking(
        add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=TXN_ID, producer_id=4711, producer_epoch=0, group_id=GROUP
        )
    ),
    "txn offset commit": asking(
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=TXN_ID,
            group_id=GROUP,
            producer_id=4711,
            producer_epoch=0,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=each,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
                for each in TOPICS
            ],
        )
    ),
    "end txn": asking(
        end_txn.EndTxnRequest(transactional_id=TXN_ID, producer_id=4711, producer_epoch=0, committed=True)
    ),
    "write txn markers": asking(
        write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.WritableTxnMarker(
                    producer_id=4711,
                    producer_epoch=0,
                    transaction_result=True,
                    coordinator_epoch=0,
                    topics=[write_txn_markers.WritableTxnMarkerTopic(name="nothing", partition_indexes=[0])],
                )
            ]
        )
    ),
    "describe transactions": asking(
        describe_transactions.DescribeTransactionsRequest(transactional_ids=[TXN_ID, "no-such"])
    ),
    "list transactions": asking(list_transactions.ListTransactionsRequest(state_filters=[], producer_id_filters=[])),
}

# What is refused before anybody is asked who they are: groups of KIP-848 while group.version is 0, and what needs
# somebody who has logged in. `token_matrix` has those who have.

_REFUSED: dict[str, Ask] = {
    "consumer group heartbeat": asking(
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="AAAAAAAAAAAAAAAAAAAAAA",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
    ),
    "consumer group describe": asking(
        consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=[GROUP, OTHER_GROUP, NO_GROUP], include_authorized_operations=True
        )
    ),
    "create delegation token": asking(
        create_delegation_token.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    ),
    "renew delegation token": asking(
        renew_delegation_token.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1000)
    ),
    "expire delegation token": asking(
        expire_delegation_token.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1000)
    ),
    "describe delegation token": asking(describe_delegation_token.DescribeDelegationTokenRequest(owners=None)),
    "sasl handshake": asking(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN")),
    "sasl authenticate": asking(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0a\0b")),
}

CASES: dict[str, Ask] = {**_RECORDS, **_TOPICS, **_CONFIGS, **_acls(), **_GROUPS, **_TRANSACTIONS, **_REFUSED}
