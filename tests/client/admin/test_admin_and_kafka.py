"""The admin against Apache Kafka itself, and beside confluent-kafka's admin where that one offers the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    Admin,
    AlterConfig,
    BrokerReplica,
    ConfigOp,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    Endpoint,
    FeatureUpdate,
    FeatureUpgrade,
    GroupState,
    GroupType,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    PatternType,
    Principal,
    QuotaEntity,
    QuotaFilter,
    QuotaName,
    ResourceType,
    ScramCredentialInfo,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    TransactionState,
)
from barnabas.client.errors import KeyedError
from barnabas.net.errors import UnsupportedRequestError
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = needs_kafka()

TIMEOUT_S = 30.0
NEWEST_METADATA = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    folder = tmp_path_factory.mktemp("kafka")
    overrides = {
        "log.dirs": f"{folder}/data,{folder}/other",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    with KafkaServer(folder, overrides) as running:
        # What newer groups need; the rest of the tests do not mind.
        call(running, prepare)
        yield running


async def prepare(admin: Admin) -> None:
    await admin.update_features({"metadata.version": NEWEST_METADATA, "group.version": 1})
    await soon(lambda: level(admin, "group.version"), 1)


def call(server: KafkaServer, story: Callable[[Admin], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        async with Admin(bootstrap_servers=server.bootstrap, default_api_timeout_ms=20_000) as admin:
            return await story(admin)

    return asyncio.run(whole())


@pytest.fixture(scope="module")
def theirs(server: KafkaServer) -> Any:
    """The admin of confluent-kafka. Its answers die with it, so it lives as long as the module."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})


async def soon(ask: Callable[[], Coroutine[Any, Any, Any]], expected: Any) -> None:
    """Wait for an answer: a broker hears a little later than its controller of what was changed."""
    answer = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while answer != expected:
                answer = await ask()
    except TimeoutError:
        assert answer == expected


async def level(admin: Admin, feature: str) -> int | None:
    found = (await admin.describe_features()).finalized.get(feature)
    return None if found is None else found.max_level


def refused(server: KafkaServer, story: Callable[[Admin], Coroutine[Any, Any, Any]]) -> ErrorCode:
    with pytest.raises(BrokerError) as raised:
        call(server, story)
    return raised.value.code


def produce(server: KafkaServer, topic: str, count: int = 3) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=1000 * (number + 1))
    assert producer.flush(TIMEOUT_S) == 0


