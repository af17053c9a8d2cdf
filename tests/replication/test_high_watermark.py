"""The arithmetic of the high watermark, against the plain reading of its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.replication.high_watermark import advanced_high_watermark


@given(
    st.integers(0, 10),
    st.integers(0, 20),
    st.lists(st.integers(-1, 20), max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_an_offset_is_committed_once_all_that_count_have_it(
    current: int, end_offset: int, counted_ends: list[int], isr_size: int, min_isr: int
) -> None:
    end_offset = max(end_offset, current)
    found = advanced_high_watermark(current, end_offset, counted_ends, isr_size, min_isr)

    def is_committed(offset: int) -> bool:
        """Whether all replicas that count have the record at `offset`."""
        return offset < end_offset and all(end > offset for end in counted_ends)

    expected = current
    while isr_size >= min_isr and is_committed(expected):
        expected += 1
    assert found == expected


def test_it_stands_still_while_too_few_are_in_sync() -> None:
    assert advanced_high_watermark(3, 9, [9], 1, 2) == 3
    assert advanced_high_watermark(3, 9, [9], 2, 2) == 9
