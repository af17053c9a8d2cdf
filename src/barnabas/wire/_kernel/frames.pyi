class FrameReceiver:
    """Says where the next bytes should be put, and gives out the frames that they complete.

    Between frames bytes go to a scratch buffer, which many receivers may share as long as nothing else happens between
    `get_buffer` and `received`. The rest of a frame that did not fit there goes straight to the frame's own buffer.

    Guarantees: those of `FrameSplitter`, except that a size outside the limits shows as `broken`, after the frames
    before it were given out; a frame's buffer is never more than 1 MiB larger than what arrived of it, except that
    frames of up to `trusted_frame_bytes` get theirs whole when they are announced, which is faster.
    """

    max_frame_bytes: int
    trusted_frame_bytes: int
    def __init__(
        self, scratch: bytearray, max_frame_bytes: int = 104_857_600, *, trusted_frame_bytes: int = 0
    ) -> None: ...
    @property
    def broken(self) -> str | None:
        """Why nothing more can be received, if so."""

    @property
    def announced_bytes(self) -> int:
        """The size of the frame that has begun to arrive; 0 between frames."""

    @property
    def buffered_bytes(self) -> int:
        """What has been kept of a frame that is not whole yet."""

    @property
    def kept_bytes(self) -> int:
        """The memory that a frame takes which is not whole yet."""

    def get_buffer(self) -> memoryview:
        """Where to put what arrives next. Never empty."""

    def received(self, count: int) -> list[bytearray]:
        """Take note that `count` bytes were put into the buffer; the frames that are whole now."""
