"""Which faults strike a cluster at the same time: what is promised, and no more."""

from __future__ import annotations

import pytest

from barnabas.base.ids import Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage, TopicsImage
from barnabas.testing.sim.cluster_promises import FaultBudget
from barnabas.testing.sim.fault_plans import Fault, FaultKind

HOSTS = {"a": 1, "b": 2, "c": 3}


class Cluster:
    """Three brokers with one partition, as the newest metadata has them."""

    def __init__(self, *, has_elr: bool = True) -> None:
        self.now_s = 0.0
        self.epochs = {1: 10, 2: 11, 3: 12}
        self.isr: tuple[int, ...] = (1, 2, 3)
        self.doomed: set[str] = set()
        self.active: list[Fault] = []
        active = None if has_elr else lambda: self.active
        self.budget = FaultBudget(HOSTS, self.image, lambda: self.now_s, lambda host: host in self.doomed, active)

    def image(self) -> ClusterImage:
        partition = PartitionImage((1, 2, 3), self.isr, self.isr[0], 1, 1)
        topics = TopicsImage(PersistentMap({"t": TopicImage("t", Uuid.ZERO, (partition,))}))
        brokers = {
            each: BrokerImage(each, epoch, Uuid.ZERO, (), {}, None, False, False) for each, epoch in self.epochs.items()
        }
        return ClusterImage(brokers=PersistentMap(brokers), topics=topics)

    def strike(self, kind: FaultKind, host: str, amount: float = 0.0) -> bool:
        return not self.budget.may_strike(Fault(0, 1, kind, (host,), amount), (host,))

    def drop(self, broker_id: int) -> None:
        self.isr = tuple(each for each in self.isr if each != broker_id)

    def register(self, broker_id: int) -> None:
        self.epochs[broker_id] = max(self.epochs.values()) + 1
        self.drop(broker_id)

    def catch_up(self, broker_id: int) -> None:
        self.isr = (*self.isr, broker_id)


def test_any_number_may_be_killed() -> None:
    cluster = Cluster()
    assert all(cluster.strike(FaultKind.KILL, host) for host in HOSTS)
    assert all(cluster.strike(FaultKind.DIE_IN_WRITE, host, 3) for host in HOSTS)
    assert cluster.budget.lost() == set()


@pytest.mark.parametrize("kind", [FaultKind.POWER, FaultKind.DIE_IN_WRITE, FaultKind.OLD_DISK, FaultKind.RESTORE])
def test_power_is_lost_by_one_at_a_time_until_it_is_back_in_sync(kind: FaultKind) -> None:
    cluster = Cluster()
    assert cluster.strike(kind, "a", -1)
    assert cluster.budget.lost() == {"a"}
    assert not cluster.strike(FaultKind.POWER, "b")
    assert cluster.strike(FaultKind.POWER, "a"), "the same again costs no more"
    cluster.now_s = 5.0
    cluster.register(1)
    assert not cluster.strike(FaultKind.POWER, "b")
    cluster.catch_up(1)
    assert cluster.budget.lost() == set()
    assert cluster.strike(FaultKind.POWER, "b")
    assert cluster.budget.power_loss_count == 3


def test_while_one_has_lost_power_others_are_killed_only_once_it_is_back_in_sync() -> None:
    cluster = Cluster()
    assert cluster.strike(FaultKind.POWER, "a")
    cluster.drop(1)
    for kind in (FaultKind.KILL, FaultKind.FULL_DISK):
        assert not cluster.strike(kind, "b"), "the first may be taken for the last leader"
    cluster.register(1)
    assert not cluster.strike(FaultKind.KILL, "b"), "it may lead by now, made so while nobody knew that it was gone"
    cluster.catch_up(1)
    assert cluster.strike(FaultKind.KILL, "b")


def test_after_a_kill_nobody_else_loses_power_until_the_first_is_back() -> None:
    cluster = Cluster()
    assert cluster.strike(FaultKind.KILL, "a")
    assert not cluster.strike(FaultKind.POWER, "b")
    assert cluster.strike(FaultKind.POWER, "a")
    cluster.register(1)
    assert not cluster.strike(FaultKind.POWER, "b")
    cluster.catch_up(1)
    assert cluster.strike(FaultKind.POWER, "b")


