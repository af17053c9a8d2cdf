"""Settings as plug-ins get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.base.settings.model import Settings
from barnabas.base.settings.values import Password


class PluginSettings(Mapping[str, object]):
    """The settings of a client or a node for its plug-ins, by Kafka's names: those it knows, and what it was given
    beside them.

    Passwords are there as themselves. Reading an unknown one marks it as used, so that it is not warned about.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __getitem__(self, name: str) -> object:
        if name in self._settings.declared():
            value = self._settings.value_of(name)
            return value.reveal() if isinstance(value, Password) else value
        return self._settings.extras[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._settings.declared()
        yield from self._settings.extras

    def __len__(self) -> int:
        return len(self._settings.declared()) + len(self._settings.extras)
