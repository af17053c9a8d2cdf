"""Length-prefixed frames: four bytes of size, then header and body.

`FrameSplitter` turns whatever arrives into whole frames; `FrameReceiver` does the same for those who can choose where
bytes arrive, and spares large frames a copy; `frame_parts` puts the size in front of what is to be sent. None of them
knows of sockets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.wire._kernel.frames import FrameReceiver
from barnabas.wire.compiler import Buffer

__all__ = ["MAX_FRAME_BYTES", "SIZE_BYTES", "FrameReceiver", "FrameSplitter", "frame_parts"]

SIZE_BYTES = 4
MAX_FRAME_BYTES = 0x7FFFFFFF


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


def _complaint(size: int, max_frame_bytes: int) -> str:
    return f"a frame of {size} bytes was announced; between 1 and {max_frame_bytes} are allowed"


def frame_parts(parts: Sequence[Buffer]) -> list[Buffer]:
    """The buffers of one frame, with its size in front."""
    size = sum(map(len, parts))
    if not 0 < size <= MAX_FRAME_BYTES:
        raise LocalProtocolError(f"a frame cannot have {size} bytes")
    return [size.to_bytes(SIZE_BYTES, "big"), *parts]
