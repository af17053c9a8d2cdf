"""Which names topics may have."""

from __future__ import annotations

import re
from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"

MAX_NAME_LENGTH: Final = 249

_INTERNAL: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def is_internal(name: str) -> bool:
    """Whether the cluster keeps its own state in this topic."""
    return name in _INTERNAL


def what_is_wrong_with_name(name: str) -> str | None:
    """Why no topic can be called that, or None when one can.

    >>> what_is_wrong_with_name("orders.eu-west_1")
    >>> what_is_wrong_with_name("..")
    "a topic cannot be called '..'"
    """
    if not name:
        return "a topic needs a name: it must not be empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > MAX_NAME_LENGTH:
        return f"the topic name {name[:20]!r}… has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    if not _NAME.fullmatch(name):
        return f"the topic name {name!r} may only have the letters a-z and A-Z, digits, '.', '_' and '-'"
    return None


def may_collide(name: str) -> bool:
    """Whether another name can have the same collision key."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Names with the same key cannot be told apart in the names of metrics, where '.' becomes '_'."""
    return name.replace(".", "_")