def test_topics_live_and_grow_and_die(server: KafkaServer, theirs: Any) -> None:
    async def story(admin: Admin) -> None:
        given = [
            NewTopic("one", 2, 1, configs={"retention.ms": 3_600_000}),
            NewTopic("two"),
            NewTopic("hand", assignments={0: [1]}),
        ]
        made = await admin.create_topics(given)
        assert made["one"].num_partitions == 2
        assert made["one"].configs is not None
        assert made["one"].configs["retention.ms"].value == "3600000"
        described = await admin.describe_topics(["one", "hand"], include_authorized_operations=True)
        assert [each.partition for each in described["one"].partitions] == [0, 1]
        assert AclOperation.DELETE in (described["one"].authorized_operations or ())
        by_id = await admin.describe_topics([made["one"].topic_id])
        assert by_id[made["one"].topic_id].name == "one"
        await admin.create_partitions({"one": NewPartitions(3, [[1]]), "two": 4})
        with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
            await admin.create_partitions({"one": 2})
        assert {"one", "two", "hand"} <= (await admin.list_topics()).keys()
        with pytest.raises(KeyedError) as raised:
            await admin.create_topics([NewTopic("one"), NewTopic("three"), NewTopic("a/b")])
        assert {name: each.code for name, each in raised.value.errors.items()} == {
            "one": ErrorCode.TOPIC_ALREADY_EXISTS,
            "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        await admin.delete_topics(["hand", (await admin.describe_topics(["three"]))["three"].topic_id])
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.delete_topics(["hand"])

    call(server, story)
    listed = call(server, lambda admin: admin.describe_topics(["one", "two"]))
    seen = theirs.list_topics(timeout=TIMEOUT_S)
    assert {name: len(each.partitions) for name, each in listed.items()} == {"one": 3, "two": 4}
    assert {name: len(seen.topics[name].partitions) for name in listed} == {"one": 3, "two": 4}
    assert [node.id for node in seen.brokers.values()] == [1]


def test_settings_are_as_confluent_sees_them(server: KafkaServer, theirs: Any) -> None:
    from confluent_kafka.admin import ConfigResource as TheirResource

    topic, broker = ConfigResource(ConfigResourceType.TOPIC, "settings"), ConfigResource(ConfigResourceType.BROKER, "1")

    async def story(admin: Admin) -> Any:
        await admin.create_topics([NewTopic("settings", 1, 1)])
        await admin.alter_configs(
            {
                topic: [AlterConfig("retention.ms", 5000), AlterConfig("cleanup.policy", "compact", ConfigOp.APPEND)],
                broker: [AlterConfig("log.cleaner.threads", 2)],
            }
        )
        with pytest.raises(BrokerError, match="INVALID_CONFIG"):
            await admin.alter_configs({topic: [AlterConfig("retention.ms", "soon")]})
        await admin.alter_configs({topic: [AlterConfig("retention.ms", 7)]}, validate_only=True)

        async def threads() -> str | None:
            found = await admin.describe_configs([broker], names=["log.cleaner.threads"])
            return found[broker]["log.cleaner.threads"].value

        await soon(threads, "2")
        return await admin.describe_configs([topic, broker], include_synonyms=True, include_documentation=True)

    ours = call(server, story)
    asked = [TheirResource("topic", "settings"), TheirResource("broker", "1")]
    for resource, future in zip((topic, broker), theirs.describe_configs(asked).values(), strict=True):
        other = future.result(TIMEOUT_S)
        assert {name: (each.value, each.source.value, each.is_read_only) for name, each in ours[resource].items()} == {
            name: (each.value, each.source, each.is_read_only) for name, each in other.items()
        }
    retention = ours[topic]["retention.ms"]
    assert (retention.value, retention.source, retention.is_default) == (
        "5000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        False,
    )
    assert retention.documentation
    policy = ours[topic]["cleanup.policy"]
    assert policy.value == "delete,compact"
    assert [(each.name, each.value, each.source) for each in policy.synonyms] == [
        ("cleanup.policy", "delete,compact", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG),
    ]
    resources = call(server, lambda admin: admin.list_config_resources([ConfigResourceType.TOPIC]))
    assert topic in resources


def test_offsets_and_deleted_records(server: KafkaServer) -> None:
    place, absent = TopicPartition("records", 0), TopicPartition("records", 7)

    async def story(admin: Admin) -> None:
        async def offset(spec: OffsetSpec) -> tuple[int, int]:
            listed = (await admin.list_offsets({place: spec}))[place]
            return listed.offset, listed.timestamp_ms

        assert await offset(OffsetSpec.earliest()) == (0, -1)
        assert await offset(OffsetSpec.latest()) == (3, -1)
        assert await offset(OffsetSpec.max_timestamp()) == (2, 3000)
        assert await offset(OffsetSpec.at(1500)) == (1, 2000)
        assert await offset(OffsetSpec.at(9000)) == (-1, -1)
        assert await offset(OffsetSpec.earliest_local()) == (0, -1)
        assert await offset(OffsetSpec.latest_tiered()) == (-1, -1)
        assert await admin.delete_records({place: 2}) == {place: 2}
        assert await offset(OffsetSpec.earliest()) == (2, -1)
        with pytest.raises(KeyedError, match="OFFSET_OUT_OF_RANGE") as raised:
            await admin.delete_records({place: 99, absent: 1})
        assert list(raised.value.errors) == [place, absent]
        assert await admin.delete_records({place: -1}) == {place: 3}

    call(server, lambda admin: admin.create_topics([NewTopic("records", 1, 1)]))
    produce(server, "records")
    call(server, story)


def joined(server: KafkaServer, group_id: str, topic: str, **settings: Any) -> Any:
    """A consumer of confluent-kafka that has partitions."""
    given = {"bootstrap.servers": server.bootstrap, "group.id": group_id, "log_level": 0, "client.id": "theirs"}
    consumer = confluent_kafka.Consumer(given | {name.replace("_", "."): value for name, value in settings.items()})
    consumer.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline, "the consumer got no partitions"
        consumer.poll(0.05)
    return consumer


def test_classic_groups_and_their_offsets(server: KafkaServer, theirs: Any) -> None:
    place, other = TopicPartition("read", 0), TopicPartition("read", 1)
    call(server, lambda admin: admin.create_topics([NewTopic("read", 2, 1)]))
    consumer = joined(server, "classic", "read", group_instance_id="static-1", session_timeout_ms=10_000)

    async def with_member(admin: Admin) -> Any:
        described = (await admin.describe_groups(["classic"], include_authorized_operations=True))["classic"]
        with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
            await admin.delete_groups(["classic"])
        with pytest.raises(BrokerError, match="the group has members"):
            await admin.alter_group_offsets("classic", {place: 5})
        listed = {each.group_id: each for each in await admin.list_groups(types=["classic"], states=["Stable"])}
        assert (listed["classic"].state, listed["classic"].type) == (GroupState.STABLE, GroupType.CLASSIC)
        return described

    ours = call(server, with_member)
    other_one = theirs.describe_consumer_groups(["classic"])["classic"].result(TIMEOUT_S)
    (member,), (their_member,) = ours.members, other_one.members
    assert (ours.state, ours.type, ours.protocol, ours.protocol_type) == ("Stable", "Classic", "range", "consumer")
    assert (ours.protocol, ours.coordinator.node_id) == (other_one.partition_assignor, other_one.coordinator.id)
    assert (member.member_id, member.group_instance_id, member.client_id, member.host) == (
        their_member.member_id,
        "static-1",
        "theirs",
        their_member.host,
    )
    assert member.assignment == (place, other)
    assert member.subscribed_topics == ("read",)
    assert AclOperation.DELETE in ours.authorized_operations

    async def without(admin: Admin) -> None:
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            await admin.remove_group_members("classic", instance_ids=["nobody"])
        await admin.remove_group_members("classic", reason="the test is over")
        assert (await admin.describe_groups(["classic"]))["classic"].state is GroupState.EMPTY
        await admin.alter_group_offsets("classic", {place: OffsetAndMetadata(5, "note", 0), other: 6})
        committed = {place: OffsetAndMetadata(5, "note", 0), other: OffsetAndMetadata(6)}
        assert await admin.list_group_offsets("classic", require_stable=True) == committed
        both = await admin.list_group_offsets({"classic": [other], "never": None})
        assert both == {"classic": {other: OffsetAndMetadata(6)}, "never": {}}
        await admin.delete_group_offsets("classic", [other])
        assert list(await admin.list_group_offsets("classic")) == [place]
        await admin.delete_groups(["classic"])
        with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
            await admin.delete_groups(["classic"])

    consumer.close()  # a static member stays when it closes
    call(server, without)


def test_groups_of_the_new_protocol(server: KafkaServer) -> None:
    call(server, lambda admin: admin.create_topics([NewTopic("new-read", 2, 1)]))
    consumer = joined(server, "newer", "new-read", group_protocol="consumer")
    try:
        described = call(server, lambda admin: admin.describe_groups(["newer", "newer"]))["newer"]
        listed = call(server, lambda admin: admin.list_groups(types=[GroupType.CONSUMER]))
    finally:
        consumer.close()
    assert (described.type, described.state, described.protocol) == (GroupType.CONSUMER, GroupState.STABLE, "uniform")
    (member,) = described.members
    assert member.assignment == (TopicPartition("new-read", 0), TopicPartition("new-read", 1))
    assert member.target_assignment == member.assignment
    assert member.is_classic is False
    assert described.group_epoch >= 1
    assert [each.group_id for each in listed] == ["newer"]


def test_offsets_of_share_groups(server: KafkaServer) -> None:
    place = TopicPartition("shared", 0)

    async def story(admin: Admin) -> None:
        await admin.create_topics([NewTopic("shared", 1, 1)])
        with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
            await admin.alter_share_group_offsets("sharers", {place: 0})
        await admin.update_features({"share.version": 1})
        await soon(lambda: level(admin, "share.version"), 1)
        await admin.alter_share_group_offsets("sharers", {place: 0})
        offsets = await admin.list_share_group_offsets({"sharers": None})
        assert offsets["sharers"][place].start_offset == 0
        described = (await admin.describe_groups(["sharers"]))["sharers"]
        assert (described.type, described.state) == (GroupType.SHARE, GroupState.EMPTY)
        await admin.delete_share_group_offsets("sharers", ["shared"])
        assert await admin.list_share_group_offsets({"sharers": None}) == {"sharers": {}}

    call(server, story)


def test_access_rules(server: KafkaServer, theirs: Any) -> None:
    read = Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="orders-",
        pattern_type=PatternType.PREFIXED,
        principal="User:ann",
        operation=AclOperation.READ,
    )
    deny = Acl(
        resource_type=ResourceType.GROUP,
        resource_name="*",
        principal="User:eve",
        host="10.0.0.1",
        operation=AclOperation.ALL,
        permission=AclPermission.DENY,
    )

    async def story(admin: Admin) -> None:
        await admin.create_acls([read, deny])
        await admin.create_acls([read])
        matching = AclFilter(
            resource_type=ResourceType.TOPIC, resource_name="orders-eu", pattern_type=PatternType.MATCH
        )
        await soon(lambda: admin.describe_acls(matching), (read,))
        assert set(await admin.describe_acls()) == {read, deny}
        with pytest.raises(ValueError, match="is for filters"):
            await admin.create_acls([replace(read, operation=AclOperation.ANY)])

    call(server, story)
    from confluent_kafka.admin import AclBindingFilter, AclPermissionType, ResourcePatternType
    from confluent_kafka.admin import AclOperation as TheirOperation
    from confluent_kafka.admin import ResourceType as TheirType

    any_of = AclBindingFilter(
        TheirType.ANY, None, ResourcePatternType.ANY, None, None, TheirOperation.ANY, AclPermissionType.ANY
    )
    seen = theirs.describe_acls(any_of).result(TIMEOUT_S)
    assert {(each.name, each.principal, each.host, each.operation.name) for each in seen} == {
        ("orders-", "User:ann", "*", "READ"),
        ("*", "User:eve", "10.0.0.1", "ALL"),
    }
    filters = [AclFilter(principal="User:ann"), AclFilter(principal="User:nobody"), AclFilter(host="10.0.0.1")]
    assert call(server, lambda admin: admin.delete_acls(filters)) == dict(
        zip(filters, ((read,), (), (deny,)), strict=True)
    )
    call(server, lambda admin: soon(admin.describe_acls, ()))


