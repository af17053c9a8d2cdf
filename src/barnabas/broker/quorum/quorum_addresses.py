"""Who votes and where controllers are found, as the settings of a node say.

With `controller.quorum.voters` the settings name the voters (kraft.version 0), unless the log does: a quorum that was
moved to kraft.version 1 may keep them in its settings. Without it, only the log names them.
"""

from __future__ import annotations

from barnabas.broker.settings import BrokerSettings
from barnabas.broker.settings.endpoints import parse_host_and_port
from barnabas.raft.types import Address, ReplicaKey
from barnabas.raft.voters import Voter, VoterSet


def quorum_voters(settings: BrokerSettings) -> VoterSet | None:
    """The voters of `controller.quorum.voters`, without directories; None where the log names them."""
    if not settings.static_voters:
        return None
    listener = settings.controller_listeners[0]
    return VoterSet(
        Voter(ReplicaKey(each.node_id), {listener: Address(each.host, each.port)}) for each in settings.static_voters
    )


def bootstrap_addresses(settings: BrokerSettings) -> list[Address]:
    """Where to ask for the leader while none is known: `controller.quorum.bootstrap.servers`, or else the voters."""
    given = settings.controller_quorum_bootstrap_servers
    if given:
        return [Address(*parse_host_and_port(each)) for each in given]
    return [Address(each.host, each.port) for each in settings.static_voters]
