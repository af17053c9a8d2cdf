"""How large batches get: as large as somebody said, or as large as is good for all."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.client.core.producing.batch_sizes import LARGEST_BYTES, BatchSizes

KIB = 1024
BATCH_BYTES = 16 * KIB
HERE = TopicPartition("castle", 0)
THERE = TopicPartition("castle", 1)

sizes_in_bytes = st.integers(1, 2 * LARGEST_BYTES)
events = st.lists(
    st.one_of(
        st.tuples(st.just("answered"), st.sampled_from([HERE, THERE]), sizes_in_bytes, st.integers(0, 60_000)),
        st.tuples(st.just("unanswered"), st.sampled_from([HERE, THERE])),
        st.tuples(st.just("refused"), st.sampled_from([HERE, THERE]), sizes_in_bytes),
    )
)


def play(sizes: BatchSizes, story: list[tuple[Any, ...]]) -> None:
    for what, *arguments in story:
        getattr(sizes, what)(*arguments)


def until_full(sizes: BatchSizes, partition: TopicPartition = HERE) -> list[int]:
    """The sizes that a batch goes through that is filled with small records."""
    seen = [sizes.batch_bytes]
    while (grown := sizes.grown_bytes(partition, seen[-1], seen[-1] + 1, 0)) > seen[-1]:
        seen.append(grown)
    return seen


@given(events, st.integers(0, LARGEST_BYTES), sizes_in_bytes, st.integers(0, 200))
def test_a_size_that_was_given_is_obeyed_whatever_happens(
    story: list[tuple[Any, ...]], batch_bytes: int, needed_bytes: int, age_ms: int
) -> None:
    sizes = BatchSizes(batch_bytes, 0)
    play(sizes, story)
    assert sizes.largest_bytes(HERE) == batch_bytes
    assert sizes.grown_bytes(HERE, batch_bytes, needed_bytes, age_ms) == batch_bytes


@given(events, st.integers(0, LARGEST_BYTES), st.integers(0, LARGEST_BYTES), sizes_in_bytes, sizes_in_bytes)
def test_no_batch_grows_past_the_limit_nor_is_smaller_than_batch_size(
    story: list[tuple[Any, ...]], batch_bytes: int, ceiling_bytes: int, size_bytes: int, needed_bytes: int
) -> None:
    sizes = BatchSizes(batch_bytes, ceiling_bytes)
    play(sizes, story)
    largest_bytes = sizes.largest_bytes(HERE)
    assert batch_bytes <= largest_bytes <= max(batch_bytes, ceiling_bytes)
    grown_bytes = sizes.grown_bytes(HERE, size_bytes, max(needed_bytes, size_bytes + 1), 0)
    assert grown_bytes == size_bytes or max(needed_bytes, size_bytes) < grown_bytes + 1 <= largest_bytes + 1


@given(events, st.integers(BATCH_BYTES + 1, 2 * LARGEST_BYTES), events)
def test_what_was_refused_is_remembered_whatever_comes_after(
    before: list[tuple[Any, ...]], size_bytes: int, after: list[tuple[Any, ...]]
) -> None:
    sizes = BatchSizes(BATCH_BYTES, LARGEST_BYTES)
    play(sizes, before)
    sizes.refused(HERE, size_bytes)
    play(sizes, after)
    assert sizes.largest_bytes(HERE) <= max(BATCH_BYTES, size_bytes // 2)


def test_a_refusal_concerns_one_partition() -> None:
    sizes = BatchSizes(BATCH_BYTES, LARGEST_BYTES)
    sizes.refused(HERE, 200 * KIB)
    assert sizes.largest_bytes(HERE) == 100 * KIB
    assert sizes.largest_bytes(THERE) == 256 * KIB


def test_a_batch_of_batch_size_is_tried_in_any_case() -> None:
    sizes = BatchSizes(BATCH_BYTES, LARGEST_BYTES)
    sizes.refused(HERE, 10)
    assert sizes.largest_bytes(HERE) == BATCH_BYTES


def test_it_grows_in_steps_and_further_when_large_ones_are_answered_quickly() -> None:
    sizes = BatchSizes(BATCH_BYTES, LARGEST_BYTES)
    assert until_full(sizes) == [size * KIB for size in (16, 32, 64, 128, 256)]
    sizes.answered(HERE, 100 * KIB, 3)
    assert until_full(sizes)[-1] == 256 * KIB, "what was not tried is not known"
    sizes.answered(HERE, 250 * KIB, 3)
    assert until_full(sizes) == [size * KIB for size in (16, 32, 64, 128, 256, 512, 768, 1024)]
    assert until_full(sizes, THERE)[-1] == 256 * KIB


def test_over_a_thin_line_they_shrink_and_later_grow_again() -> None:
    sizes = BatchSizes(BATCH_BYTES, LARGEST_BYTES)
    sizes.answered(HERE, 250 * KIB, 3)
    seen = []
    for _ in range(7):
        sizes.answered(HERE, sizes.largest_bytes(HERE), 6_000)
        seen.append(sizes.largest_bytes(HERE) // KIB)
    assert seen == [512, 256, 128, 64, 32, 16, 16]
    sizes.answered(HERE, BATCH_BYTES, 2_000)
    assert until_full(sizes) == [BATCH_BYTES], "neither quick nor slow"
    for _ in range(3):
        sizes.answered(HERE, sizes.largest_bytes(HERE), 3)
    assert until_full(sizes)[-1] == LARGEST_BYTES


def test_where_no_answer_comes_they_shrink() -> None:
    sizes = BatchSizes(BATCH_BYTES, LARGEST_BYTES)
    for _ in range(3):
        sizes.unanswered(HERE)
    assert sizes.largest_bytes(HERE) == 32 * KIB


def test_a_batch_that_has_waited_for_long_takes_no_more() -> None:
    """What joins it would have to be acknowledged before the delivery timeout of its first record."""
    sizes = BatchSizes(BATCH_BYTES, LARGEST_BYTES)
    assert sizes.grown_bytes(HERE, BATCH_BYTES, BATCH_BYTES + 1, 100) == 2 * BATCH_BYTES
    assert sizes.grown_bytes(HERE, BATCH_BYTES, BATCH_BYTES + 1, 101) == BATCH_BYTES


def test_a_large_record_gets_the_room_that_it_needs_or_a_batch_of_its_own() -> None:
    sizes = BatchSizes(BATCH_BYTES, LARGEST_BYTES)
    assert sizes.grown_bytes(HERE, BATCH_BYTES, 200 * KIB, 0) == 200 * KIB
    assert sizes.grown_bytes(HERE, BATCH_BYTES, 257 * KIB, 0) == BATCH_BYTES
