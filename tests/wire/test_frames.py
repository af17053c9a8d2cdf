"""Frames: whole ones come out, whatever the pieces in which they arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.wire import FrameReceiver, FrameSplitter, frame_parts


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


def receive(receiver: FrameReceiver, data: bytes) -> list[bytes]:
    """As a socket does: as much as the buffer takes, again and again."""
    frames = []
    while data and receiver.broken is None:
        buffer = receiver.get_buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        frames += [bytes(frame) for frame in receiver.received(count)]
    return frames


@given(
    frames=st.lists(st.binary(min_size=1, max_size=60), max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=10),
    scratch_bytes=st.integers(4, 70),
    trusted_bytes=st.integers(0, 70),
)
def test_a_receiver_gives_the_same_frames(
    frames: list[bytes], cuts: list[int], scratch_bytes: int, trusted_bytes: int
) -> None:
    stream = b"".join(b"".join(frame_parts([frame])) for frame in frames)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    scratch = bytearray(scratch_bytes)
    receiver = FrameReceiver(scratch, trusted_frame_bytes=trusted_bytes)
    received = []
    for start, end in itertools.pairwise(edges):
        received += receive(receiver, stream[start:end])
        scratch[:] = b"#" * scratch_bytes  # another receiver uses it
    assert received == frames
    assert receiver.buffered_bytes == receiver.announced_bytes == 0


@pytest.mark.parametrize("size", [0, -1, -(2**31), 11, 2**31 - 1])
def test_a_receiver_gives_what_came_before_a_bad_size(size: int) -> None:
    receiver = FrameReceiver(bytearray(100), max_frame_bytes=10)
    assert receive(receiver, b"\0\0\0\x02hi" + size.to_bytes(4, "big", signed=True) + b"x" * 30) == [b"hi"]
    assert receiver.broken == f"a frame of {size} bytes was announced; between 1 and 10 are allowed"
    assert receiver.announced_bytes == 0


def test_an_announcement_alone_takes_no_memory() -> None:
    receiver = FrameReceiver(bytearray(1000))
    assert receive(receiver, (100_000_000).to_bytes(4, "big") + b"x" * 900) == []
    assert (receiver.announced_bytes, receiver.buffered_bytes) == (100_000_000, 900)
    assert len(receiver.get_buffer()) <= 1_048_576


def test_a_frame_of_a_size_that_is_trusted_gets_its_memory_at_once() -> None:
    receiver = FrameReceiver(bytearray(1000), trusted_frame_bytes=3_000_000)
    assert receive(receiver, (3_000_000).to_bytes(4, "big") + b"x" * 900) == []
    assert len(receiver.get_buffer()) == 3_000_000 - 900


def test_a_large_frame_arrives_in_its_own_buffer() -> None:
    receiver = FrameReceiver(bytearray(1000))
    body = bytes(range(256)) * 4000
    (frame,) = receive(receiver, len(body).to_bytes(4, "big") + body)
    assert frame == body
