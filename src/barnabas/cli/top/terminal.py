"""A terminal that is drawn on as a whole: another page while it is used, keys without Enter, its size when it changes.

Where there is none, as in a pipe, there are no keys, and what is drawn follows what was drawn before.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from barnabas.cli import output

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"
#: The key of a terminal that was closed: Ctrl-D, which is how people close one.
END: Final = "\x04"
#: The name of what `codecs` does with them.
_STAND_IN: Final = "barnabas.top.stand_in"
_STAND_INS: Final = {"·": "-", "…": "~", "≥": ">"}
_WIDTH_WITHOUT_TERMINAL: Final = 120


def _spelt_otherwise(problem: UnicodeError) -> tuple[str, int]:
    """Stand-ins for what an output has no characters for, of the same width."""
    assert isinstance(problem, UnicodeEncodeError)
    lacking = problem.object[problem.start : problem.end]
    return "".join(_STAND_INS.get(each, "?") for each in lacking), problem.end


def show_all_text() -> None:
    """Let standard output show text for which its encoding has no characters: not every terminal knows UTF-8."""
    codecs.register_error(_STAND_IN, _spelt_otherwise)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_STAND_IN)


def terminal_width() -> int:
    """Also where there is no terminal: what COLUMNS says, or what most have room for."""
    return shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns


class Terminal:
    """See the module. `on_key` is called with each key, `on_resize` when the size has changed."""

    def __init__(self, on_key: Callable[[str], None], on_resize: Callable[[], None]) -> None:
        self.is_watched = output.is_watched() and os.environ.get("TERM") != "dumb"
        self.has_keys = self.is_watched and sys.stdin is not None and sys.stdin.isatty()
        self._on_key = on_key
        self._on_resize = on_resize
        self._before: list[Any] | None = None
        self._was_left = False

    @property
    def width(self) -> int:
        return terminal_width()

    @property
    def height(self) -> int | None:
        """None where it does not matter."""
        return shutil.get_terminal_size().lines if self.is_watched else None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if self.is_watched:
            sys.stdout.write(_ENTER)
            sys.stdout.flush()
            loop.add_signal_handler(signal.SIGWINCH, self._on_resize)
        if self.has_keys:
            import termios
            import tty

            descriptor = sys.stdin.fileno()
            self._before = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor)
            loop.add_reader(descriptor, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._was_left = True
        try:
            self._leave()
        except OSError:
            output.discard_output()  # it was closed meanwhile: nobody needs it as it was

    def _leave(self) -> None:
        loop = asyncio.get_running_loop()
        if self._before is not None:
            import termios

            descriptor = sys.stdin.fileno()
            loop.remove_reader(descriptor)
            with contextlib.suppress(termios.error):
                termios.tcsetattr(descriptor, termios.TCSADRAIN, self._before)
        if self.is_watched:
            loop.remove_signal_handler(signal.SIGWINCH)
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()

    def _read(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(sys.stdin.fileno(), 1024)
        keys = data.decode(errors="ignore") if data else END
        # Arrows and the like come as sequences, which mean nothing here.
        for key in "" if keys.startswith("\x1b") else keys:
            self._on_key(key)

    def draw(self, lines: Sequence[str], headings: frozenset[int]) -> None:
        """Show a screen. Lines hold nothing that a terminal would obey."""
        if self._was_left:
            return  # a size that changed in the last moment is told after that
        if not self.is_watched:
            for line in lines:
                output.say(line)
            sys.stdout.flush()
            return
        bold, plain = (_BOLD, _PLAIN) if output.is_terminal() else ("", "")
        shown = [
            f"{bold}{line}{plain}{_REST_OF_LINE}" if number in headings else f"{line}{_REST_OF_LINE}"
            for number, line in enumerate(lines)
        ]
        sys.stdout.write(_HOME + "\r\n".join(shown) + _REST_OF_SCREEN)
        sys.stdout.flush()
