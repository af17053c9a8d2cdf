"""The arithmetic of the high watermark, against the plain reading of its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.replication.high_watermark import advanced_high_watermark

replica_sets = st.sets(st.integers(2, 5)).map(lambda others: (1, *sorted(others)))


@given(
    st.integers(0, 10),
    st.integers(0, 20),
    st.dictionaries(st.integers(2, 5), st.integers(-1, 20)),
    replica_sets,
    replica_sets,
    st.integers(1, 4),
)
def test_an_offset_is_committed_once_all_that_count_have_it(
    current: int,
    end_offset: int,
    follower_ends: dict[int, int],
    isr: tuple[int, ...],
    joining: tuple[int, ...],
    min_isr: int,
) -> None:
    end_offset = max(end_offset, current)
    maximal = tuple(sorted({*isr, *joining}))
    found = advanced_high_watermark(current, end_offset, follower_ends, isr, maximal, min_isr)

    def is_committed(offset: int) -> bool:
        """Whether all replicas that count have the record at `offset`."""
        return offset < end_offset and all(
            follower_ends[replica] > offset for replica in maximal if replica in follower_ends
        )

    expected = current
    while len(isr) >= min_isr and is_committed(expected):
        expected += 1
    assert found == expected


def test_it_stands_still_while_too_few_are_in_sync() -> None:
    assert advanced_high_watermark(3, 9, {2: 9}, (1,), (1, 2), 2) == 3
    assert advanced_high_watermark(3, 9, {2: 9}, (1, 2), (1, 2), 2) == 9


def test_a_replica_that_may_be_in_sync_soon_counts_already() -> None:
    assert advanced_high_watermark(0, 9, {2: 7, 3: 4}, (1, 2), (1, 2, 3), 1) == 4
    assert advanced_high_watermark(0, 9, {2: 7, 3: 4}, (1, 2), (1, 2), 1) == 7
