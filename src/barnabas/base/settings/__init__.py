"""Settings: declared once beside their owner, checked when loaded, frozen and typed when used.

>>> from barnabas.base.settings.allowed import at_least
>>> class ExampleSettings(Settings, title="Example"):
...     linger_ms: Long = setting("How long a batch waits for more records.", default=5, allowed=at_least(0))
>>> ExampleSettings.load({"linger.ms": "20"}).linger_ms
20
>>> ExampleSettings(linger_ms=30).linger_ms
30
"""

from __future__ import annotations

from barnabas.base.settings.load import Extras, GivenValue, InvalidSettingsError, Problem, SettingsWarning
from barnabas.base.settings.model import Settings, rule
from barnabas.base.settings.registry import Registry
from barnabas.base.settings.setting import (
    HIGH,
    LIVE,
    LOW,
    MEDIUM,
    NO_EFFECT,
    NOT_BUILT,
    READ_AT_START,
    REQUIRED,
    Importance,
    Setting,
    SettingState,
    again,
    setting,
)
from barnabas.base.settings.values import Double, Int, Long, Names, Password, Plugin, Short, Type, format_value

__all__ = [
    "HIGH",
    "LIVE",
    "LOW",
    "MEDIUM",
    "NOT_BUILT",
    "NO_EFFECT",
    "READ_AT_START",
    "REQUIRED",
    "Double",
    "Extras",
    "GivenValue",
    "Importance",
    "Int",
    "InvalidSettingsError",
    "Long",
    "Names",
    "Password",
    "Plugin",
    "Problem",
    "Registry",
    "Setting",
    "SettingState",
    "Settings",
    "SettingsWarning",
    "Short",
    "Type",
    "again",
    "format_value",
    "rule",
    "setting",
]
