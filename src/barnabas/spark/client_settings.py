"""Settings of our clients out of the options `kafka.*`: what makes no client is told on the driver, not in a task.

Options may be meant for several clients at once: what reads a topic asks as an admin, reads as a consumer, and writes
dead letters as a producer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.base.settings.load import InvalidSettingsError
from barnabas.base.settings.names import nearest_name
from barnabas.spark.core.errors import OptionError

if TYPE_CHECKING:
    from barnabas.base.settings import Registry

_log = logging.getLogger("barnabas.spark")


def settings_for(
    client: Mapping[str, str], kind: Registry, defaults: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings that this kind of client knows, over the defaults. Raises `OptionError` if they do not make one.

    `client` has them without the prefix `kafka.`.
    """
    settings = {**(defaults or {}), **{name: value for name, value in client.items() if name in kind}}
    try:
        kind.model.load(settings)
    except InvalidSettingsError as error:
        problems = "; ".join(f"kafka.{problem}" for problem in error.problems)
        raise OptionError(f"These options make no {kind.kind}: {problems}") from error
    return settings


def warn_of_unknown(client: Mapping[str, str], *kinds: Registry) -> None:
    """Tell of the settings that none of the clients which are given them knows: most of them are slips of the pen."""
    known = [name for kind in kinds for name in kind]
    for name in client:
        if name not in known:
            nearest = nearest_name(name, known)
            hint = f"; did you mean kafka.{nearest}?" if nearest else ""
            _log.warning("Option kafka.%s is passed over: our clients have no such setting%s", name, hint)
