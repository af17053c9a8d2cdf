"""How the partitions of a group are shared out among its members: one file per way, and the names they go by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.base.errors import SettingsError
from barnabas.base.settings.values import Plugin
from barnabas.client.core.consuming.assignors.cooperative_sticky import CooperativeStickyAssignor
from barnabas.client.core.consuming.assignors.interface import (
    Assignment,
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    TopicsView,
)
from barnabas.client.core.consuming.assignors.range import RangeAssignor
from barnabas.client.core.consuming.assignors.round_robin import RoundRobinAssignor
from barnabas.client.core.consuming.assignors.sticky import StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicsView",
    "common_protocol",
    "load_assignors",
]

ASSIGNORS: Final[dict[str, type[Assignor]]] = {
    each.name: each for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def load_assignors(plugins: Iterable[Plugin]) -> tuple[Assignor, ...]:
    """The assignors that partition.assignment.strategy names, in order of preference: new objects of their classes."""
    found: dict[str, Assignor] = {}
    for plugin in plugins:
        target = plugin.resolve(ASSIGNORS)
        assignor = target() if isinstance(target, type) else target
        missing = [each for each in ("name", "protocols", "assign") if not hasattr(assignor, each)]
        if missing:
            raise SettingsError(
                f"partition.assignment.strategy: {plugin} is not an assignor: it has no {', '.join(missing)}; "
                "derive it from barnabas.client.core.consuming.assignors.Assignor"
            )
        if assignor.name in found:
            raise SettingsError(f"partition.assignment.strategy: two assignors are named {assignor.name!r}")
        found[assignor.name] = assignor
    if not found:
        raise SettingsError("partition.assignment.strategy: name at least one assignor; range is one")
    return tuple(found.values())


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The best protocol that all assignors support: which of them is used shows only when partitions are already kept
    or given up."""
    assignors = list(assignors)
    supported = set(RebalanceProtocol).intersection(*(each.protocols for each in assignors))
    if not supported:
        names = ", ".join(each.name for each in assignors)
        raise SettingsError(
            f"partition.assignment.strategy: {names} have no rebalance protocol in common; leave out those that "
            "are only cooperative, or those that are only eager"
        )
    return max(supported)
