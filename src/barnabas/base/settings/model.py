"""`Settings`, the base of all classes that declare settings, and `rule` for what several must fulfil together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from barnabas.base.settings import load as loading
from barnabas.base.settings.load import Extras, GivenValue, InvalidSettingsError, Problem, SettingsWarning
from barnabas.base.settings.setting import (
    MEDIUM,
    READ_AT_START,
    Declared,
    Importance,
    NoValueError,
    Setting,
    SettingState,
    again,
    setting,
)

_S = TypeVar("_S", bound="Settings")
Rule = Callable[[_S], str | None]


def rule(*attributes: str) -> Callable[[Rule[_S]], Rule[_S]]:
    """Mark a method as a rule about these settings: it returns what is wrong, or None.

    It is passed over when a setting that it reads has been refused, so that one mistake is reported once.
    """

    def mark(method: Rule[_S]) -> Rule[_S]:
        method.__dict__["rule_about"] = attributes
        return method

    return mark


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(setting, again))
class Settings:
    """Checked values of a kind of settings: frozen, typed, made by keyword or with `load` from dicts and files.

    Classes that declare a concern each are joined by inheritance; code asks for the narrow class that it needs.
    """

    _declared: ClassVar[Mapping[str, Setting]] = {}
    _rules: ClassVar[tuple[Callable[[Any], str | None], ...]] = ()
    #: Of `_declared`, what each object needs: made once, because a node makes settings anew with every change of one.
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _by_attribute: ClassVar[Mapping[str, Setting]] = {}
    #: What to write in place of names that are none here, for people who know them from elsewhere; spelt with dots.
    _hints: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(
        cls,
        *,
        title: str = "",
        state: SettingState = READ_AT_START,
        importance: Importance = MEDIUM,
        refused: bool = True,
    ) -> None:
        super().__init_subclass__()
        inherited: dict[str, Setting] = {}
        for base in cls.__bases__:
            if issubclass(base, Settings):
                inherited |= {name: each for name, each in base._declared.items() if name not in inherited}
        by_attribute = {each.attribute: each for each in inherited.values()}
        shared = {"title": title or cls.__name__, "state": state, "importance": importance, "refused": refused}
        own: dict[str, Setting] = {}
        for attribute, annotation in inspect.get_annotations(cls, eval_str=True).items():
            body = cls.__dict__.get(attribute)
            if isinstance(body, Declared):
                group = {**shared, "order": len(own)}
                completed = body.complete(by_attribute.get(attribute), attribute, annotation, group)
                (inherited if body.inherited else own)[completed.name] = completed
                setattr(cls, attribute, completed)
        cls._declared = {**own, **inherited}
        cls._defaults = {each.attribute: each.default for each in cls._declared.values() if not each.required}
        cls._by_attribute = {each.attribute: each for each in cls._declared.values()}
        rules: dict[str, Callable[[Any], str | None]] = {}
        for each in reversed(cls.__mro__):
            rules.update({name: method for name, method in vars(each).items() if hasattr(method, "rule_about")})
        cls._rules = tuple(rules.values())

    def __init__(self, **values: object) -> None:
        self._fill(*loading.gather((), values, self._declared, self._hints))

    @classmethod
    def load(cls, *sources: Mapping[str, object], **keywords: object) -> Self:
        """Check what the sources say and return it. A source is a dict with Kafka's names or a `Properties`.

        Later sources win; keyword arguments win over all. Raises `InvalidSettingsError` with all problems at once.
        Unknown names are warned about and kept in `extras`, where a plug-in finds them.
        """
        settings = cls.__new__(cls)
        settings._fill(*loading.gather(sources, keywords, cls._declared, cls._hints))
        return settings

    @classmethod
    def declared(cls) -> Mapping[str, Setting]:
        """All settings of this kind by Kafka's name."""
        return cls._declared

    @property
    def extras(self) -> Extras:
        """Settings that nothing here declares, for plug-ins."""
        return self.__dict__["_extras"]  # type: ignore[no-any-return]

    @property
    def warnings(self) -> tuple[SettingsWarning, ...]:
        """What was odd about the sources; it has also been logged."""
        return self.__dict__["_warnings"]  # type: ignore[no-any-return]

    def unused(self) -> tuple[str, ...]:
        """Names that were given but that neither we nor a plug-in has read."""
        return self.extras.unused()

    def is_given(self, name: str) -> bool:
        """Whether somebody wrote this setting down, rather than leaving it at its default."""
        return name in self._given

    def value_of(self, name: str) -> Any:
        """The value of a setting by Kafka's name."""
        return getattr(self, self._declared[name].attribute)

    def with_live_changes(self, changes: Mapping[str, object]) -> Self:
        """The settings after a change at run time; `None` takes a value back. Only live settings may change.

        Several parts of a node ask for the same in turn, so the last answer is kept, unless something was to be told.
        """
        wanted = dict(changes) if all(isinstance(value, str) for value in changes.values()) else None
        last: tuple[object, Self] | None = self.__dict__.get("_last_changed")
        if last is not None and last[0] == wanted:
            return last[1]
        problems = [
            Problem((name,), f"{name} is {found.state.value}: it cannot change while the program runs")
            for name in changes
            if (found := self._setting_for(name)) is not None and found.state is not SettingState.LIVE
        ]
        if problems:
            raise InvalidSettingsError(problems)
        given = {name: each for name, each in self._given.items() if name not in changes}
        given |= {name: GivenValue(value, "change at run time") for name, value in changes.items() if value is not None}
        changed = type(self).__new__(type(self))
        changed._fill(given, [], [], told=self.warnings)
        changed.__dict__["_as_loaded"] = self.as_loaded
        if wanted is not None and all(warning in self.warnings for warning in changed.warnings):
            self.__dict__["_last_changed"] = wanted, changed
        return changed

    @property
    def as_loaded(self) -> Self:
        """The settings before any change at run time."""
        return self.__dict__.get("_as_loaded", self)  # type: ignore[no-any-return]

    @classmethod
    def _setting_for(cls, name: str) -> Setting | None:
        """The declaration behind a name. Kinds whose names may carry a prefix look behind it."""
        return cls._declared.get(name)

    @classmethod
    def _adjust(cls, values: dict[str, Any], given: Mapping[str, GivenValue]) -> Iterator[SettingsWarning]:
        """Change values that follow from others, before the rules are checked. `values` is keyed by attribute."""
        yield from ()

    @classmethod
    def _missing(cls, settings: list[Setting]) -> list[Problem]:
        """What to say of required settings that nobody gave."""
        return [loading.missing(each) for each in settings]

    @property
    def _given(self) -> Mapping[str, GivenValue]:
        return self.__dict__["_all_given"]  # type: ignore[no-any-return]

    def _fill(
        self,
        given: Mapping[str, GivenValue],
        warnings: list[SettingsWarning],
        problems: list[Problem],
        told: tuple[SettingsWarning, ...] = (),
    ) -> None:
        """Convert, adjust and check what was given, and take it on. All that is wrong is raised together."""
        values = dict(self._defaults)
        prefixed: dict[str, Any] = {}
        extras: dict[str, GivenValue] = {}
        refused: set[str] = set()
        for name, written in given.items():
            setting = self._setting_for(name)
            if setting is None:
                extras[name] = written
                if not name.startswith(loading.CONTEXT_PREFIX):
                    warnings.append(loading.unknown(name, written, self._declared, self._hints))
                continue
            has_prefix = name != setting.name
            try:
                value = loading.convert(setting, name, written)
            except InvalidSettingsError as error:
                problems += error.problems
                refused |= set() if has_prefix else {setting.attribute}
                continue
            if has_prefix:
                prefixed[name] = value
            else:
                values[setting.attribute] = value
            if setting.state is SettingState.NOT_BUILT and value != setting.default:
                warnings.append(loading.without_effect(setting, name, written))
        warnings += self._adjust(values, given)
        usable = {name: value for name, value in values.items() if name not in refused} if refused else values
        self.__dict__.update(usable)
        self.__dict__.update(_all_given=given, _extras=Extras(extras), _warnings=tuple(warnings), _prefixed=prefixed)
        known = refused.union(usable)
        problems += self._missing([each for name, each in self._by_attribute.items() if name not in known])
        problems += self._contradictions(usable)
        if problems:
            raise InvalidSettingsError(problems)
        loading.tell([warning for warning in warnings if warning not in told])

    def _contradictions(self, values: Mapping[str, Any]) -> Iterator[Problem]:
        for check in self._rules:
            about: tuple[str, ...] = check.__dict__["rule_about"]
            try:
                text = check(self) if all(name in values for name in about) else None
            except NoValueError:
                continue
            if text:
                concerned = [self._by_attribute[attribute] for attribute in about]
                yield loading.contradiction(concerned, values, self._given, text)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"settings do not change: {name}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"settings do not change: {name}")

    def _values(self) -> dict[str, Any]:
        return {s.attribute: self.__dict__[s.attribute] for s in self._declared.values()}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Settings) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().items()))

    def __repr__(self) -> str:
        changed = (s for s in self._declared.values() if self.__dict__[s.attribute] != s.default)
        inside = ", ".join(f"{s.attribute}={self.__dict__[s.attribute]!r}" for s in changed)
        return f"{type(self).__name__}({inside})"
