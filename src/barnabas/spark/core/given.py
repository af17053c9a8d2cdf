"""Options as they were given, looked up in any case."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.values import boolean

_T = TypeVar("_T")
_D = TypeVar("_D")

_PREFIX: Final = "kafka."
_BOOTSTRAP: Final = "bootstrap.servers"
#: How alike an unknown option and one of ours must be to be taken for a slip of the pen; 1 is equal.
_SLIP: Final = 0.85
#: Options of Spark's other sources that are as alike, and no slips.
_OF_OTHERS: Final = ("schema", "maxrateperpartition")
STRICT: Final = "strictOptions"


class SparkOptions:
    """The options of one read or write. `known` are those that there are, in their usual spelling."""

    def __init__(self, options: Mapping[str, object], known: Sequence[str]) -> None:
        self._known = known
        self._values = {name.lower(): _text(value) for name, value in options.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def read(self, name: str, reader: Callable[[str, str], _T], default: _D) -> _T | _D:
        """What `reader` makes of the option's name and text, or the default if it was not given."""
        text = self.text(name)
        return default if text is None else reader(name, text)

    def client(self, refused: Mapping[str, str]) -> dict[str, str]:
        """The settings under `kafka.`, of which some are refused for a reason and one is needed."""
        settings = {name.removeprefix(_PREFIX): text for name, text in self._values.items() if name.startswith(_PREFIX)}
        for name in settings:
            if name in refused:
                raise OptionError(f"Option kafka.{name} is not supported: {refused[name]}.")
        if not settings.get(_BOOTSTRAP, "").strip():
            hint = f" {_BOOTSTRAP} is there, but without the prefix." if _BOOTSTRAP in self else ""
            raise OptionError(
                f"Option kafka.{_BOOTSTRAP} is missing: give it the addresses of brokers, host:port.{hint}"
            )
        return settings

    def slips(self) -> Iterator[tuple[str, str]]:
        """Every option that is probably meant to be another one, and that other one."""
        spelling = {name.lower(): name for name in self._known}
        for name in self._values:
            if name in spelling or name in _OF_OTHERS or name.startswith(_PREFIX):
                continue
            nearest = difflib.get_close_matches(name, spelling, n=1, cutoff=_SLIP)
            if nearest:
                yield name, spelling[nearest[0]]

    def check_slips(self) -> tuple[str, ...]:
        """Refuse slips of the pen; where the user wants them passed over, as Spark does, the warnings to tell."""
        slips = list(self.slips())
        is_strict = self.read(STRICT, boolean, True)
        if slips and is_strict:
            given, meant = slips[0]
            raise OptionError(
                f"There is no option {given}; did you mean {meant}? To have it passed over, set the option {STRICT} to"
                " false."
            )
        return tuple(f"There is no option {given}; did you mean {meant}? It is passed over." for given, meant in slips)


def _text(value: object) -> str:
    """Spark hands in text; a program that calls the helpers may give the value itself."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
