"""All settings of one kind, for whoever needs the list: documentation, tools, and the configuration APIs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.base.settings.model import Settings
from barnabas.base.settings.names import nearest_name
from barnabas.base.settings.setting import Setting


class Registry(Mapping[str, Setting]):
    """The settings of a kind (`broker`, `topic`, `producer`...) by Kafka's name, in the order of their declaration."""

    def __init__(self, kind: str, model: type[Settings]) -> None:
        self.kind = kind
        self.model = model
        self._settings = model.declared()
        attributes = {setting.attribute for setting in self._settings.values()}
        if len(attributes) < len(self._settings):
            raise TypeError(f"two {kind} settings share an attribute")
        for setting in self._settings.values():
            for dependent in setting.dependents:
                if dependent not in self._settings:
                    raise TypeError(f"{setting.name} names {dependent} as a dependent, which does not exist")

    def __getitem__(self, name: str) -> Setting:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def groups(self) -> dict[str, list[Setting]]:
        """The settings that people may use, by group; internal ones are left out."""
        groups: dict[str, list[Setting]] = {}
        for setting in self._settings.values():
            if not setting.internal:
                groups.setdefault(setting.group, []).append(setting)
        return groups

    def nearest(self, name: str) -> str | None:
        """The known name that was probably meant."""
        return nearest_name(name, self._settings)
