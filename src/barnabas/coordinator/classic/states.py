"""The states of a classic group and how it moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class ClassicGroupState(Enum):
    """Where a group stands in its rebalance; the values are the names that clients see."""

    #: No members. Offsets may be there, and members who were told to come back with an id.
    EMPTY = "Empty"
    #: The join barrier: members gather, the generation is not made yet.
    PREPARING_REBALANCE = "PreparingRebalance"
    #: The generation is made; its leader computes the assignment, the others wait for it.
    COMPLETING_REBALANCE = "CompletingRebalance"
    #: The assignment is in the log and with the members.
    STABLE = "Stable"
    #: Deleted, or moved to another broker.
    DEAD = "Dead"


NEXT_STATES: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = MappingProxyType(
    {
        ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
        ClassicGroupState.PREPARING_REBALANCE: frozenset(
            {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
        ),
        ClassicGroupState.COMPLETING_REBALANCE: frozenset(
            {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
        ),
        ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
        ClassicGroupState.DEAD: frozenset(),
    }
)
