"""From what people write to checked values: one pass over all sources, all problems reported together.

Later sources win over earlier ones, keyword arguments over all. `None` as a value means "not given".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.base.errors import SettingsError
from barnabas.base.log_context import logger
from barnabas.base.properties import Properties
from barnabas.base.settings.names import looks_secret, nearest_name
from barnabas.base.settings.setting import Setting, SettingState
from barnabas.base.settings.values import Password, format_value

_log = logger("barnabas.settings")

KEYWORD = "keyword argument"
#: Settings that have no names of their own: all that begin so are labels for reporters of metrics.
CONTEXT_PREFIX = "metrics.context."


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value as it was written, and where."""

    value: object = field(repr=False)
    where: str = ""


@dataclass(frozen=True, slots=True)
class SettingsWarning:
    """Something about a setting that does not stop the program but deserves a look."""

    name: str
    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.name}{_in_brackets(self.where)}: {self.text}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why settings cannot be used: the settings concerned, and a sentence for the person who wrote them."""

    names: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


class InvalidSettingsError(SettingsError):
    """Settings that cannot be used, with every reason found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in problems]
        super().__init__(
            lines[0] if len(lines) == 1 else "\n  - ".join([f"{len(lines)} problems with settings:", *lines])
        )


class Extras(Mapping[str, object]):
    """Settings that nothing declared, kept for plug-ins. Remembers which were read, so that the others can be told."""

    def __init__(self, given: Mapping[str, GivenValue]) -> None:
        self._given = dict(given)
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> object:
        given = self._given[name]
        self._read.add(name)
        return given.value

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def __repr__(self) -> str:
        # A plug-in's settings may hold secrets under any name.
        return f"Extras({list(self._given)})"

    def with_prefix(self, prefix: str) -> dict[str, object]:
        """The settings under a prefix, without it; all of them count as read."""
        return {name.removeprefix(prefix): self[name] for name in self if name.startswith(prefix)}

    def unused(self) -> tuple[str, ...]:
        return tuple(name for name in self._given if name not in self._read)


def gather(
    sources: Sequence[Mapping[str, object]],
    keywords: Mapping[str, object],
    declared: Mapping[str, Setting],
    hints: Mapping[str, str],
) -> tuple[dict[str, GivenValue], list[SettingsWarning], list[Problem]]:
    """Lay the sources over each other: for each name the value that counts, with where it was written.

    `hints` says what to write in place of names that are none here but well known elsewhere, spelt with dots.
    """
    given: dict[str, GivenValue] = {}
    warnings: list[SettingsWarning] = []
    problems: list[Problem] = []
    for source in sources:
        if isinstance(source, Properties):
            warnings += (_repetition(name, lines, source.origin) for name, lines in source.repeated.items())
        for name, value in source.items():
            if value is not None:
                given[name] = GivenValue(value, source.where(name) if isinstance(source, Properties) else "")
    by_attribute = {setting.attribute: setting for setting in declared.values()}
    for attribute, value in keywords.items():
        if attribute not in by_attribute:
            # A misspelt keyword is a mistake in the program, not a setting for a plug-in.
            hint = _elsewhere(attribute, hints)
            if not hint and (near := nearest_name(attribute, declared)):
                hint = f"; did you mean {declared[near].attribute}?"
            problems.append(Problem((attribute,), f"{attribute} ({KEYWORD}): there is no such setting{hint}"))
        elif value is not None:
            given[by_attribute[attribute].name] = GivenValue(value, KEYWORD)
    return given, warnings, problems


def _repetition(name: str, lines: list[int], origin: str) -> SettingsWarning:
    numbers = ", ".join(map(str, lines))
    return SettingsWarning(name, f"given {len(lines)} times, on lines {numbers}; the last one counts", origin)


def convert(setting: Setting, name: str, given: GivenValue) -> Any:
    """The checked value. Raises `InvalidSettingsError` with one problem."""
    try:
        value = setting.convert(given.value)
    except ValueError as reason:
        text = f"{shown(name, setting, given)}: the value {reason}; allowed: {setting.allowed_text}"
        raise InvalidSettingsError([Problem((name,), text)]) from None
    if setting.state is SettingState.NOT_BUILT and setting.refused and value != setting.default:
        text = f"{shown(name, setting, given)}: this is not built yet, so it is refused rather than ignored; remove it"
        raise InvalidSettingsError([Problem((name,), text)])
    return value


def unknown(name: str, given: GivenValue, declared: Mapping[str, Setting], hints: Mapping[str, str]) -> SettingsWarning:
    hint = _elsewhere(name, hints)
    if not hint and (near := nearest_name(name, declared)):
        hint = f"; did you mean {near}?"
    return SettingsWarning(name, f"unknown setting, ignored unless a plug-in reads it{hint}", given.where)


def _elsewhere(name: str, hints: Mapping[str, str]) -> str:
    hint = hints.get(name.replace("_", "."))
    return f"; {hint}" if hint else ""


def without_effect(setting: Setting, name: str, given: GivenValue) -> SettingsWarning:
    return SettingsWarning(name, f"no effect: it belongs to {setting.group}, which is not built yet", given.where)


def missing(setting: Setting) -> Problem:
    return Problem((setting.name,), f"{setting.name} is required; allowed: {setting.allowed_text}")


def contradiction(
    settings: Sequence[Setting], values: Mapping[str, Any], given: Mapping[str, GivenValue], text: str
) -> Problem:
    """A rule about several settings that does not hold, with the value and the origin of each."""
    sides = []
    for setting in settings:
        origin = given[setting.name].where if setting.name in given else "default"
        value = Password.HIDDEN if setting.secret else format_value(values[setting.attribute])
        sides.append(f"{setting.name} = {value}{_in_brackets(origin)}")
    return Problem(tuple(setting.name for setting in settings), f"{', '.join(sides)}: {text}")


def shown(name: str, setting: Setting, given: GivenValue) -> str:
    """`name = value (where)`, with the value hidden when it is or may be a secret."""
    hidden = isinstance(given.value, Password) or setting.secret or looks_secret(name)
    value = Password.HIDDEN if hidden else repr(given.value)
    return f"{name} = {value}{_in_brackets(given.where)}"


def tell(warnings: Sequence[SettingsWarning]) -> None:
    for warning in warnings:
        _log.warning("%s", warning)


def _in_brackets(where: str) -> str:
    return f" ({where})" if where else ""
