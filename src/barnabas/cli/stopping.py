"""How tools that run until they are told to stop end well: signals are noticed, and acted upon between two steps."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

from barnabas.cli.output import discard_output

_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_EXIT_BASE: Final = 128


def print_line(line: str, stop: Stop) -> None:
    """For tools whose lines come from callbacks, where an error would be taken for the callback's own."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        stop.nobody_listens()


class StoppedError(BaseException):
    """Raised by a signal in the middle of something that may be broken off."""


class Stop:
    """Whether somebody wants the tool to end. A second signal does what it always does, for whoever cannot wait.

    Signals work only in the main thread; elsewhere nobody ever wants the tool to end.
    """

    def __init__(self) -> None:
        self.signal_number = 0
        self._read, self._write = os.pipe()
        self._previous: dict[signal.Signals, Any] = {}
        self._reaction: Callable[[], object] | None = None
        #: While True a signal raises `StoppedError` where the main thread is.
        self.is_interruptible = False

    @property
    def is_asked_for(self) -> bool:
        return self.signal_number != 0

    @property
    def exit_code(self) -> int:
        """As a shell tells of a process that a signal ended; 0 if none did."""
        return _EXIT_BASE + self.signal_number if self.signal_number else 0

    def nobody_listens(self) -> None:
        """Standard output was closed: end as SIGPIPE would have ended the tool. May be called in any thread."""
        self._ask(signal.SIGPIPE)

    def react(self, reaction: Callable[[], object]) -> None:
        """Call this when the signal comes. It must not wait for anything."""
        self._reaction = reaction

    def wait(self, seconds: float) -> bool:
        """Sleep, but not beyond a signal; whether there was one."""
        return bool(select.select([self._read], [], [], max(0.0, seconds))[0])

    def wait_for_input(self, descriptor: int) -> bool:
        """Wait until something can be read there; False if a signal came first."""
        return self._read not in select.select([descriptor, self._read], [], [])[0]

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                number: signal.Signals | None = getattr(signal, name, None)
                # Whoever started us with a signal ignored, as `nohup` does, meant it.
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        os.close(self._read)
        os.close(self._write)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self._restore()
        self._ask(number)
        if self.is_interruptible:
            raise StoppedError

    def _ask(self, number: int) -> None:
        self.signal_number = number
        os.write(self._write, b"!")
        if self._reaction is not None:
            self._reaction()

    def _restore(self) -> None:
        while self._previous:
            number, previous = self._previous.popitem()
            signal.signal(number, previous)
