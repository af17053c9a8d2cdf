"""Length-prefixed frames: four bytes of size, then header and body.

`FrameSplitter` turns whatever arrives into whole frames; `FrameReceiver` does the same for those who can choose where
bytes arrive, and spares large frames a copy; `frame_parts` puts the size in front of what is to be sent. None of them
knows of sockets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from barnabas.base._kernel.scratch import scratch as uncleared
from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.wire.compiler import Buffer

SIZE_BYTES = 4
MAX_FRAME_BYTES = 0x7FFFFFFF

_SIZE: Final = Struct(">i")
#: A frame's buffer grows by at most this much ahead of the bytes that arrived.
_GROWTH_BYTES: Final = 1_048_576
_ZEROS: Final = memoryview(bytes(_GROWTH_BYTES))


class FrameSplitter:
    """Collects received bytes and gives out frames.

    Guarantees: a frame comes out only when it is whole; a size that is not positive or above the limit is an error as
    soon as its four bytes are there, before anything of the body is kept; after an error nothing comes out any more.
    Each frame is a buffer of its own, so that views into it live as long as they are needed.
    """

    __slots__ = ("_broken", "_frame", "_missing", "_size", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = 104_857_600) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._size = bytearray()
        self._frame = bytearray()
        self._missing = 0
        self._broken: str | None = None

    @property
    def buffered_bytes(self) -> int:
        """What has been kept of a frame that is not whole yet."""
        return len(self._size) + len(self._frame)

    def whole_frame(self, data: bytes) -> bytes | None:
        """The frame, if what arrived is just that, as nearly always between two who wait for each other; else None, and
        it is to be fed."""
        size = len(data) - SIZE_BYTES
        is_whole = 0 < size <= self.max_frame_bytes and int.from_bytes(data[:SIZE_BYTES], "big") == size
        return data[SIZE_BYTES:] if is_whole and not (self._size or self._missing or self._broken) else None

    def feed(self, data: Buffer) -> Iterator[bytearray]:
        """Take what arrived, yield the frames that it completes. The iterator must be read to its end."""
        view = memoryview(data)
        while len(view):
            if self._broken:
                raise RemoteProtocolError(self._broken)
            if not self._missing:
                take = SIZE_BYTES - len(self._size)
                self._size += view[:take]
                view = view[take:]
                if len(self._size) < SIZE_BYTES:
                    return
                self._begin_frame()
            piece = view[: self._missing]
            self._frame += piece
            self._missing -= len(piece)
            view = view[len(piece) :]
            if not self._missing:
                frame, self._frame = self._frame, bytearray()
                self._size.clear()
                yield frame

    def _begin_frame(self) -> None:
        size = int.from_bytes(self._size, "big", signed=True)
        if not 0 < size <= self.max_frame_bytes:
            self._broken = _complaint(size, self.max_frame_bytes)
            raise RemoteProtocolError(self._broken)
        self._missing = size


class FrameReceiver:
    """Says where the next bytes should be put, and gives out the frames that they complete.

    Between frames bytes go to a scratch buffer, which many receivers may share as long as nothing else happens between
    `get_buffer` and `received`. The rest of a frame that did not fit there goes straight to the frame's own buffer.

    Guarantees: those of `FrameSplitter`, except that a size outside the limits shows as `broken`, after the frames
    before it were given out; a frame's buffer is never more than 1 MiB larger than what arrived of it, except that
    frames of up to `trusted_frame_bytes` get theirs whole when they are announced, which is faster.
    """

    __slots__ = (
        "_filled",
        "_frame",
        "_held",
        "_scratch",
        "_scratch_view",
        "_view",
        "announced_bytes",
        "broken",
        "max_frame_bytes",
        "trusted_frame_bytes",
    )

    def __init__(self, scratch: bytearray, max_frame_bytes: int = 104_857_600, *, trusted_frame_bytes: int = 0) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.trusted_frame_bytes = trusted_frame_bytes
        #: Why nothing more can be received, if so.
        self.broken: str | None = None
        self._scratch = scratch
        self._scratch_view = memoryview(scratch)
        #: The beginning of a size: at most three bytes.
        self._held = b""
        #: The size of the frame that has begun to arrive; 0 between frames.
        self.announced_bytes = 0
        self._frame = bytearray()
        self._filled = 0
        self._view: memoryview | None = None

    @property
    def buffered_bytes(self) -> int:
        """What has been kept of a frame that is not whole yet."""
        return self._filled or len(self._held)

    def get_buffer(self) -> memoryview:
        """Where to put what arrives next. Never empty."""
        if not self.announced_bytes:
            held = len(self._held)
            if not held:
                return self._scratch_view
            self._scratch[:held] = self._held
            return self._scratch_view[held:]
        if self._view is not None:
            # A buffer cannot grow while somebody may look at it.
            self._view.release()
        filled = self._filled
        if filled == len(self._frame):
            self._frame += _ZEROS[: self.announced_bytes - filled]
        view = self._view = memoryview(self._frame)[filled:]
        return view

    def received(self, count: int) -> list[bytearray]:
        """Take note that `count` bytes were put into the buffer; the frames that are whole now."""
        if not self.announced_bytes:
            return self._split(count)
        self._filled += count
        if self._filled < self.announced_bytes:
            return []
        frame, self._frame = self._frame, bytearray()
        self.announced_bytes = self._filled = 0
        self._view = None
        return [frame]

    def _split(self, count: int) -> list[bytearray]:
        frames: list[bytearray] = []
        if self.broken is not None:
            return frames
        scratch = self._scratch
        start, end = 0, len(self._held) + count
        while end - start >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(scratch, start)
            if not 0 < size <= self.max_frame_bytes:
                self.broken = _complaint(size, self.max_frame_bytes)
                return frames
            start += SIZE_BYTES
            stop = start + size
            if stop > end:
                self._held = b""
                self.announced_bytes = size
                self._filled = end - start
                if size <= self.trusted_frame_bytes:
                    self._frame = uncleared(size)
                    self._frame[: self._filled] = memoryview(scratch)[start:end]
                else:
                    self._frame = scratch[start:end]
                return frames
            frames.append(scratch[start:stop])
            start = stop
        self._held = bytes(scratch[start:end]) if start < end else b""
        return frames


def _complaint(size: int, max_frame_bytes: int) -> str:
    return f"a frame of {size} bytes was announced; between 1 and {max_frame_bytes} are allowed"


def frame_parts(parts: Sequence[Buffer]) -> list[Buffer]:
    """The buffers of one frame, with its size in front."""
    size = sum(map(len, parts))
    if not 0 < size <= MAX_FRAME_BYTES:
        raise LocalProtocolError(f"a frame cannot have {size} bytes")
    return [size.to_bytes(SIZE_BYTES, "big"), *parts]
