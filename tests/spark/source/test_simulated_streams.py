"""A few hundred stories of streams; what must hold in them stands in `simulated_streams`."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

import pytest

import barnabas
from barnabas.spark.reading import RangePartition
from barnabas.spark.streaming import StreamReader
from tests.spark.source.simulated_streams import VARIANTS, Brokers, World, play
from tests.spark.source.support import next_batch, planned, stream_reader


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Losses are warned about; here there are thousands."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_row_is_lost_in_silence_and_none_is_taken_twice(variant: str) -> None:
    taken = sum(len(rows) for seed in range(250) for rows in play(seed, variant).sink.values())
    assert taken > 1000


def test_a_story_follows_from_its_seed() -> None:
    assert play(7, "lenient").trace == play(7, "lenient").trace


@contextmanager
def reader_of(world: World, moment: Callable[[], None] = lambda: None) -> Iterator[StreamReader]:
    brokers = Brokers(world, moment)
    with patch.object(barnabas, "Admin", lambda client: brokers):
        yield stream_reader("simulated:1", subscribe="t", failOnDataLoss=False, startingOffsets="earliest")


def test_a_topic_that_comes_between_two_looks_is_known_from_the_second() -> None:
    world, questions = World(Random(0), ("t",), harm=0), itertools.count(1)

    def moment() -> None:
        # The first question finds no topic; the second is for the first offset of a new partition.
        if next(questions) == 2:
            world.create("t", [6, 3])

    start, end = {"t": {"0": 4}}, {"t": {"0": 6, "1": 3}}
    with reader_of(world, moment) as reader:
        assert planned(reader, start, end) == [("t", 0, 4, 6), ("t", 1, 0, 3)]
        world.create("t", [9, 9])
        following = next_batch(reader, end)
        assert following is not None
        assert planned(reader, end, following) == [("t", 0, 0, 9), ("t", 1, 0, 9)]


def test_first_offsets_of_one_topic_are_not_taken_for_those_of_the_next() -> None:
    world = World(Random(0), ("t",), harm=0)
    world.create("t", [9])
    with reader_of(world) as reader:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        first = next_batch(reader, start)
        assert first is not None
        again = world.create("t", [9])
        again.firsts[0] = 5
        planned(reader, start, first)
        second = next_batch(reader, first)
        assert second is not None
        world.create("t", [9])
        # What begins at 5 is the second topic, not the third.
        assert reader.partitions(first, second) == [RangePartition("t", 0, 5, 9, str(again.topic_id))]
        third = next_batch(reader, second)
        assert third is not None
        assert planned(reader, second, third) == [("t", 0, 0, 9)]


def test_partitions_that_only_the_topic_before_had_are_no_part_of_an_end() -> None:
    world, questions = World(Random(0), ("t",), harm=0), itertools.count(1)
    world.create("t", [4, 4])

    def moment() -> None:
        # After the ends are known, and before the first offsets are asked for.
        if next(questions) == 5:
            world.create("t", [4])

    with reader_of(world, moment) as reader:
        start = reader.initialOffset()
        world.create("t", [4, 4])
        end = next_batch(reader, start)
        assert end is not None
        assert end["t"] == {"0": 4}
