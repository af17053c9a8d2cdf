"""The one table of what a replica may become, and why. Whatever is not in it is an error of ours.

`docs/raft.md` draws it (`diagram`), and a test holds that it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from barnabas.base.errors import check


class Role(Enum):
    """What a replica is in its epoch. Whether it is a voter or an observer is another matter: its voter set says."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


TRANSITIONS: Final[Mapping[tuple[Role, Role], str]] = {
    (Role.UNATTACHED, Role.UNATTACHED): "a higher epoch is heard of, or a vote is given",
    (Role.UNATTACHED, Role.PROSPECTIVE): "the election timeout is over",
    (Role.UNATTACHED, Role.FOLLOWER): "a leader is heard of",
    (Role.PROSPECTIVE, Role.UNATTACHED): "a higher epoch, a vote given, the leader resigned, or the pre-vote is lost",
    (Role.PROSPECTIVE, Role.CANDIDATE): "a majority would vote for it",
    (Role.PROSPECTIVE, Role.FOLLOWER): "a leader is heard of, or the pre-vote is lost and the old one may live",
    (Role.CANDIDATE, Role.UNATTACHED): "a higher epoch is heard of, or the leader resigned",
    (Role.CANDIDATE, Role.PROSPECTIVE): "the election is lost or timed out",
    (Role.CANDIDATE, Role.LEADER): "a majority votes for it",
    (Role.CANDIDATE, Role.FOLLOWER): "another leads in this epoch",
    (Role.LEADER, Role.UNATTACHED): "a higher epoch is heard of",
    (Role.LEADER, Role.FOLLOWER): "another leads in a higher epoch",
    (Role.LEADER, Role.RESIGNED): "no majority fetches, or it is told to resign",
    (Role.FOLLOWER, Role.UNATTACHED): "a higher epoch is heard of, or the leader resigned",
    (Role.FOLLOWER, Role.PROSPECTIVE): "the fetch timeout is over, or the leader's process is gone",
    (Role.FOLLOWER, Role.FOLLOWER): "another leads in a higher epoch",
    (Role.RESIGNED, Role.UNATTACHED): "a higher epoch is heard of, or the election timeout is over",
    (Role.RESIGNED, Role.FOLLOWER): "another leads in a higher epoch",
}

#: What a replica is when it starts, by what it finds on its disk.
STARTS: Final[Mapping[Role, str]] = {
    Role.UNATTACHED: "quorum-state names no leader, or this replica",
    Role.FOLLOWER: "quorum-state names a leader",
}


def check_transition(old: Role, new: Role) -> None:
    check((old, new) in TRANSITIONS, f"a replica that is {old.value} cannot become {new.value}")


def diagram() -> str:
    """The table as a picture in Mermaid's language."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {role.value}: {why}" for role, why in STARTS.items()]
    lines += [f"    {old.value} --> {new.value}: {why}" for (old, new), why in TRANSITIONS.items()]
    return "\n".join(lines)
