"""Parts of a cluster fail: others take over, what was acknowledged stays, what was not committed is gone.

Two of each kind here; `python -m tests.cluster.faults --rounds 20` does all of them many times.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.asking import active, create, created, leaders, topics, until
from tests.cluster.faults import Faulty, faulty_cluster, healed, one_round

_REQUEST_TIMED_OUT = 7


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    with faulty_cluster(tmp_path_factory.mktemp("faulty")) as faulty:
        yield faulty


@pytest.fixture
def faulty(shared: Faulty) -> Faulty:
    healed(shared)
    return shared


@pytest.mark.parametrize(
    ("number", "fault", "target"),
    [
        (1, "kill", "active controller"),
        (2, "pause", "active controller"),
        (3, "cut", "standby"),
        (4, "kill", "broker"),
        (5, "kill", "active controller"),
    ],
)
def test_a_fault_stops_nobody_else(faulty: Faulty, number: int, fault: str, target: str) -> None:
    seen = one_round(faulty, fault, target, number)
    assert seen.is_other_leader is (target == "active controller")


def test_a_dead_broker_leads_nothing_until_it_is_back(faulty: Faulty) -> None:
    cluster = faulty.cluster
    created(cluster[1], "on-four", at=4)
    cluster[4].kill()
    until("the partition has no leader", lambda: leaders(cluster[1], "on-four") == [-1])
    cluster.start(4)
    until("it leads again", lambda: leaders(cluster[1], "on-four") == [4])


def test_what_a_leader_without_followers_decides_never_was(faulty: Faulty) -> None:
    """A minority takes no change; and who led it steps down when it hears of the others."""
    cluster = faulty.cluster
    leader, epoch = active(cluster)
    faulty.wires.cut(leader.node_id)
    code, message = create(leader, "ghost", timeout_ms=1000)
    assert code == _REQUEST_TIMED_OUT, message
    # It may have resigned by now, or not: it has not heard of the others.
    others = [each for each in cluster.controllers if each is not leader]
    new_leader, new_epoch = active(cluster, above=epoch, among=others)
    created(others[0], "real")
    faulty.wires.heal()
    until("the old leader follows", lambda: "real" in topics(leader))
    assert active(cluster) == (new_leader, new_epoch)
    for each in cluster.brokers:
        assert "ghost" not in topics(each)
