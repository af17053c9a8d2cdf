"""What cannot work is refused or waited for, in one line that names both sides."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.wire.stored.cluster_metadata import FeatureLevelRecord
from tests.cluster.asking import active, create, created, topics, until
from tests.cluster.nodes import Cluster, Node

_OTHER_CLUSTER = "ThisIsAnotherCluster_A"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two of three nodes run: the third is up to the test."""
    cluster = Cluster(tmp_path_factory.mktemp("pair"))
    for node_id in (1, 2):
        cluster.write(cluster[node_id])
        cluster.format(cluster[node_id])
    try:
        cluster[1].launch()
        _alone(cluster)
        cluster[2].launch()
        for node_id in (1, 2):
            cluster[node_id].until_ready()
        yield cluster
    finally:
        cluster.end()


def _alone(cluster: Cluster) -> None:
    """Node 1, started alone, neither fails nor serves: it says for whom it waits."""
    others = ", ".join(f"{each} at {cluster[each].controller}" for each in (2, 3))
    line = f"Node 1 waits: no controller leads; of the voters {others} enough must run to be a majority"
    until("node 1 says for whom it waits", lambda: line in cluster[1].told())
    assert cluster[1].is_running


def refused(node: Node) -> str:
    """What a node says that does not start."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "barnabas",
            "server",
            "start",
            str(node.file),
            "-q",
            "--log-file",
            f"{node.log}.refused",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0, done
    assert "ready" not in done.stdout
    return done.stderr.strip()


def test_two_of_three_serve_and_one_takes_no_change(pair: Cluster) -> None:
    created(pair[1], "of-two")
    pair[2].pause()
    code, message = create(pair[1], "of-one", timeout_ms=1500)
    assert code in (7, 41), message
    pair[2].go_on()
    leader, _ = active(pair)
    created(pair[2], "of-two-again")
    until("both know it", lambda: "of-two-again" in topics(leader))


def test_a_directory_of_another_cluster(pair: Cluster, tmp_path: Path) -> None:
    stranger = Node(3, pair[3].roles, tmp_path, int(pair[3].bootstrap[10:]), int(pair[3].controller[10:]))
    pair.write(stranger)
    pair.format(stranger, _OTHER_CLUSTER)
    said = refused(stranger)
    assert f"node 3 belongs to the cluster {_OTHER_CLUSTER}" in said
    assert f"to the cluster {pair.cluster_id}" in said
    assert "\n" not in said


def test_voters_that_disagree(pair: Cluster, tmp_path: Path) -> None:
    broker = Node(7, "broker", tmp_path, 0, 0)
    broker.bootstrap = "127.0.0.1:0"
    pair.write(broker, {"controller.quorum.voters": f"1@{pair[1].controller},2@{pair[2].controller}"})
    pair.format(broker)
    said = refused(broker)
    leader, _ = active(pair)
    assert said.endswith(
        "controller.quorum.voters names 1, 2 for node 7, but 1, 2, 3 for the active controller, "
        f"{leader.node_id} at {leader.controller}; all nodes must have the same voters"
    )


def test_voters_with_each_others_addresses(pair: Cluster, tmp_path: Path) -> None:
    broker = Node(7, "broker", tmp_path, 0, 0)
    broker.bootstrap = "127.0.0.1:0"
    swapped = {1: pair[1].controller, 2: pair[3].controller, 3: pair[2].controller}
    voters = ",".join(f"{node_id}@{address}" for node_id, address in swapped.items())
    pair.write(broker, {"controller.quorum.voters": voters})
    pair.format(broker)
    said = refused(broker)
    assert (
        f"controller.quorum.voters has voter 2 at {pair[3].controller} for node 7, but at {pair[2].controller} for the "
        "active controller"
    ) in said


def test_a_voter_id_twice(pair: Cluster, tmp_path: Path) -> None:
    """Each has its own machine, so no port and no lock keeps them apart: the second to come has to go."""
    first, second = (Node(3, "controller", tmp_path / name, 0, 0) for name in ("first", "second"))
    first.controller = pair[3].controller
    second.controller = "127.0.0.1:0"
    for node in (first, second):
        node.file.parent.mkdir()
        pair.write(node)
        pair.format(node)
    try:
        first.launch()
        first.until_ready()
        second.launch()
        assert second.process is not None
        assert second.process.wait(60) != 0
        assert first.is_running
    finally:
        first.end()
        second.end()
    assert "two controllers have node.id = 3: this one at 127.0.0.1:" in second.told()
    assert f"and one at {first.controller} that has registered after it" in second.told()
    assert f"two controllers have node.id = 3: this one at {first.controller}" in first.told()


def test_a_node_id_twice(pair: Cluster, tmp_path: Path) -> None:
    """Of brokers, the one that is registered stays."""
    first, second = (Node(8, "broker", tmp_path / name, 0, 0) for name in ("first", "second"))
    for node in (first, second):
        node.file.parent.mkdir()
        node.bootstrap = "127.0.0.1:0"
        pair.write(node, {"initial.broker.registration.timeout.ms": "1500"})
        pair.format(node)
    try:
        first.launch()
        first.until_ready()
        said = refused(second)
    finally:
        first.end()
    assert "node.id = 8, and this node is at 127.0.0.1:" in said
    assert "a broker with this id is registered and alive at 127.0.0.1:" in said
    assert "give one of them another node.id" in said


@pytest.mark.parametrize(
    ("roles", "changes", "said"),
    [
        ("broker", {}, "a node that is only a broker cannot be one of the voters, and 3 is among them"),
        ("broker,controller", {"process.roles": ""}, "process.roles"),
        ("broker,controller", {"node.id": "4"}, "must be one of the voters, and 4 is not among them"),
    ],
)
def test_files_that_contradict_themselves(
    pair: Cluster, tmp_path: Path, roles: str, changes: dict[str, str], said: str
) -> None:
    node = Node(3, roles, tmp_path, 1, 2)
    pair.write(node, changes)
    assert said in refused(node)


def test_a_level_that_is_not_built(pair: Cluster, tmp_path: Path) -> None:
    from barnabas.broker.quorum.formatting import write_bootstrap
    from barnabas.storage.real_files import RealFileSystem

    alone = Cluster(tmp_path, {1: "broker,controller"})
    alone.prepare()
    records = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    write_bootstrap(RealFileSystem(), str(alone[1].data), list(records), now_ms=0)
    said = refused(alone[1])
    assert "the cluster was finalised with metadata.version 30 (4.3-IV0); built is metadata.version up to 25" in said