def test_quotas(server: KafkaServer) -> None:
    ann, anybody = QuotaEntity(user="ann", client_id="app"), QuotaEntity(user=QuotaName.DEFAULT)
    address = QuotaEntity(ip="10.0.0.1")

    async def story(admin: Admin) -> None:
        await admin.alter_client_quotas(
            {
                ann: {"producer_byte_rate": 1024, "consumer_byte_rate": 2048},
                anybody: {"request_percentage": 12.5},
                address: {"connection_creation_rate": 3},
            }
        )
        quotas = {
            ann: {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0},
            anybody: {"request_percentage": 12.5},
            address: {"connection_creation_rate": 3.0},
        }
        await soon(admin.describe_client_quotas, quotas)
        assert list(await admin.describe_client_quotas(QuotaFilter(user="ann"))) == [ann]
        assert await admin.describe_client_quotas(QuotaFilter(user="ann", is_strict=True)) == {}
        assert list(await admin.describe_client_quotas(QuotaFilter(user=QuotaName.DEFAULT))) == [anybody]
        assert list(await admin.describe_client_quotas(QuotaFilter(ip=QuotaName.ANY))) == [address]
        with pytest.raises(KeyedError, match=r"user \(default\): INVALID_REQUEST"):
            await admin.alter_client_quotas({anybody: {"no_such_quota": 1}, ann: {"producer_byte_rate": None}})
        await admin.alter_client_quotas({ann: {"consumer_byte_rate": 1}}, validate_only=True)
        await soon(admin.describe_client_quotas, quotas | {ann: {"consumer_byte_rate": 2048.0}})

    call(server, story)


