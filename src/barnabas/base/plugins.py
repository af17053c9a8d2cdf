"""Plug-ins of nodes and clients: how they are loaded, told and closed.

A plug-in is named by a setting: the class itself, an object, or the dotted path of a class. A class is made without
arguments. If it has `configure(settings)` it is handed the settings, unknown ones included, before its first use. A
plug-in that fails is logged and stops nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from barnabas.base.errors import SettingsError
from barnabas.base.log_context import logger
from barnabas.base.settings import Plugin, Settings
from barnabas.base.settings.plugin_settings import PluginSettings

_LOG: Final = logger(__name__)


@runtime_checkable
class ClusterResourceListener(Protocol):
    """Any serializer, interceptor or reporter that has this method is told the id of the cluster, and of a new one."""

    def on_update(self, cluster_id: str | None) -> None: ...


def load_plugins(
    name: str,
    plugins: Iterable[Plugin],
    methods: Sequence[str],
    settings: Settings,
    builtin: Mapping[str, Any] | None = None,
) -> list[Any]:
    """The plug-ins that the setting `name` lists, made and configured. If one cannot be, those before it are closed."""
    handed = PluginSettings(settings)
    loaded: list[Any] = []
    try:
        for plugin in plugins:
            target = plugin.resolve(builtin or {})
            instance = target() if isinstance(target, type) else target
            missing = [method for method in methods if not callable(getattr(instance, method, None))]
            if missing:
                raise SettingsError(f"{name}: {plugin} cannot be used, as it has no method {', '.join(missing)}")
            loaded.append(instance)
            if hasattr(instance, "configure"):
                instance.configure(handed)
    except BaseException:
        close_all(loaded)
        raise
    return loaded


def close_all(plugins: Iterable[object]) -> None:
    """Close those that can be closed. What they raise is logged."""
    for plugin in plugins:
        close = getattr(plugin, "close", None)
        if callable(close):
            safely(plugin, "close", close)


class ClusterResourceListeners:
    """Those among some plug-ins that want to know which cluster this is."""

    __slots__ = ("_cluster_id", "_listeners")

    def __init__(self, candidates: Iterable[object]) -> None:
        self._listeners = tuple(each for each in candidates if isinstance(each, ClusterResourceListener))
        self._cluster_id: str | None = None

    def tell(self, cluster_id: str | None) -> None:
        """Call it with every answer that names the cluster; listeners hear of it when it is new."""
        if cluster_id == self._cluster_id or cluster_id is None:
            return
        self._cluster_id = cluster_id
        for listener in self._listeners:
            safely(listener, "on_update", lambda each=listener: each.on_update(cluster_id))  # type: ignore[misc]


def safely(plugin: object, what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        log_failure(plugin, what)


def log_failure(plugin: object, what: str) -> None:
    _LOG.warning("%s failed in %s; all else goes on", type(plugin).__qualname__, what, exc_info=True)
