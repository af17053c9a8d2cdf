"""Planned misfortune: operations that are counted, fail when told to, and a machine that dies in one of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Literal

Effect = Literal["none", "part", "whole"]
Hook = Callable[[int, str, str], None]


class SimulatedCrash(BaseException):
    """The machine died in this call. Not an `Exception`, so that no handler of errors lives on after its own death."""


class DiskFaults:
    """What strikes the operations of a disk.

    - `calls` counts operations of every kind, `operations` those that change something, syncs included.
    - `hook` is called before each operation with its number in `calls`, its name as in the protocol and its path; it
      may raise `OSError` for a fault, or `SimulatedCrash`.
    - `on_crash` is called when the machine dies in an operation, before the operation has its effect.
    """

    def __init__(self, random: Random, hook: Hook | None) -> None:
        self.hook = hook
        self.on_crash: Callable[[], None] | None = None
        self.calls = 0
        self.operations = 0
        self._random = random
        self._failures: list[_Failure] = []
        self._crash_at: int | None = None
        self._crash_effect: Effect | None = None
        self._down = False

    def crash_at(self, operation: int | None, *, effect: Effect | None = None) -> None:
        """Raise `SimulatedCrash` in the operation of that number in `operations`, and in all calls from then until
        the disk's `crash`. By then the operation had the given `effect`; without one, any, by chance."""
        self._crash_at = operation
        self._crash_effect = effect

    @property
    def is_crash_planned(self) -> bool:
        """Whether the machine is to die in an operation that has not come yet."""
        return self._crash_at is not None and not self._down

    def fail_next(self, code: int, *, name: str = "", path: str = "", count: int = 1) -> None:
        """Let the next `count` operations called `name` on paths that contain `path` raise `OSError(code)`. A failed
        write may have been done in part; what a failed sync should have covered is not covered by later ones either."""
        self._failures.append(_Failure(code, name, path, count))

    def _forget_faults(self) -> None:
        self._down = False
        self._crash_at = None
        self._failures.clear()

    def _check_up(self) -> None:
        if self._down:
            raise SimulatedCrash("the machine is down")

    def begin(self, name: str, path: Callable[[], str], *, changes: bool = True) -> OperationFault | None:
        """Count an operation; the fault that it is to suffer, if any."""
        self._check_up()
        self.calls += 1
        self.operations += changes
        dies = changes and self.operations == self._crash_at
        if self.hook is None and not self._failures and not dies:
            return None
        try:
            if self.hook is not None:
                self.hook(self.calls, name, path())
            if self._failures:
                self._raise_failure(name, path())
            if dies:
                raise SimulatedCrash(f"operation {self.operations}: {name} {path()}")
        except SimulatedCrash as crash:
            self._down = True
            if self.on_crash is not None:
                self.on_crash()
            effect: Effect = self._random.choice(("none", "part", "whole"))
            return OperationFault(crash, self._crash_effect or effect, self._random)
        except OSError as error:
            return OperationFault(error, "part" if name == "write_at" else "none", self._random)
        return None

    def begin_reading(self, name: str, path: Callable[[], str]) -> None:
        fault = self.begin(name, path, changes=False)
        if fault is not None:
            raise fault.error

    def _raise_failure(self, name: str, path: str) -> None:
        for failure in self._failures:
            if failure.name in ("", name) and failure.path in path:
                failure.count -= 1
                if failure.count == 0:
                    self._failures.remove(failure)
                raise error_of(failure.code, path)


class _Failure:
    """A fault that waits for its operation."""

    def __init__(self, code: int, name: str, path: str, count: int) -> None:
        self.code = code
        self.name = name
        self.path = path
        self.count = count


class OperationFault:
    """What an operation raises, and how much of it was done by then."""

    def __init__(self, error: BaseException, effect: Effect, random: Random) -> None:
        self.error = error
        self._effect = effect
        self._random = random

    def share_of(self, count: int) -> int:
        if self._effect == "part":
            return self._random.randint(0, count)
        return count if self._effect == "whole" else 0


def error_of(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
