"""Frames: whole ones come out, whatever the pieces in which they arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.wire import FrameSplitter, frame_parts


@given(frames=st.lists(st.binary(min_size=1, max_size=30), max_size=6), cuts=st.lists(st.integers(0, 200), max_size=10))
def test_frames_survive_any_cutting(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(b"".join(frame_parts([frame[:3], frame[3:]])) for frame in frames)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    splitter = FrameSplitter()
    received = [bytes(frame) for start, end in itertools.pairwise(edges) for frame in splitter.feed(stream[start:end])]
    assert received == frames
    assert splitter.buffered_bytes == 0


@pytest.mark.parametrize("size", [0, -1, -(2**31), 11, 2**31 - 1])
def test_a_size_outside_the_limits_ends_it(size: int) -> None:
    splitter = FrameSplitter(max_frame_bytes=10)
    announcement = size.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError, match=f"a frame of {size} bytes was announced; between 1 and 10"):
        list(splitter.feed(announcement + b"x" * 100))
    assert splitter.buffered_bytes == 4
    with pytest.raises(RemoteProtocolError, match="was announced"):
        list(splitter.feed(b"\0\0\0\x01a"))


def test_an_empty_frame_cannot_be_sent() -> None:
    with pytest.raises(LocalProtocolError, match="a frame cannot have 0 bytes"):
        frame_parts([b"", b""])
