"""Frames out of what arrives, where their readers may choose the memory."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    SIZE_BYTES = 4
    # A frame's buffer grows by at most this much ahead of the bytes that arrived.
    GROWTH_BYTES = 1048576

cdef memoryview ZEROS = memoryview(bytes(GROWTH_BYTES))


cdef class FrameReceiver:
    """Says where the next bytes should be put, and gives out the frames that they complete.

    Between frames bytes go to a scratch buffer, which many receivers may share as long as nothing else happens between
    `get_buffer` and `received`. The rest of a frame that did not fit there goes straight to the frame's own buffer.

    Guarantees: those of `FrameSplitter`, except that a size outside the limits shows as `broken`, after the frames
    before it were given out; a frame's buffer is never more than 1 MiB larger than what arrived of it, except that
    frames of up to `trusted_frame_bytes` get theirs whole when they are announced, which is faster.
    """

    cdef public Py_ssize_t max_frame_bytes
    cdef public Py_ssize_t trusted_frame_bytes
    #: Why nothing more can be received, if so.
    cdef readonly object broken
    #: The size of the frame that has begun to arrive; 0 between frames.
    cdef readonly Py_ssize_t announced_bytes
    cdef bytearray scratch
    cdef memoryview scratch_view
    #: The beginning of a size: at most three bytes.
    cdef bytes held
    cdef bytearray frame
    cdef Py_ssize_t filled
    cdef memoryview view

    def __init__(self, bytearray scratch not None, max_frame_bytes=104_857_600, *, trusted_frame_bytes=0):
        self.max_frame_bytes = max_frame_bytes
        self.trusted_frame_bytes = trusted_frame_bytes
        self.broken = None
        self.scratch = scratch
        self.scratch_view = memoryview(scratch)
        self.held = b""
        self.announced_bytes = 0
        self.frame = bytearray()
        self.filled = 0
        self.view = None

    @property
    def buffered_bytes(self) -> int:
        """What has been kept of a frame that is not whole yet."""
        return self.filled or len(self.held)

    @property
    def kept_bytes(self) -> int:
        """The memory that a frame takes which is not whole yet."""
        return PyByteArray_GET_SIZE(self.frame)

    def get_buffer(self) -> memoryview:
        """Where to put what arrives next. Never empty."""
        cdef Py_ssize_t held, filled
        if not self.announced_bytes:
            held = len(self.held)
            if not held:
                return self.scratch_view
            self.scratch[:held] = self.held
            return self.scratch_view[held:]
        if self.view is not None:
            # A buffer cannot grow while somebody may look at it.
            self.view.release()
        filled = self.filled
        if filled == PyByteArray_GET_SIZE(self.frame):
            self.frame += ZEROS[: self.announced_bytes - filled]
        self.view = memoryview(self.frame)[filled:]
        return self.view

    def received(self, Py_ssize_t count) -> list:
        """Take note that `count` bytes were put into the buffer; the frames that are whole now."""
        if not self.announced_bytes:
            return self.split(count)
        self.filled += count
        if self.filled < self.announced_bytes:
            return []
        frame, self.frame = self.frame, bytearray()
        self.announced_bytes = self.filled = 0
        self.view = None
        return [frame]

    cdef list split(self, Py_ssize_t count):
        cdef list frames = []
        cdef Py_ssize_t start = 0, size, end = len(self.held) + count
        cdef const uint8_t* data = <const uint8_t*>PyByteArray_AS_STRING(self.scratch)
        if self.broken is not None:
            return frames
        if end > PyByteArray_GET_SIZE(self.scratch):
            raise ValueError(f"{count} bytes do not fit where they were to be put")
        while end - start >= SIZE_BYTES:
            size = <int32_t>(
                <uint32_t>data[start] << 24 | <uint32_t>data[start + 1] << 16
                | <uint32_t>data[start + 2] << 8 | data[start + 3]
            )
            if not 0 < size <= self.max_frame_bytes:
                self.broken = f"a frame of {size} bytes was announced; between 1 and {self.max_frame_bytes} are allowed"
                return frames
            start += SIZE_BYTES
            if size > end - start:
                self.begin(start, end, size)
                return frames
            frames.append(PyByteArray_FromStringAndSize(<const char*>data + start, size))
            start += size
        self.held = bytes(self.scratch[start:end]) if start < end else b""
        return frames

    cdef int begin(self, Py_ssize_t start, Py_ssize_t end, Py_ssize_t size) except -1:
        """A frame has arrived in part."""
        cdef const char* data = PyByteArray_AS_STRING(self.scratch)
        self.held = b""
        self.announced_bytes = size
        self.filled = end - start
        if size <= self.trusted_frame_bytes:
            self.frame = PyByteArray_FromStringAndSize(NULL, size)
            memcpy(PyByteArray_AS_STRING(self.frame), data + start, self.filled)
        else:
            self.frame = PyByteArray_FromStringAndSize(data + start, self.filled)
        return 0
