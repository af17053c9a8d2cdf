"""What hypothesis draws records from."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.records.naive import NaiveRecord

contents = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"", b"x" * 63, b"x" * 64, b"y" * 9000]))
names = st.text("ab \0ß\u07ff€漢\uffff😀", max_size=12)  # of every length in UTF-8, and the last ones of a length
headers = st.lists(st.tuples(names, st.one_of(st.none(), st.binary(max_size=12))), max_size=4).map(tuple)
timestamps = st.one_of(
    st.integers(1_600_000_000_000, 1_800_000_000_000), st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)
)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = False, max_size: int = 12) -> list[NaiveRecord]:
    parts = draw(st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=max_size))
    deltas = list(range(len(parts)))
    if gaps:
        deltas = sorted(
            draw(st.sets(st.one_of(st.integers(0, 40), st.integers(0, 2**31 - 1)), min_size=len(parts), max_size=40))
        )
    return [NaiveRecord(*part, offset_delta=delta) for part, delta in zip(parts, deltas, strict=False)]
