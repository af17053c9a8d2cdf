"""Nodes of a cluster are killed, paused and cut off, again and again, and what was acknowledged must be there.

    python -m tests.cluster.faults --rounds 20

Three combined nodes and one that is only a broker. In each round one of them, the active controller, a standby or the
broker, gets one of the three faults. Meanwhile a topic is created through another node. Then the fault is healed, and
all nodes must know all topics that were acknowledged. What is printed at the end is how long a change took from the
fault on, and how long it took until the broker was fenced.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.asking import active, all_unfenced, create, fenced, topics, until
from tests.cluster.nodes import COMBINED, Cluster, Node
from tests.cluster.wires import Wires

BROKER_ONLY: Final = 4
FAULTS: Final = ("kill", "pause", "cut")
TARGETS: Final = ("active controller", "standby", "broker")
#: All of them, in an order in which each fault and each target comes soon.
STORIES: Final = [(FAULTS[(row + column) % 3], TARGETS[column]) for row in range(3) for column in range(3)]
#: How long a change may take that waits for an election or for nothing; a busy machine gets more.
PATIENCE_S: Final = 60.0


class Seen(NamedTuple):
    """What one fault has led to. `fenced_s` is None for a node that was healed before."""

    fault: str
    target: str
    change_s: float
    fenced_s: float
    is_other_leader: bool


class Faulty(NamedTuple):
    """A cluster of which any part can fail."""

    cluster: Cluster
    wires: Wires


@contextmanager
def faulty_cluster(folder: Path) -> Iterator[Faulty]:
    roles = {1: COMBINED, 2: COMBINED, 3: COMBINED, BROKER_ONLY: "broker"}
    with Wires([1, 2, 3]) as wires:
        cluster = Cluster(folder, roles, between=wires.addresses)
        wires.carry_to(cluster.controllers)
        with cluster:
            yield Faulty(cluster, wires)


def healed(faulty: Faulty) -> None:
    """Everybody runs, is connected, and is unfenced."""
    cluster, wires = faulty
    wires.heal()
    for each in cluster.nodes:
        wires.up(each)
    cluster.start_missing()
    active(cluster)
    all_unfenced(cluster)


def _inject(faulty: Faulty, fault: str, node: Node) -> None:
    if fault == "kill":
        faulty.wires.down(node.node_id)
        node.kill()
    elif fault == "pause":
        node.pause()
    else:
        faulty.wires.cut(node.node_id)


def one_round(faulty: Faulty, fault: str, target: str, number: int) -> Seen:
    """One fault, what comes of it, and its end. The topics' names have the number of the round."""
    cluster = faulty.cluster
    leader, epoch = active(cluster)
    standby = next(each for each in cluster.controllers if each is not leader)
    node = {"active controller": leader, "standby": standby, "broker": cluster[BROKER_ONLY]}[target]
    others = [each for each in cluster.brokers if each is not node]
    asked = others[number % len(others)]
    _acknowledged(asked, f"before-{number}")

    began_s = time.monotonic()
    _inject(faulty, fault, node)
    _acknowledged(asked, f"during-{number}")
    change_s = time.monotonic() - began_s
    until(f"broker {node.node_id} is fenced", lambda: node.node_id in fenced(asked))
    fenced_s = time.monotonic() - began_s
    others_lead = [each for each in cluster.controllers if each is not node]
    now, new_epoch = active(cluster, among=others_lead)
    if target != "active controller":
        assert (now.node_id, new_epoch) == (leader.node_id, epoch), f"a {fault} of a {target} has moved the leader"

    healed(faulty)
    after, last_epoch = active(cluster)
    if fault != "kill" or target == "broker":
        # Who comes back must not disturb who leads.
        assert (after.node_id, last_epoch) == (now.node_id, new_epoch), "the leader moved when the fault was healed"
    expected = {f"{when}-{number}" for when in ("before", "during")}
    for each in cluster.brokers:
        until(f"node {each.node_id} knows what was acknowledged", lambda each=each: expected <= topics(each))  # type: ignore[misc]
    return Seen(fault, target, change_s, fenced_s, now is not leader)


def _acknowledged(node: Node, name: str) -> None:
    """The topic is there. A time-out says nothing of that, so it is asked for again; then it may be there already."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        code, message = create(node, name, timeout_ms=20_000)
        if code in (0, 36):
            return
        if code not in (7, 41):
            raise AssertionError(f"node {node.node_id} has not created {name}: {code}, {message}")
    raise AssertionError(f"node {node.node_id} has not created {name} in {PATIENCE_S:.0f} s: {code}, {message}")


def summary(seen: Sequence[Seen]) -> Iterator[str]:
    """Lines for a person."""
    groups: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for each in seen:
        groups[each.target, each.fault].append(each)
    yield f"{'who':<18} {'fault':<6} {'rounds':>6} {'change p50':>11} {'max':>7} {'fenced p50':>11} {'max':>7}"
    for target, fault in itertools.product(TARGETS, FAULTS):
        found = groups.get((target, fault))
        if found:
            change, gone = [each.change_s for each in found], [each.fenced_s for each in found]
            yield (
                f"{target:<18} {fault:<6} {len(found):>6} {statistics.median(change):>9.2f} s {max(change):>5.2f} s "
                f"{statistics.median(gone):>9.2f} s {max(gone):>5.2f} s"
            )


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="of each fault of each target (default %(default)s)")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    asked = parser.parse_args(given)
    stories = [
        (fault, target) for fault, target in STORIES if asked.fault in (None, fault) and asked.target in (None, target)
    ]
    seen: list[Seen] = []
    with tempfile.TemporaryDirectory() as folder, faulty_cluster(Path(folder)) as faulty:
        healed(faulty)
        for number, (fault, target) in enumerate(stories * asked.rounds):
            seen.append(one_round(faulty, fault, target, number))
            last = seen[-1]
            print(
                f"{number + 1}/{len(stories) * asked.rounds}: {fault} of the {target}: a change after "
                f"{last.change_s:.2f} s, fenced after {last.fenced_s:.2f} s",
                flush=True,
            )
    print(*summary(seen), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
