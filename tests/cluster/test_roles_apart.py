"""Controllers and brokers in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import Consumer, Producer
from tests.cluster.asking import active, all_unfenced, create, created, quorum, topics, until
from tests.cluster.nodes import Cluster

_NOBODY = (7, 41)


def roles(controllers: int, brokers: int) -> dict[int, str]:
    kinds = ["controller"] * controllers + ["broker"] * brokers
    return dict(enumerate(kinds, 1))


def _use(cluster: Cluster, topic: str) -> None:
    first, second = cluster.brokers
    created(first, topic, 2)
    with Producer(bootstrap_servers=second.bootstrap) as producer:
        for partition in (0, 1):
            producer.send(topic, b"v", partition=partition).result(30)
    with Consumer(topic, bootstrap_servers=first.bootstrap, auto_offset_reset="earliest", group_id=topic) as consumer:
        found = 0
        while found < 2:
            found += len(consumer.poll(30))


@pytest.mark.slow
def test_five_controllers_serve_with_two_dead_and_not_with_three(tmp_path: Path) -> None:
    with Cluster(tmp_path, roles(5, 2)) as cluster:
        all_unfenced(cluster)
        _use(cluster, "all-alive")
        for count in (1, 2):
            leader, epoch = active(cluster)
            leader.kill()
            _, later = active(cluster, above=epoch)
            assert later > epoch
            _use(cluster, f"dead-{count}")
        active(cluster)[0].kill()
        code, message = create(cluster.brokers[0], "of-a-minority", timeout_ms=2000)
        assert code in _NOBODY, message
        assert "dead-2" in topics(cluster.brokers[1])  # what is known is still told
        cluster.start_missing()
        _use(cluster, "alive-again")
        assert "of-a-minority" not in topics(cluster.brokers[0])


@pytest.mark.slow
def test_three_controllers_and_two_brokers(tmp_path: Path) -> None:
    with Cluster(tmp_path, roles(3, 2)) as cluster:
        all_unfenced(cluster)
        _use(cluster, "apart")
        leader, epoch = active(cluster)
        for broker in cluster.brokers:
            assert quorum(broker.bootstrap) == (leader.node_id, epoch)
        # A clean stop of the active controller hands over; brokers stay unfenced.
        assert leader.stop() == 0
        active(cluster, above=epoch)
        _use(cluster, "handed-over")
        # All stop and start again: everything is there.
        for each in cluster.nodes.values():
            if each.is_running:
                each.stop()
        cluster.start()
        all_unfenced(cluster)
        until("the topics are there", lambda: {"apart", "handed-over"} <= topics(cluster.brokers[0]))
