"""Three nodes beside three of Apache Kafka: fail-over of the controller, many partitions, what they take while idle.

Each section can be asked for by itself: `cluster:idle`, `cluster:fail-over`, `cluster:partitions`, `cluster:image`,
`cluster:bytes`, and those of three replicas: `cluster:produce`, `cluster:small`, `cluster:leader-fail-over`,
`cluster:leader-and-controller`, `cluster:silence`, `cluster:shutdown`, `cluster:following`, `cluster:catching-up`,
`cluster:restart`.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.asking import active, all_unfenced, create, created, fenced, leaders, until
from tests.cluster.nodes import Cluster, Node
from tests.oracles import missing

from bench import cluster_bytes, cluster_image, cluster_replicas
from bench.cluster_nodes import KafkaCluster, OurCluster
from bench.measure import Result
from bench.node_brokers import idle_load, resident_bytes

ROUNDS = 20
QUICK_ROUNDS = 2
PARTITIONS = 10_000
QUICK_PARTITIONS = 500
PARTITIONS_PER_TOPIC: Final = 100
IDLE_S = 10.0
QUICK_IDLE_S = 3.0
_IN_DOUBT: Final = (7, 41)
_EXISTS: Final = 36
_PATIENCE_S: Final = 120.0


class FailOver(NamedTuple):
    """Seconds from the kill: until a topic was created through another broker, and until the dead one was fenced and
    its partition was told to have no leader."""

    change_s: float
    leaderless_s: float


@contextlib.contextmanager
def clusters() -> Iterator[dict[str, Cluster]]:
    """Three nodes of ours, and three of Kafka's if it is at hand; all are ready."""
    makers: dict[str, Callable[[Path], Cluster]] = {"ours": OurCluster}
    if missing() is None:
        makers["Kafka"] = KafkaCluster
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        found = {name: running.enter_context(maker(Path(folder) / name)) for name, maker in makers.items()}
        for each in found.values():
            all_unfenced(each)
        yield found


def idle(is_quick: bool) -> Iterator[Result]:
    with clusters() as found:
        yield from _idle(found, QUICK_IDLE_S if is_quick else IDLE_S)


def fail_over(is_quick: bool) -> Iterator[Result]:
    with clusters() as found:
        yield from _fail_over(found, QUICK_ROUNDS if is_quick else ROUNDS)


def many_partitions(is_quick: bool) -> Iterator[Result]:
    with clusters() as found:
        yield from _many_partitions(found, QUICK_PARTITIONS if is_quick else PARTITIONS)


SECTIONS: Final[dict[str, Callable[[bool], Iterator[Result]]]] = {
    "idle": idle,
    "fail-over": fail_over,
    "partitions": many_partitions,
    "image": cluster_image.results,
    "bytes": cluster_bytes.results,
    **cluster_replicas.SECTIONS,
}


def run() -> Iterator[Result]:
    for each in SECTIONS.values():
        yield from each(False)


def run_quickly() -> Iterator[Result]:
    for each in SECTIONS.values():
        yield from each(True)


# Idle


def _idle(clusters: dict[str, Cluster], seconds: float) -> Iterator[Result]:
    memory, load = {}, {}
    for name, cluster in clusters.items():
        pids = [each.pid for each in cluster.nodes.values()]
        memory[name] = sum(map(resident_bytes, pids)) / 2**20
        load[name] = sum(idle_load(pids, seconds))
    yield _compared("cluster: memory of three idle nodes", memory, None, lambda each: f"{each:,.0f} MiB")
    yield _compared("cluster: share of a core, three idle nodes", load, None, lambda each: f"{100 * each:.1f} %")


# Fail-over


def _fail_over(clusters: dict[str, Cluster], rounds: int) -> Iterator[Result]:
    seen: dict[str, list[FailOver]] = {name: [] for name in clusters}
    for number in range(rounds):
        for name, cluster in clusters.items():  # in turns, so that both have the same machine
            seen[name].append(_one_fail_over(cluster, f"round-{number}"))
    change = {name: [each.change_s for each in found] for name, found in seen.items()}
    leaderless = {name: [each.leaderless_s for each in found] for name, found in seen.items()}
    yield from _times("cluster: kill -9 of the active controller, until a change", change)
    yield from _times("cluster: the same node as a leader, until it is fenced", leaderless)


def _times(name: str, found: dict[str, list[float]]) -> Iterator[Result]:
    medians = {who: statistics.median(times) for who, times in found.items()}
    detail = "; ".join(f"{who}: {_spread(times)}" for who, times in found.items())
    yield Result(name, _ratio(medians), 1.0 if len(found) > 1 else None, detail)


def _spread(times: Sequence[float]) -> str:
    last = sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]
    return f"median {statistics.median(times):.2f} s, p99 {last:.2f} s of {len(times)}"


def _one_fail_over(cluster: Cluster, name: str) -> FailOver:
    leader, epoch = active(cluster)
    others = [each for each in cluster.brokers if each is not leader]
    created(others[0], f"led-{name}", at=leader.node_id)
    until("the topic is known", lambda: leaders(others[0], f"led-{name}") == [leader.node_id])
    began_s = time.monotonic()
    leader.kill()
    _change(others[0], f"after-{name}", began_s)
    change_s = time.monotonic() - began_s
    until("it has no leader", lambda: leaders(others[0], f"led-{name}") == [-1], patience_s=_PATIENCE_S)
    until("the broker is fenced", lambda: leader.node_id in fenced(others[0]), patience_s=_PATIENCE_S)
    leaderless_s = time.monotonic() - began_s
    cluster.start_missing()
    active(cluster, above=epoch)
    all_unfenced(cluster)
    return FailOver(change_s, leaderless_s)


def _change(node: Node, name: str, began_s: float) -> None:
    while time.monotonic() < began_s + _PATIENCE_S:
        code, message = create(node, name)
        if code in (0, _EXISTS):
            return
        if code not in _IN_DOUBT:
            raise RuntimeError(f"{name} was not created: {code}, {message}")
    raise TimeoutError(f"{name} was not created within {_PATIENCE_S:.0f} s")


# Many partitions


def _many_partitions(clusters: dict[str, Cluster], partitions: int) -> Iterator[Result]:
    creation, restart, change = {}, {}, {}
    for name, cluster in clusters.items():
        began_s = time.monotonic()
        for number in range(partitions // PARTITIONS_PER_TOPIC):
            created(cluster.brokers[number % 3], f"many-{number}", PARTITIONS_PER_TOPIC)
        creation[name] = time.monotonic() - began_s
        leader, _ = active(cluster)
        other = next(each for each in cluster.brokers if each is not leader)
        began_s = time.monotonic()
        leader.kill()
        _change(other, "after-many", began_s)
        change[name] = time.monotonic() - began_s
        began_s = time.monotonic()
        cluster.start_missing()
        restart[name] = time.monotonic() - began_s
        all_unfenced(cluster)
    with_them = f"{partitions:,} partitions"
    yield _compared(f"cluster: {with_them} created", creation, None, _seconds)
    yield _compared(f"cluster: fail-over with {with_them}, until a change", change, None, _seconds)
    yield _compared(f"cluster: start of the killed node with {with_them}", restart, None, _seconds)


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _compared(name: str, found: dict[str, float], target: float | None, shown: Callable[[float], str]) -> Result:
    return Result(name, _ratio(found), target, "; ".join(f"{who}: {shown(each)}" for who, each in found.items()))


def _ratio(found: dict[str, float]) -> float:
    """How often ours goes into Kafka's; above one is better."""
    return found["Kafka"] / found["ours"] if "Kafka" in found and found["ours"] else float("nan")
