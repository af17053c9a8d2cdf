"""One setting: everything that is known about it, said once where it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from barnabas.base.settings.allowed import Allowed
from barnabas.base.settings.values import Type, ValueType, format_value


class Importance(Enum):
    """How many people need to think about a setting."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class SettingState(Enum):
    """What a value does in this version.

    A setting that is not built may be given its default. Another value is refused when it asks for something that would
    then silently be missing, which holds for every security setting; it is only warned about when the setting merely
    tunes a feature that is off anyway (`refused=False` in its declaration).
    """

    LIVE = "live"
    READ_AT_START = "read at start"
    NO_EFFECT = "no effect"
    NOT_BUILT = "not built"


HIGH, MEDIUM, LOW = Importance
LIVE, READ_AT_START, NO_EFFECT, NOT_BUILT = SettingState


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class NoValueError(AttributeError):
    """A rule asked for a setting that was refused or not given; the rule then has nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A declared setting. `name` is Kafka's, `attribute` the Python one; `group` and `order` place it in its kind."""

    name: str
    attribute: str
    value_type: ValueType
    default: Any
    allowed: Allowed | None
    importance: Importance
    state: SettingState
    doc: str
    group: str
    order: int
    display_name: str
    dependents: tuple[str, ...]
    recommended: tuple[str, ...]
    internal: bool
    refused: bool
    server_default: str | None

    def __post_init__(self) -> None:
        """A default must be a value that its own setting would accept."""
        if self.default is None and not self.value_type.nullable:
            raise TypeError(f"{self.name}: the default is None, but the type does not allow it")
        if self.default is not None and self.default is not REQUIRED:
            try:
                object.__setattr__(self, "default", self.convert(self.default))
            except ValueError as error:
                raise TypeError(f"{self.name}: the default {self.default!r} {error}") from error

    def __get__(self, settings: object, owner: object) -> Setting:
        """On the class: the declaration. On an instance this is reached only when the value is missing or refused."""
        if settings is None:
            return self
        raise NoValueError(self.name)

    @property
    def type(self) -> Type:
        return self.value_type.type

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def secret(self) -> bool:
        return self.type is Type.PASSWORD

    @property
    def allowed_text(self) -> str:
        """What a person may write, in words."""
        choices = self.value_type.builtin
        if choices:
            what = f"{', '.join(choices)}, or the dotted path of a Python class"
        elif self.type is Type.CLASS:
            what = "the dotted path of a Python class"
        else:
            what = self.type.meaning
        if self.allowed is None:
            return what
        return (
            self.allowed.text if self.allowed.choices and self.type is Type.STRING else f"{what}, {self.allowed.text}"
        )

    @property
    def default_text(self) -> str:
        """The default as a `.properties` file would write it, or what stands for it."""
        return "required" if self.required else format_value(self.default)

    def convert(self, value: object) -> Any:
        """The value in its own type and in its usual form. Raises `ValueError` that says what is wrong with it."""
        converted = self.value_type.convert(value)
        if self.allowed is None:
            return converted
        if not self.allowed.accepts(converted):
            raise ValueError("is not allowed")
        return self.allowed.normal(converted) if self.allowed.normal else converted


@dataclass(frozen=True, slots=True)
class Declared:
    """What a class body says about a setting; its attribute, its annotation and its class tell the rest."""

    changes: Mapping[str, Any]
    inherited: bool = False

    def complete(self, base: Setting | None, attribute: str, annotation: object, group: Mapping[str, Any]) -> Setting:
        changes = dict(self.changes)
        builtin = changes.pop("builtin", None)
        if self.inherited:
            if base is None:
                raise TypeError(f"{attribute} is not inherited: declare it with setting()")
            return replace(base, **changes)
        value_type = ValueType.of_annotation(annotation, builtin or {})
        name = changes.pop("name") or attribute.replace("_", ".")
        if not changes["display_name"]:
            changes["display_name"] = name
        for shared in ("state", "importance", "refused"):
            if changes[shared] is None:
                changes[shared] = group[shared]
        if not changes["recommended"] and changes["allowed"]:
            changes["recommended"] = changes["allowed"].choices
        return Setting(
            name=name,
            attribute=attribute,
            value_type=value_type,
            group=group["title"],
            order=group["order"],
            **changes,
        )


def setting(
    doc: str,
    *,
    default: Any = REQUIRED,
    allowed: Allowed | None = None,
    importance: Importance | None = None,
    state: SettingState | None = None,
    name: str = "",
    display_name: str = "",
    dependents: tuple[str, ...] = (),
    recommended: tuple[str, ...] = (),
    internal: bool = False,
    refused: bool | None = None,
    server_default: str | None = None,
    builtin: Mapping[str, str] | None = None,
) -> Any:
    """Declare one setting in the body of a `Settings` class.

    `linger_ms: Long = setting("...", default=5)` declares `linger.ms`: the name follows from the attribute, the type
    from the annotation. State, importance and `refused` fall back to what the class says. What has no default is
    required.
    """
    return Declared(locals())


def again(*, default: Any, **changes: Any) -> Any:
    """Declare an inherited setting again with another default, importance, rule or state; the rest stays."""
    return Declared({"default": default, **changes}, inherited=True)