def test_scram_users(server: KafkaServer, theirs: Any) -> None:
    sha256, sha512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512

    async def story(admin: Admin) -> None:
        await admin.alter_user_scram_credentials(
            [
                ScramUpsertion("ann", sha256, "pencil"),
                ScramUpsertion("bob", sha512, "eraser", salt=b"salt"),
            ]
        )
        await admin.alter_user_scram_credentials([ScramUpsertion("ann", sha512, b"pencil", 8192)])
        with pytest.raises(KeyedError, match="bob: RESOURCE_NOT_FOUND"):
            await admin.alter_user_scram_credentials([ScramDeletion("bob", sha256), ScramDeletion("ann", sha256)])
        users = {"ann": (ScramCredentialInfo(sha512, 8192),), "bob": (ScramCredentialInfo(sha512, 4096),)}
        await soon(admin.describe_user_scram_credentials, users)
        with pytest.raises(BrokerError, match="RESOURCE_NOT_FOUND"):
            await admin.describe_user_scram_credentials(["nobody"])
        assert await admin.describe_user_scram_credentials([]) == {}

    call(server, story)
    seen = theirs.describe_user_scram_credentials(["ann"])["ann"].result(TIMEOUT_S)
    assert [(each.mechanism.value, each.iterations) for each in seen.scram_credential_infos] == [(2, 8192)]


