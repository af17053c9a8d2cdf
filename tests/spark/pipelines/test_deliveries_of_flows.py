"""What flows that write exactly once have decided, told by their control topics."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.spark.pipelines.delivering import Deliveries
from barnabas.spark.pipelines.graph import SINK, TABLE, Dataset, Flow, Graph
from barnabas.spark.pipelines.reporting import Delivered
from barnabas.testing import EmbeddedBroker
from tests.spark.exactly_once.real_batches import RealBatches


def graph(servers: str, control_topic: str) -> Graph:
    control = ({"bootstrap.servers": servers}, control_topic)
    return Graph(
        {
            "topic": Dataset("topic", SINK, "", "barnabas", True, control),
            "clicks": Dataset("clicks", TABLE, ""),
        },
        {"copy": Flow("copy", "topic", ""), "clicks": Flow("clicks", "clicks", "")},
    )


def test_decisions_of_this_run_are_counted(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> None:
    batches = RealBatches(broker.bootstrap_servers, new_topic(), control_topic="control-of-deliveries")
    told = {"name": "copy", "id": batches.stream.query}
    deliveries = Deliveries()
    deliveries.follow(graph(broker.bootstrap_servers, "control-of-deliveries"))
    assert deliveries.after(told) == Delivered(0, 0, 0, 0)
    assert deliveries.after({"name": "clicks", "id": "q"}) is None
    batches.commit(0, batches.write(0, [["a"], ["bc", "d"], []]))
    assert deliveries.after(told) == Delivered(2, 0, 3, 4)
    written = batches.write(1, [["e"]])
    assert deliveries.after(told) == Delivered(2, 1, 3, 4)
    batches.commit(1, written)
    # A driver that takes over tells of the same decision again.
    batches.restart()
    batches.commit(1, batches.write(1, [["e"]]))
    assert deliveries.after(told) == Delivered(3, 0, 4, 5)
    deliveries.close()
    # A later run counts its own.
    deliveries.follow(graph(broker.bootstrap_servers, "control-of-deliveries"))
    batches.commit(2, batches.write(2, [["f"]]))
    assert deliveries.after(told) == Delivered(1, 0, 1, 1)
    deliveries.close()
    # What another has decided before, and this run only takes over, is not its own.
    deliveries.follow(graph(broker.bootstrap_servers, "control-of-deliveries"))
    batches.restart()
    batches.commit(2, batches.write(2, [["f"]]))
    assert deliveries.after(told) == Delivered(0, 0, 0, 0)
    deliveries.close()


def test_a_cluster_that_does_not_answer_is_no_failure() -> None:
    deliveries = Deliveries(follower_of=lambda cluster, topic: (_ for _ in ()).throw(ValueError("nobody")))
    deliveries.follow(graph("127.0.0.1:1", "control"))
    assert deliveries.after({"name": "copy", "id": "q"}) is None
    deliveries.close()
