"""What a broker logs of the others, and of leaders: what became of whom, and why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from barnabas.base.log_context import said
from barnabas.broker.state_lines import ControllerChanges, tell_states, tell_states_as_controller
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.replay import ImageBuilder
from barnabas.raft.types import LeaderAndEpoch
from barnabas.testing.sim.world import World
from barnabas.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from barnabas.wire.stored import cluster_metadata as log
from tests.broker.test_change_lines import topic
from tests.metadata.clusters import uuid

ME = 2


def registered(number: int, epoch: int) -> log.MetadataRecord:
    return log.RegisterBrokerRecord(
        broker_id=number,
        broker_epoch=epoch,
        incarnation_id=uuid(100 + number),
        end_points=[
            log.BrokerEndpoint(name="PLAINTEXT", host=f"kafka-{number}", port=9092, security_protocol=0),
        ],
        features=[],
        rack=None,
        fenced=True,
        log_dirs=[uuid(200 + number)],
    )


def changed(number: int, epoch: int, *, fenced: int = 0, stops: bool = False) -> log.MetadataRecord:
    return log.BrokerRegistrationChangeRecord(
        broker_id=number, broker_epoch=epoch, fenced=fenced, in_controlled_shutdown=int(stops)
    )


def moved(partition: int, leader: int, isr: list[int], recovery: int = -1) -> log.MetadataRecord:
    return log.PartitionChangeRecord(
        partition_id=partition, topic_id=uuid(1), isr=isr, leader=leader, leader_recovery_state=recovery
    )


class Telling:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "barnabas")
        self._caplog = caplog
        self.image = ClusterImage()

    def apply(self, *records: log.MetadataRecord) -> list[str]:
        return [line for _, line in self.levels(*records)]

    def levels(
        self, *records: log.MetadataRecord, tell: Callable[..., None] = tell_states, node: int | None = ME
    ) -> list[tuple[str, str]]:
        before, builder = self.image, ImageBuilder(self.image)
        for record in records:
            builder.replay(record)
        self.image = builder.build(before.offset + len(records) or 0, 1)
        self._caplog.clear()
        tell(before, self.image, builder.delta, node)
        return [(record.levelname, record.getMessage()) for record in self._caplog.records]


@pytest.fixture
def node(caplog: pytest.LogCaptureFixture) -> Telling:
    """Broker 2 of two, with a topic `t` of two partitions that broker 1 leads."""
    telling = Telling(caplog)
    start = [registered(1, 10), registered(2, 11), changed(1, 10, fenced=-1), changed(2, 11, fenced=-1)]
    assert telling.apply(*start, *topic("t", 1, 2)) == []
    return telling


def test_brokers_come_and_go(node: Telling) -> None:
    assert node.apply(registered(3, 20)) == ["Broker 3 has registered, in epoch 20, at PLAINTEXT://kafka-3:9092"]
    assert node.apply(changed(3, 20, fenced=-1)) == [
        "Broker 3 is unfenced: it has caught up, and clients are sent to it"
    ]
    assert node.apply(changed(3, 20, stops=True)) == ["Broker 3 is shutting down: others lead what it led"]
    assert node.apply(changed(3, 20, fenced=1)) == ["Broker 3 is fenced: it has shut down"]
    assert node.apply(registered(3, 30)) == ["Broker 3 has registered again, in epoch 30, at PLAINTEXT://kafka-3:9092"]
    assert node.apply(changed(3, 30, fenced=-1), log.UnregisterBrokerRecord(broker_id=3, broker_epoch=30)) == [
        "Broker 3 was unregistered"
    ]


def test_a_leader_that_is_fenced_has_a_successor(node: Telling) -> None:
    assert node.apply(changed(1, 10, fenced=1), moved(0, 2, [2])) == [
        "Broker 1 is fenced: the controllers do not hear of it any more, or its process has ended",
        "t-0: broker 2 leads, since broker 1 is fenced; leader epoch 1, ISR 2",
    ]
    assert node.apply(moved(1, -1, [1])) == [
        "t-1: nobody leads, since broker 1 is fenced and nobody else is in sync; leader epoch 1, ISR 1"
    ]
    assert node.apply(changed(1, 10, fenced=-1), moved(1, 1, [1]))[1:] == [
        "t-1: broker 1 leads, since one that may lead is there again; leader epoch 2, ISR 1"
    ]
    assert node.apply(moved(0, 1, [2, 1])) == [
        "t-0: broker 1 leads, since it is the preferred leader, instead of broker 2; leader epoch 2, ISR 2,1"
    ]
    assert node.apply(moved(0, 2, [2, 1])) == [
        "t-0: broker 2 leads, since an election was asked for, instead of broker 1; leader epoch 3, ISR 2,1"
    ]


def test_unclean_elections_say_so(node: Telling) -> None:
    node.apply(moved(0, -1, [1]), changed(1, 10, fenced=1))
    (line,) = node.apply(moved(0, 2, [2], recovery=1))
    assert line.startswith("t-0: broker 2 leads, uncleanly: records may be lost, since ")


def test_brokers_that_are_gone_leave_the_isr(node: Telling) -> None:
    node.apply(moved(0, 2, [1, 2]), moved(1, 2, [1, 2]))
    assert node.apply(changed(1, 10, stops=True), moved(0, 2, [2]))[1:] == [
        "t-0: the ISR is 2, since broker 1 is shutting down"
    ]
    # What a leader proposes, it tells itself.
    node.apply(changed(1, 10, fenced=-1), registered(1, 40), changed(1, 40, fenced=-1))
    assert node.apply(moved(1, 2, [2])) == []


def test_many_partitions_are_one_line_for_each_reason(node: Telling) -> None:
    node.apply(*topic("many", 5, 100))
    moves = [log.PartitionChangeRecord(partition_id=each, topic_id=uuid(5), isr=[2], leader=2) for each in range(100)]
    _, line = node.apply(changed(1, 10, fenced=1), *moves)
    assert line.startswith("100 partitions: broker 2 leads, since broker 1 is fenced: many-0, many-1, ")
    assert line.endswith(" and 90 more")


UNLED = "t-1: nobody leads, since broker 1 is fenced and nobody else is in sync; leader epoch 1, ISR 1"


def test_a_partition_without_leader_is_a_warning(node: Telling) -> None:
    levels = node.levels(changed(1, 10, fenced=1), moved(0, 2, [2]), moved(1, -1, [1]))
    assert [level for level, _ in levels] == ["INFO", "INFO", "WARNING"]
    assert levels[2][1] == UNLED
    assert node.levels(moved(1, 2, [2], recovery=1))[0][0] == "WARNING"


def test_a_leader_that_somebody_stops_is_no_cause_for_alarm(node: Telling) -> None:
    stopping, unled = node.levels(changed(1, 10, stops=True), moved(1, -1, []))
    assert (stopping[0], unled[0]) == ("INFO", "INFO")
    assert unled[1].startswith("t-1: nobody leads, since broker 1 is shutting down")
    assert node.levels(moved(1, 2, [2], recovery=1))[0][0] == "WARNING"


def test_a_controller_alone_tells_all(node: Telling) -> None:
    def told(*records: log.MetadataRecord) -> list[tuple[str, str]]:
        return node.levels(*records, tell=tell_states_as_controller, node=None)

    assert told(changed(1, 10, fenced=1), moved(0, 2, [2]), moved(1, -1, [1])) == [
        ("INFO", "Broker 1 is fenced: the controllers do not hear of it any more, or its process has ended"),
        ("INFO", "t-0: broker 2 leads, since broker 1 is fenced; leader epoch 1, ISR 2"),
        ("WARNING", UNLED),
    ]
    (came,) = told(registered(3, 20))
    assert came[1].startswith("Broker 3 has registered, in epoch 20")


@pytest.mark.parametrize("own_broker", [2, 3])
def test_a_controller_beside_a_broker_tells_what_that_does_not(node: Telling, own_broker: int) -> None:
    """Broker 2 has a replica of both partitions, broker 3 of none."""
    node.apply(registered(3, 20), changed(3, 20, fenced=-1))

    def told(*records: log.MetadataRecord) -> list[tuple[str, str]]:
        return node.levels(*records, tell=tell_states_as_controller, node=own_broker)

    has_none = own_broker == 3
    assert told(changed(1, 10, fenced=1), moved(0, 2, [2]), moved(1, -1, [1])) == [("WARNING", UNLED)] * has_none
    (*unclean,) = told(moved(1, 2, [2], recovery=1))
    assert [level for level, _ in unclean] == ["WARNING"] * has_none


def test_a_partition_that_loses_its_only_replica_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    with World(1) as world:

        async def story() -> None:
            nodes = await world.start_cluster(3, brokers=2)
            client = await world.client(nodes[3].bootstrap)
            where = [CreatableReplicaAssignment(partition_index=each, broker_ids=[4]) for each in range(6)]
            alone = CreatableTopic(
                name="alone", num_partitions=-1, replication_factor=-1, assignments=where, configs=[]
            )
            response = await client.ask(CreateTopicsRequest(topics=[alone]), 7)
            assert response.topics[0].error_code == 0
            caplog.clear()
            nodes[3].kill()
            await asyncio.sleep(15)

        world.run(story())
    unled = [(each.levelname, said(each)) for each in caplog.records if "nobody leads" in said(each)]
    names = ", ".join(f"alone-{each}" for each in range(6))
    line = f"6 partitions: nobody leads, since broker 4 is fenced and nobody else is in sync: {names}"
    assert unled == [("WARNING", line)]


def test_this_broker_learns_that_it_was_fenced(node: Telling) -> None:
    told = node.apply(changed(ME, 11, fenced=1))
    assert told[1].startswith("This broker was fenced: ")
    assert len(node.apply(changed(ME, 11, fenced=-1))) == 1


def test_who_leads_the_controllers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.broker")
    telling = ControllerChanges()
    telling.on_controller_change(LeaderAndEpoch(3, 7))
    telling.on_controller_change(LeaderAndEpoch(-1, 8))
    assert caplog.messages == [
        "Controller 3 is the active one now, in epoch 7",
        "No controller is active, as far as is known here, in epoch 8",
    ]


def test_a_death_is_told_by_each_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    with World(1) as world:

        async def story() -> None:
            nodes = await world.start_cluster(3)
            caplog.clear()
            nodes[2].kill()
            await asyncio.sleep(15)

        world.run(story())
    fenced = {(record.__dict__["who"], said(record)) for record in caplog.records if "is fenced" in said(record)}
    assert {who for who, line in fenced if line.startswith("Broker 3 is fenced: ")} == {"node 1", "node 2"}