def test_replicas_and_leaders(server: KafkaServer) -> None:
    first, second = TopicPartition("moved", 0), TopicPartition("moved", 1)

    async def story(admin: Admin) -> None:
        await admin.create_topics([NewTopic("moved", 2, 1)])
        with pytest.raises(KeyedError) as raised:
            await admin.alter_partition_reassignments({first: [9], second: None})
        assert [each.code for each in raised.value.errors.values()] == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ]
        await admin.alter_partition_reassignments({first: [1]}, allow_replication_factor_change=False)
        assert await admin.list_partition_reassignments() == {}
        assert await admin.list_partition_reassignments([first]) == {}
        assert await admin.elect_leaders([first, second]) == {first: False, second: False}
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.elect_leaders([TopicPartition("nowhere", 0)])
        assert await admin.elect_leaders() == {}

    call(server, story)


def test_disks(server: KafkaServer) -> None:
    place = TopicPartition("on-disk", 0)

    async def home(admin: Admin) -> dict[str, bool]:
        dirs = (await admin.describe_log_dirs(partitions=[place]))[1]
        assert len(dirs) == 2
        assert all(each.error is None and each.total_bytes for each in dirs.values())
        return {path: each.replicas[place].is_future for path, each in dirs.items() if place in each.replicas}

    async def has_home(admin: Admin) -> bool:
        return bool(await home(admin))

    async def story(admin: Admin) -> None:
        await admin.create_topics([NewTopic("on-disk", 1, 1)])
        await soon(lambda: has_home(admin), True)  # its directory is made after the answer
        ((path, is_future),) = (await home(admin)).items()
        assert not is_future
        away = next(each for each in (await admin.describe_log_dirs([1]))[1] if each != path)
        await admin.alter_replica_log_dirs({BrokerReplica(1, place): away})
        await soon(lambda: home(admin), {away: False})
        with pytest.raises(BrokerError, match="LOG_DIR_NOT_FOUND"):
            await admin.alter_replica_log_dirs({(1, place): "/nowhere"})
        with pytest.raises(BrokerError, match="there is no broker 9"):
            await admin.describe_log_dirs([9])

    call(server, story)


def test_the_cluster_and_its_quorum(server: KafkaServer, theirs: Any) -> None:
    some_id = Uuid(b"0123456789abcdef")

    async def story(admin: Admin) -> None:
        cluster = await admin.describe_cluster(include_authorized_operations=True, include_fenced_brokers=True)
        assert (len(cluster.nodes), cluster.controller, cluster.fenced) == (1, cluster.nodes[0], frozenset())
        assert AclOperation.ALTER in (cluster.authorized_operations or ())
        quorum = await admin.describe_metadata_quorum()
        assert (quorum.leader_id, [each.replica_id for each in quorum.voters]) == (1, [1])
        assert quorum.voters[0].log_end_offset >= quorum.high_watermark > 0
        assert quorum.endpoints[1][0].name == "CONTROLLER"
        with pytest.raises(BrokerError, match=r"UNSUPPORTED_VERSION.*kraft\.version"):
            await admin.add_raft_voter(9, some_id, [Endpoint("CONTROLLER", "127.0.0.1", 1)])
        with pytest.raises(BrokerError, match=r"UNSUPPORTED_VERSION.*kraft\.version"):
            await admin.remove_raft_voter(9, some_id)
        with pytest.raises(BrokerError, match="BROKER_ID_NOT_REGISTERED"):
            await admin.unregister_broker(9)
        described = theirs.describe_cluster().result(TIMEOUT_S)
        assert (described.cluster_id, described.controller.id) == (cluster.cluster_id, 1)

    call(server, story)


