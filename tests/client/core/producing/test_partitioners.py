"""Who decides where a record goes, and what they take into account."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from barnabas.base.errors import SettingsError
from barnabas.base.settings import Plugin
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.producing.partitioners import (
    NodeDelays,
    RoundRobinPartitioner,
    as_partitioner,
    checked_partition,
    next_sticky_partition,
    partition_for_key,
)
from tests.client.core.producing.append_world import TOPIC, cluster


def chosen(view: ClusterView, **arguments: Any) -> Counter[int]:
    randomness = Random(1)
    return Counter(next_sticky_partition(TOPIC, view, randomness, **arguments) for _ in range(6000))


@pytest.mark.parametrize(
    ("key", "partition"),
    # What Kafka's own BuiltInPartitioner.partitionForKey answers for 11 partitions.
    [(b"", 2), (b"a", 5), (b"21", 5), (b"foobar", 8), (b"a-little-bit-long-string", 1), (b"\x00\xff\x80", 0)],
)
def test_keys_go_where_java_sends_them(key: bytes, partition: int) -> None:
    assert partition_for_key(key, 11) == partition


def test_the_next_sticky_partition_has_a_leader_if_any_has() -> None:
    assert set(chosen(cluster({TOPIC: [1, -1, 1]}))) == {0, 2}
    assert set(chosen(cluster({TOPIC: [-1, -1]}))) == {0, 1}


def test_long_queues_are_chosen_less() -> None:
    counts = chosen(cluster({TOPIC: [1, 1, 1]}), queue_lengths=[0, 3, 1])
    # The longest plus one, less each: weights 4, 1 and 3.
    assert [round(counts[number] * 8 / 6000) for number in range(3)] == [4, 1, 3]


def test_equal_queues_are_chosen_alike() -> None:
    counts = chosen(cluster({TOPIC: [1, 1]}), queue_lengths=[5, 5])
    assert abs(counts[0] - counts[1]) < 400


def test_nodes_that_take_nothing_for_too_long_are_left_out() -> None:
    view = cluster({TOPIC: [1, 2]})
    delays = NodeDelays(100)
    for now_ms in (0, 50, 101):
        delays.note(1, now_ms, can_drain=False)
        delays.note(2, now_ms, can_drain=True)
    assert not delays.is_available(1)
    assert set(chosen(view, queue_lengths=[0, 0], delays=delays)) == {1}
    delays.note(1, 120, can_drain=True)
    assert set(chosen(view, queue_lengths=[0, 0], delays=delays)) == {0, 1}


def test_if_no_node_takes_anything_all_are_as_good() -> None:
    delays = NodeDelays(100)
    for now_ms in (0, 200):
        delays.note(1, now_ms, can_drain=False)
    assert set(chosen(cluster({TOPIC: [1, 1]}), queue_lengths=[0, 0], delays=delays)) == {0, 1}


def test_without_a_timeout_no_node_is_left_out() -> None:
    delays = NodeDelays(0)
    delays.note(1, 0, can_drain=False)
    delays.note(1, 10**9, can_drain=False)
    assert delays.is_available(1)


def test_round_robin_takes_turns_among_those_with_a_leader() -> None:
    partitioner = as_partitioner(Plugin("roundrobin"), {})
    assert isinstance(partitioner, RoundRobinPartitioner)
    view = cluster({TOPIC: [1, -1, 1], "other": [-1, -1]})
    assert [partitioner.partition(TOPIC, None, b"k", None, None, view) for _ in range(4)] == [0, 2, 0, 2]
    assert [partitioner.partition("other", None, None, None, None, view) for _ in range(3)] == [0, 1, 0]


def test_a_plug_in_is_made_and_configured() -> None:
    class Last:
        def configure(self, settings: Any) -> None:
            self.settings = settings

        def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, view: Any) -> int:
            return len(view.partitions(topic)) - 1

    partitioner = as_partitioner(Plugin("Last", Last), {"a": 1})
    assert isinstance(partitioner, Last)
    assert partitioner.settings == {"a": 1}
    assert partitioner.partition(TOPIC, None, None, None, None, cluster({TOPIC: [1, 1]})) == 1


def test_a_function_sees_key_and_partitions_as_in_other_clients() -> None:
    seen: list[Any] = []

    def function(key: Any, everyone: Any, available: Any) -> int:
        seen.append((key, everyone, available))
        return 1

    partitioner = as_partitioner(function, {})
    assert partitioner is not None
    assert partitioner.partition(TOPIC, "k", b"k", None, None, cluster({TOPIC: [1, -1]})) == 1
    assert seen == [(b"k", [0, 1], [0])]


def test_what_is_no_partitioner_is_refused() -> None:
    assert as_partitioner(None, {}) is None
    with pytest.raises(SettingsError, match="no method partition"):
        as_partitioner(Plugin("x", 3), {})


@pytest.mark.parametrize("answer", [-1, 2, None, "0", True])
def test_answers_that_are_no_partition_are_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="partitions 0 to 1"):
        checked_partition(answer, TOPIC, cluster({TOPIC: [1, 1]}))
