"""Settings of our clients out of the options `kafka.*`: what makes no client is told on the driver, not in a task.

Options may be meant for several clients at once: what reads a topic asks as an admin, reads as a consumer, and writes
dead letters as a producer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.options import client_settings

if TYPE_CHECKING:
    from barnabas.base.settings import Registry

_log = logging.getLogger("barnabas.spark")


def settings_for(
    client: Mapping[str, str], kind: Registry, defaults: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings that this kind of client knows, over the defaults. Raises `OptionError` if they do not make one.

    `client` has them without the prefix `kafka.`.
    """
    from barnabas.base.settings.load import InvalidSettingsError

    settings = {**(defaults or {}), **client_settings(client, kind)[0]}
    try:
        kind.model.load(settings)
    except InvalidSettingsError as error:
        problems = "; ".join(f"kafka.{problem}" for problem in error.problems)
        raise OptionError(f"These options do not make a {kind.kind}: {problems}") from error
    return settings


def warn_of_unknown(client: Mapping[str, str], *kinds: Registry) -> None:
    """Tell of the settings that none of the clients which are given them knows: most of them are slips of the pen."""
    for warning in client_settings(client, [name for kind in kinds for name in kind])[1]:
        _log.warning("%s", warning)