def test_features(server: KafkaServer) -> None:
    async def story(admin: Admin) -> None:
        features = await admin.describe_features()
        assert features.finalized["metadata.version"].max_level == NEWEST_METADATA
        assert features.supported["transaction.version"].max_level == 2
        lower = FeatureUpdate(1, FeatureUpgrade.SAFE_DOWNGRADE)
        await admin.update_features({"transaction.version": lower}, validate_only=True)
        assert (await admin.describe_features()).finalized["transaction.version"].max_level == 2
        with pytest.raises(BrokerError, match="INVALID_UPDATE_VERSION"):
            await admin.update_features({"transaction.version": 99})
        with pytest.raises(BrokerError, match="INVALID_UPDATE_VERSION"):
            await admin.update_features({"group.version": FeatureUpdate(0)})  # down, and not asked for as such
        await admin.update_features(
            {"group.version": FeatureUpdate(0, FeatureUpgrade.SAFE_DOWNGRADE)}, validate_only=True
        )

    call(server, story)


def test_transactions_are_seen_and_ended(server: KafkaServer) -> None:
    place = TopicPartition("payments", 0)
    call(server, lambda admin: admin.create_topics([NewTopic("payments", 1, 1)]))
    settings = {"bootstrap.servers": server.bootstrap, "transactional.id": "payer", "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("payments", b"1", partition=0)
    assert producer.flush(TIMEOUT_S) == 0

    async def story(admin: Admin) -> None:
        (listing,) = await admin.list_transactions(states=[TransactionState.ONGOING], pattern="pay.*")
        assert (listing.transactional_id, listing.coordinator_id) == ("payer", 1)
        assert await admin.list_transactions(producer_ids=[listing.producer_id + 1]) == []
        assert await admin.list_transactions(min_duration_ms=3_600_000) == []
        with pytest.raises(KeyedError, match="stranger: TRANSACTIONAL_ID_NOT_FOUND") as raised:
            await admin.describe_transactions(["payer", "stranger"])
        described = raised.value.results["payer"]
        assert (described.state, described.partitions) == (TransactionState.ONGOING, (place,))
        (state,) = (await admin.describe_producers([place]))[place]
        assert (state.producer_id, state.transaction_start_offset) == (described.producer_id, 0)
        assert (await admin.describe_producers([place], broker_id=1))[place] == (state,)
        held = await admin.list_offsets({place: OffsetSpec.latest()}, isolation_level="read_committed")
        assert held[place].offset == 0
        await admin.abort_transaction(place, state.producer_id, state.producer_epoch, state.coordinator_epoch)
        (state,) = (await admin.describe_producers([place]))[place]
        assert state.transaction_start_offset is None
        fenced = await admin.fence_producers(["payer"])
        assert fenced["payer"].producer_epoch > described.producer_epoch
        assert (await admin.describe_transactions(["payer"]))["payer"].started_ms is None
        await admin.force_terminate_transaction("payer")
        ended = (await admin.describe_transactions(["payer"]))["payer"]
        assert ended.producer_epoch > fenced["payer"].producer_epoch

    call(server, story)
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(TIMEOUT_S)


def test_tokens_are_for_those_who_are_logged_in(server: KafkaServer) -> None:
    forbidden = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    ann = Principal.parse("User:ann")
    assert refused(server, lambda admin: admin.create_delegation_token(renewers=[ann], owner=ann)) is forbidden
    assert refused(server, lambda admin: admin.create_delegation_token()) is forbidden
    assert refused(server, lambda admin: admin.renew_delegation_token(b"x")) is forbidden
    assert refused(server, lambda admin: admin.expire_delegation_token(b"x")) is forbidden
    assert refused(server, lambda admin: admin.describe_delegation_tokens([ann])) is forbidden


def test_controllers_can_be_asked_directly(server: KafkaServer) -> None:
    host, port = call(server, lambda admin: admin.describe_metadata_quorum()).endpoints[1][0][1:]

    async def story() -> None:
        async with Admin({"bootstrap.controllers": f"{host}:{port}"}) as admin:
            cluster = await admin.describe_cluster()
            assert [(each.node_id, each.port) for each in cluster.nodes] == [(1, port)]
            assert list(await admin.create_topics([NewTopic("from-controller", 1, 1)])) == ["from-controller"]
            assert (await admin.describe_metadata_quorum()).leader_id == 1
            with pytest.raises(UnsupportedRequestError, match=r"bootstrap\.servers"):
                await admin.list_topics()
            with pytest.raises(UnsupportedRequestError, match=r"bootstrap\.servers"):
                await admin.list_group_offsets("g")

    asyncio.run(story())
