"""Tables of settings for the documentation, written from the declarations.

    python -m barnabas.base.settings.markdown docs/settings barnabas.broker.settings:BROKER_SETTINGS ...

writes `docs/settings/broker.md` and so on. The registries are named on the command line, because this package lies
below all that declare settings.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from barnabas.base.settings.registry import Registry
from barnabas.base.settings.setting import Setting, SettingState

_HEAD = "| setting | type | default | allowed | importance | state | meaning |\n|---|---|---|---|---|---|---|\n"
_STATES = """\
*live*: can change while the program runs. *read at start*: a change needs a restart. *no effect*: accepted, because
configurations have it, but there is nothing here that it could steer. *not built, refused*: any value but the default
stops the start, so that nothing is silently missing. *not built, warned*: tunes a feature that is off anyway.
"""


def as_markdown(registry: Registry) -> str:
    """The page of one kind: a table for each group."""
    parts = [f"# {registry.kind.capitalize()} settings\n\nWritten from the declarations; do not edit.\n\n{_STATES}"]
    for title, settings in registry.groups().items():
        parts.append(f"\n## {title}\n\n{_HEAD}{''.join(map(_row, settings))}")
    return "".join(parts)


def _row(setting: Setting) -> str:
    default = "*required*" if setting.required else f"`{setting.default_text}`" if setting.default_text else ""
    cells = (
        f"`{setting.name}`",
        setting.type.label,
        default,
        _allowed(setting),
        setting.importance.value,
        _state(setting),
        setting.doc,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _allowed(setting: Setting) -> str:
    if setting.value_type.plugins:
        return setting.allowed_text
    return "" if setting.allowed is None else setting.allowed.text


def _state(setting: Setting) -> str:
    if setting.state is not SettingState.NOT_BUILT:
        return str(setting.state.value)
    return "not built, refused" if setting.refused else "not built, warned"


def main(arguments: Sequence[str]) -> None:
    folder, *registries = arguments
    for path in registries:
        module, _, name = path.partition(":")
        registry: Registry = getattr(importlib.import_module(module), name)
        Path(folder, f"{registry.kind}.md").write_text(as_markdown(registry), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