def test_a_disk_that_is_full_may_end_a_process_as_long_as_it_lasts() -> None:
    cluster = Cluster()
    assert cluster.strike(FaultKind.FULL_DISK, "a")
    cluster.register(1)
    cluster.catch_up(1)
    assert not cluster.strike(FaultKind.POWER, "b")
    cluster.now_s = 1.0
    assert cluster.strike(FaultKind.POWER, "b")


def test_who_will_die_in_an_operation_is_not_back_until_that_has_come() -> None:
    cluster = Cluster()
    assert cluster.strike(FaultKind.DIE_IN_WRITE, "a", -5)
    cluster.doomed.add("a")
    cluster.register(1)
    cluster.catch_up(1)
    assert cluster.budget.lost() == {"a"}
    assert not cluster.strike(FaultKind.POWER, "b")
    cluster.doomed.clear()
    cluster.budget.died("a", power=True)
    assert cluster.budget.lost() == {"a"}
    assert not cluster.strike(FaultKind.POWER, "b")
    cluster.register(1)
    cluster.catch_up(1)
    assert cluster.strike(FaultKind.POWER, "b")


def test_who_dies_by_itself_counts_as_killed() -> None:
    cluster = Cluster()
    cluster.budget.died("a", power=False)
    assert cluster.budget.lost() == set()
    assert not cluster.strike(FaultKind.POWER, "b")
    assert cluster.strike(FaultKind.KILL, "b")


def test_other_faults_and_other_hosts_are_not_limited() -> None:
    cluster = Cluster()
    assert cluster.strike(FaultKind.POWER, "a")
    for kind in (FaultKind.PAUSE, FaultKind.ISOLATE, FaultKind.RESTART):
        assert cluster.strike(kind, "b")
    assert cluster.strike(FaultKind.POWER, "a controller")


def test_a_disk_is_exchanged_again_only_once_the_node_is_back() -> None:
    cluster = Cluster()
    assert cluster.strike(FaultKind.RESTORE, "a")
    assert not cluster.strike(FaultKind.RESTORE, "a")
    cluster.now_s = 5.0
    cluster.register(1)
    cluster.catch_up(1)
    assert cluster.strike(FaultKind.RESTORE, "a")


def test_who_has_lost_power_is_absent_until_it_registers_again() -> None:
    cluster = Cluster()
    assert cluster.strike(FaultKind.POWER, "a")
    assert cluster.budget.absent() == {"a"}
    cluster.register(1)
    assert (cluster.budget.absent(), cluster.budget.lost()) == (set(), {"a"})


def test_without_elr_power_is_lost_only_where_all_are_in_sync_and_nothing_else_is_amiss() -> None:
    cluster = Cluster(has_elr=False)
    cluster.drop(3)
    assert not cluster.strike(FaultKind.POWER, "a"), "the other may leave, too"
    assert cluster.strike(FaultKind.ISOLATE, "b"), "who loses nothing may be away"
    cluster.catch_up(3)
    cluster.active = [Fault(0, 9, FaultKind.ISOLATE, ("b",))]
    assert not cluster.strike(FaultKind.POWER, "a")
    cluster.active = [Fault(0, 9, FaultKind.JUMP, ("b",), 100)]
    assert cluster.strike(FaultKind.POWER, "a")


def test_without_elr_nothing_happens_while_one_without_its_records_counts_as_in_sync() -> None:
    cluster = Cluster(has_elr=False)
    assert cluster.strike(FaultKind.POWER, "a")
    for kind in (FaultKind.ISOLATE, FaultKind.RESTART, FaultKind.PAUSE, FaultKind.KILL):
        assert not cluster.strike(kind, "b"), "it may leave, and the first be the last in sync"
    assert cluster.strike(FaultKind.JUMP, "b")
    cluster.drop(1)
    assert cluster.strike(FaultKind.ISOLATE, "b")
    assert cluster.strike(FaultKind.RESTART, "b")
