"""Records become images: what each changes, what stays, and that nothing is lost on the way through a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import InvariantError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.metadata.features import METADATA_VERSION, METADATA_VERSION_BUILT, encode_record, record_version
from barnabas.metadata.image import (
    MIGRATING_DIRECTORY,
    BrokerEndpointImage,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ConfigurationsImage,
    FeaturesImage,
    PartitionImage,
    TopicImage,
)
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.snapshot import image_records
from barnabas.wire.stored import cluster_metadata as log
from tests.metadata.clusters import Cluster, new_topic, uuid
from tests.metadata.images import topics_image


def apply(image: ClusterImage, *records: log.MetadataRecord) -> ClusterImage:
    builder = ImageBuilder(image)
    for record in records:
        builder.replay(record)
    return builder.build(image.offset + len(records), 1)


def topic_with(*partitions: log.PartitionRecord) -> ClusterImage:
    return apply(ClusterImage(), log.TopicRecord(name="t", topic_id=uuid(200)), *partitions)


def partition(number: int = 0, **changes: Any) -> log.PartitionRecord:
    values: dict[str, Any] = {
        "partition_id": number,
        "topic_id": uuid(200),
        "replicas": [1, 2],
        "isr": [1, 2],
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 9,
    }
    return log.PartitionRecord(**(values | changes))


def change(**changes: Any) -> log.PartitionChangeRecord:
    return log.PartitionChangeRecord(partition_id=0, topic_id=uuid(200), **changes)


def test_every_change_of_a_partition_counts_and_naming_a_leader_begins_an_epoch() -> None:
    image = topic_with(partition())
    (before,) = image.topics["t"].partitions
    assert before.directories == (MIGRATING_DIRECTORY,) * 2

    def after(record: log.PartitionChangeRecord) -> PartitionImage:
        return apply(image, record).topics["t"].partitions[0]

    assert after(change(isr=[1])) == replace(before, isr=(1,), partition_epoch=10)
    assert after(change(leader=2)) == replace(before, leader=2, leader_epoch=5, partition_epoch=10)
    assert after(change(leader=1)) == replace(before, leader_epoch=5, partition_epoch=10)
    assert after(change(leader=-1)) == replace(before, leader=-1, leader_epoch=5, partition_epoch=10)
    assert after(change(leader_recovery_state=1)) == replace(before, leader_recovery_state=1, partition_epoch=10)
    assert after(change(adding_replicas=[3])) == replace(before, adding_replicas=(3,), partition_epoch=10)
    assert after(change(directories=[uuid(900), uuid(901)])).directories == (uuid(900), uuid(901))
    grown = after(change(replicas=[1, 2, 3], removing_replicas=[2]))
    assert (grown.replicas, grown.removing_replicas) == ((1, 2, 3), (2,))
    assert len(grown.directories) == 3
    elr = after(change(eligible_leader_replicas=[2], last_known_elr=[1]))
    assert (elr.eligible_leader_replicas, elr.last_known_elr) == ((2,), (1,))


def test_clearing_the_eligible_leaders_touches_only_those_that_have_some() -> None:
    image = topic_with(partition(0, eligible_leader_replicas=[2]), partition(1))
    first, second = apply(image, log.ClearElrRecord(topic_name="")).topics["t"].partitions
    assert (first.eligible_leader_replicas, first.partition_epoch) == ((), 10)
    assert second == image.topics["t"].partitions[1]
    assert apply(image, log.ClearElrRecord(topic_name="t")).topics["t"].partitions[0] == first


def test_images_do_not_change() -> None:
    image = topic_with(partition())
    builder = ImageBuilder(image)
    builder.replay(change(isr=[1]))
    middle = builder.build(5, 1)
    builder.replay(log.RemoveTopicRecord(topic_id=uuid(200)))
    end = builder.build(6, 1)
    assert image.topics["t"].partitions[0].isr == (1, 2)
    assert middle.topics["t"].partitions[0].isr == (1,)
    assert not end.topics
    assert middle.brokers is image.brokers


def test_a_delta_tells_what_must_be_done() -> None:
    image = apply(
        topic_with(partition()),
        log.TopicRecord(name="gone", topic_id=uuid(300)),
        log.PartitionRecord(
            partition_id=0,
            topic_id=uuid(300),
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
        log.ConfigRecord(resource_type=2, resource_name="gone", name="flush.ms", value="1"),
    )
    builder = ImageBuilder(image)
    for record in (
        change(isr=[1]),
        partition(1),
        log.RemoveTopicRecord(topic_id=uuid(300)),
        log.TopicRecord(name="gone", topic_id=uuid(301)),
        log.TopicRecord(name="brief", topic_id=uuid(302)),
        log.RemoveTopicRecord(topic_id=uuid(302)),
        log.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="1"),
        log.FeatureLevelRecord(name="group.version", feature_level=1),
    ):
        builder.replay(record)
    delta = builder.delta
    assert delta.topics_deleted == (image.topics["gone"],)
    assert delta.topics_created == ("gone",)
    assert delta.partitions_changed == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert delta.configs_changed == (ConfigResource(2, "gone"), ConfigResource(4, ""))
    assert delta.brokers_changed == ()
    assert delta.features_changed


def test_a_transaction_counts_when_it_ends_even_over_several_images() -> None:
    image = ClusterImage()
    topic = log.TopicRecord(name="t", topic_id=uuid(200))
    open_ = apply(image, log.BeginTransactionRecord(name="x"), topic)
    assert not open_.topics
    assert open_.pending == (topic,)
    with pytest.raises(InvariantError):
        list(image_records(open_))
    assert apply(open_, partition(), log.EndTransactionRecord()).topics["t"].partitions
    aborted = apply(open_, partition(), log.AbortTransactionRecord(reason=None))
    assert not aborted.topics
    assert aborted.pending is None


@pytest.mark.parametrize(
    "records",
    [
        [log.EndTransactionRecord()],
        [log.AbortTransactionRecord()],
        [log.BeginTransactionRecord(), log.BeginTransactionRecord()],
        [log.RemoveTopicRecord(topic_id=uuid(999))],
        [change(isr=[1])],
        [log.TopicRecord(name="t", topic_id=uuid(200)), change(isr=[1])],
        [log.TopicRecord(name="t", topic_id=uuid(200)), partition(1)],
        [log.TopicRecord(name="t", topic_id=uuid(200)), log.TopicRecord(name="t", topic_id=uuid(201))],
        [log.TopicRecord(name="t", topic_id=uuid(200)), log.TopicRecord(name="u", topic_id=uuid(200))],
        [log.UnregisterBrokerRecord(broker_id=1, broker_epoch=1)],
        [log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)],
        [log.ClearElrRecord(topic_name="nope")],
    ],
)
def test_a_log_that_contradicts_itself_stops_the_node(records: list[log.MetadataRecord]) -> None:
    with pytest.raises(InvariantError):
        apply(ClusterImage(), *records)


def test_old_fencing_records_are_understood() -> None:
    cluster = Cluster(brokers=1)
    epoch = cluster.image.brokers[1].epoch
    fenced = apply(cluster.image, log.FenceBrokerRecord(id=1, epoch=epoch))
    assert fenced.brokers[1].is_fenced
    assert not apply(fenced, log.UnfenceBrokerRecord(id=1, epoch=epoch)).brokers[1].is_fenced
    assert apply(cluster.image, log.ZkMigrationStateRecord(zk_migration_state=0), log.NoOpRecord()).topics == {}


def _acl() -> log.MetadataRecord:
    return log.AccessControlEntryRecord(
        id=uuid(500),
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


def _scram() -> log.MetadataRecord:
    return log.UserScramCredentialRecord(
        name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )


def _token() -> log.MetadataRecord:
    return log.DelegationTokenRecord(
        owner="User:a",
        requester="User:a",
        renewers=[],
        issue_timestamp=1,
        max_timestamp=2,
        expiration_timestamp=2,
        token_id="id",
    )


def _quota(*, remove: bool = False, user: str | None = None, key: str = "producer_byte_rate") -> log.MetadataRecord:
    entity = [log.EntityData(entity_type="user", entity_name=user)]
    return log.ClientQuotaRecord(entity=entity, key=key, value=1.5, remove=remove)


def _controller() -> log.MetadataRecord:
    return log.RegisterControllerRecord(
        controller_id=3000,
        incarnation_id=uuid(600),
        zk_migration_ready=False,
        end_points=[log.ControllerEndpoint(name="CONTROLLER", host="localhost", port=9093, security_protocol=0)],
        features=[log.ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)],
    )


@pytest.mark.parametrize(
    ("made", "removed"),
    [
        (_acl, lambda: log.RemoveAccessControlEntryRecord(id=uuid(500))),
        (_scram, lambda: log.RemoveUserScramCredentialRecord(name="a", mechanism=1)),
        (_token, lambda: log.RemoveDelegationTokenRecord(token_id="id")),
        (_quota, lambda: _quota(remove=True)),
    ],
)
def test_what_nothing_acts_on_yet_is_kept_and_written_again(
    made: Callable[[], log.MetadataRecord], removed: Callable[[], log.MetadataRecord]
) -> None:
    image = apply(ClusterImage(), made(), _quota(user="b"))
    assert list(image_records(image)).count(made()) == 1
    changed = apply(image, made(), made())
    assert list(image_records(changed)).count(made()) == 1
    gone = apply(changed, removed(), removed())
    assert list(image_records(gone)) == [_quota(user="b")]
    assert made() in list(image_records(image))


def test_an_image_does_not_show_the_keys_of_users() -> None:
    image = apply(ClusterImage(), _scram())
    assert "iterations=4096" in repr(image.scram)
    assert not any(secret in repr(image) for secret in ("salt", "key", "b'k'", "b'v'"))


def test_records_are_written_in_the_versions_of_the_metadata_version() -> None:
    registered = next(each for each in Cluster(brokers=1).log if isinstance(each, log.RegisterBrokerRecord))
    versions = {7: (1, 0), 8: (2, 0), 16: (2, 0), 17: (3, 1), 22: (3, 1), 23: (3, 2), 25: (3, 2), 30: (4, 2)}
    for level, (of_broker, of_partition) in versions.items():
        assert record_version(registered, level) == of_broker
        assert record_version(partition(), level) == of_partition
        assert record_version(change(), level) == of_partition
    fenced = log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)
    stopping = log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1)
    moved = log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=[uuid(900)])
    assert [record_version(each) for each in (fenced, stopping, moved)] == [0, 1, 2]
    assert record_version(log.TopicRecord(name="t", topic_id=uuid(1))) == 0


# Snapshots

_names = st.text("abc.-_", min_size=1, max_size=4)
_ids = st.integers(0, 5)
_uuids = st.integers(100, 2**128 - 1).map(uuid)
_broker_lists = st.lists(_ids, unique=True, max_size=3).map(tuple)


@st.composite
def _partitions(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(st.lists(_ids, unique=True, min_size=1, max_size=3).map(tuple))
    return PartitionImage(
        replicas=replicas,
        isr=draw(_broker_lists),
        leader=draw(st.sampled_from([-1, *replicas])),
        leader_epoch=draw(_ids),
        partition_epoch=draw(_ids),
        leader_recovery_state=draw(st.sampled_from([0, 1])),
        removing_replicas=draw(_broker_lists),
        adding_replicas=draw(_broker_lists),
        directories=tuple(draw(_uuids) for _ in replicas),
        eligible_leader_replicas=draw(_broker_lists),
        last_known_elr=draw(_broker_lists),
    )


@st.composite
def _brokers(draw: st.DrawFn) -> BrokerImage:
    endpoint = st.builds(BrokerEndpointImage, _names, _names, st.integers(0, 65535), st.integers(0, 3))
    return BrokerImage(
        broker_id=draw(_ids),
        epoch=draw(_ids),
        incarnation_id=draw(_uuids),
        endpoints=tuple(draw(st.lists(endpoint, max_size=2))),
        features=draw(st.dictionaries(_names, st.tuples(_ids, _ids), max_size=2)),
        rack=draw(st.none() | _names),
        is_fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=tuple(draw(st.lists(_uuids, unique=True, max_size=2))),
    )


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    brokers = draw(st.lists(_brokers(), max_size=3, unique_by=lambda each: each.broker_id))
    ids = draw(st.dictionaries(_names, _uuids, max_size=4).filter(lambda ids: len(set(ids.values())) == len(ids)))
    topics = [
        TopicImage(name, topic_id, tuple(draw(st.lists(_partitions(), max_size=3)))) for name, topic_id in ids.items()
    ]
    configs = st.dictionaries(
        st.builds(ConfigResource, st.sampled_from([2, 4, 16, 32]), st.text(max_size=3)),
        st.dictionaries(_names, st.text(max_size=5), min_size=1, max_size=3),
        max_size=3,
    )
    kept = [_acl(), _scram(), _token(), _controller(), _quota(), _quota(user="x"), _quota(user="x", key="request")]
    others = apply(ClusterImage(), *(each for each in kept if draw(st.booleans())))
    features: dict[str, int] = draw(st.dictionaries(_names, st.integers(1, 30), max_size=2))
    return ClusterImage(
        offset=draw(st.integers(0, 1000)),
        epoch=draw(_ids),
        features=FeaturesImage({**features, METADATA_VERSION: METADATA_VERSION_BUILT}),
        brokers=PersistentMap({each.broker_id: each for each in brokers}),
        controllers=others.controllers,
        topics=topics_image(topics),
        configs=ConfigurationsImage(draw(configs)),
        client_quotas=others.client_quotas,
        next_producer_id=draw(st.integers(0, 10_000)),
        acls=others.acls,
        scram=others.scram,
        delegation_tokens=others.delegation_tokens,
    )


@given(images())
def test_a_snapshot_brings_the_image_back(image: ClusterImage) -> None:
    builder = ImageBuilder(ClusterImage())
    for number, record in enumerate(image_records(image)):
        if number == 0:
            assert isinstance(record, log.FeatureLevelRecord)
            assert record.name == METADATA_VERSION
        decoded, _ = log.MetadataRecord.decode_framed(encode_record(record))
        builder.replay(decoded)
    assert builder.build(image.offset, image.epoch) == image


def test_large_topics_are_replayed_fast_enough() -> None:
    """Thousands of partitions must not cost their square: each one touches only itself."""
    cluster = Cluster(brokers=3)
    cluster.create(new_topic("wide", 9_000, 1))
    assert len(cluster.replayed().topics["wide"].partitions) == 9_000
    assert isinstance(cluster.image.topics["wide"].topic_id, Uuid)
