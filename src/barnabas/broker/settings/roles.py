"""Which roles a node plays, where it listens in each, and who the quorum is: what these settings say together.

Which files are refused is Kafka's decision, but for a few that Kafka takes and that cannot work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.base.settings import rule
from barnabas.broker.settings.endpoints import (
    SECURITY_PROTOCOLS,
    Endpoint,
    QuorumVoter,
    parse_endpoint,
    parse_host_and_port,
    parse_pairs,
    parse_voter,
    what_is_wrong_with,
)
from barnabas.broker.settings.listeners import ListenerSettings, NodeSettings
from barnabas.broker.settings.quorum import QuorumSettings

#: What is said of a file without `process.roles`. What else it lacks follows from that.
NO_ROLES: Final = (
    "process.roles is not given: this is a file of ZooKeeper's time, and there is no ZooKeeper any more; begin with a "
    "file of 'barnabas server init DIR' and format a new directory, or let Kafka 3.9 migrate the cluster to KRaft first"
)


_SECURED: Final = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})


class RoleRules(NodeSettings, ListenerSettings, QuorumSettings):
    """What the settings of roles, listeners and quorum mean, and how they must fit together."""

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where this node listens."""
        return tuple(map(parse_endpoint, self.listeners))

    @property
    def controller_listeners(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.controller_listener_names)

    @property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """What clients are told; controllers advertise their listeners to each other apart from this."""
        return tuple(each for each in self._all_advertised if each.listener not in self.controller_listeners)

    @property
    def advertised_controller_endpoints(self) -> tuple[Endpoint, ...]:
        """What other nodes are told of this controller: all its listeners, in the order of controller.listener.names.

        One that is not advertised is told as it is listened on; no host means the name of the machine.
        """
        listened = (
            each if each.host != "0.0.0.0" else Endpoint(each.listener, "", each.port) for each in self.endpoints
        )
        advertised = () if self.advertised_listeners is None else self._all_advertised
        known = {each.listener: each for each in (*listened, *advertised)}
        return tuple(known[name] for name in self.controller_listeners if name in known)

    @property
    def _all_advertised(self) -> tuple[Endpoint, ...]:
        return tuple(
            map(parse_endpoint, self.listeners if self.advertised_listeners is None else self.advertised_listeners)
        )

    @property
    def security_protocols(self) -> Mapping[str, str]:
        """The security protocol of each listener name. Controller listeners are plain when the map was left alone and
        no listener is named after TLS or SASL: who wants those is to say what the controllers speak."""
        pairs = parse_pairs(self.listener_security_protocol_map, "NAME:PROTOCOL")
        protocols = {name.upper(): protocol.upper() for name, protocol in pairs.items()}
        names = {name.partition("://")[0].upper() for name in (*self.listeners, *self.controller_listener_names)}
        if not self.is_given("listener.security.protocol.map") and not names & _SECURED:
            protocols = dict.fromkeys(self.controller_listeners, "PLAINTEXT") | protocols
        return protocols

    def security_protocol_id(self, listener: str) -> int:
        """The number by which other nodes are told the security protocol of a listener."""
        return SECURITY_PROTOCOLS.index(self.security_protocols[listener])

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener between brokers. One that is only known by its protocol is called like that."""
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    @property
    def static_voters(self) -> tuple[QuorumVoter, ...]:
        """The voters that the settings name; none where the log does."""
        return tuple(map(parse_voter, self.controller_quorum_voters))

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(each.node_id for each in self.static_voters)

    # Listeners

    @rule("listener_security_protocol_map")
    def _protocols_are_known(self) -> str | None:
        try:
            unknown = sorted(set(self.security_protocols.values()) - set(SECURITY_PROTOCOLS))
        except ValueError as error:
            return str(error)
        return f"no protocol is called {unknown[0]}; there are {', '.join(SECURITY_PROTOCOLS)}" if unknown else None

    @rule("listeners", "listener_security_protocol_map", "controller_listener_names")
    def _listeners_can_be_opened(self) -> str | None:
        try:
            return what_is_wrong_with(self.endpoints, self.security_protocols, self.controller_listeners)
        except ValueError as error:
            return str(error)

    @rule("advertised_listeners", "listeners", "process_roles", "controller_listener_names")
    def _advertised_listeners_lead_here(self) -> str | None:
        try:
            names = {each.listener for each in self.endpoints}
            advertised = self._all_advertised
        except ValueError as error:
            return str(error)
        for endpoint in advertised:
            is_for_clients = endpoint.listener not in self.controller_listeners
            if [each.listener for each in advertised].count(endpoint.listener) > 1:
                return f"{endpoint.listener} is advertised twice"
            if endpoint.listener not in names and is_for_clients and self.is_broker:
                return f"{endpoint.listener} is advertised, but the node does not listen under that name"
            if endpoint.host == "0.0.0.0" and (is_for_clients or self.advertised_listeners is not None):
                return "clients cannot connect to 0.0.0.0; advertise a name or address that they can reach"
        if self.is_broker and not self.advertised_endpoints:
            return "a broker needs a listener that is not one of the controller's; add one, such as PLAINTEXT://:9092"
        return None

    @rule("process_roles", "listeners", "controller_listener_names")
    def _controller_listeners_fit_the_roles(self) -> str | None:
        try:
            names = {each.listener for each in self.endpoints}
        except ValueError:
            return None  # told by the rule about listeners
        shared = names.intersection(self.controller_listeners)
        missing = [name for name in self.controller_listeners if name not in names]
        if not self.is_controller and shared:
            return (
                f"{', '.join(sorted(shared))} belongs to the controllers, so a node that is only a broker must not "
                "open it; take it out of listeners, or use process.roles=broker,controller"
            )
        if self.is_controller and missing:
            return (
                "a controller must listen under all of its controller.listener.names; add "
                f"{missing[0]}://:9093 to listeners"
            )
        if not self.is_broker and names != shared:
            return (
                "a node that is only a controller must open only listeners of controller.listener.names; take "
                f"{', '.join(sorted(names - shared))} out of listeners, or use process.roles=broker,controller"
            )
        return None

    @rule("inter_broker_listener_name", "security_inter_broker_protocol", "advertised_listeners", "listeners")
    def _brokers_can_reach_each_other(self) -> str | None:
        if self.is_given("inter.broker.listener.name") and self.is_given("security.inter.broker.protocol"):
            return "give only one of the first two"
        try:
            names = [each.listener for each in self.advertised_endpoints]
        except ValueError:
            return None  # told by the rule about listeners
        if self.inter_broker_listener in self.controller_listeners and self.inter_broker_listener_name is not None:
            way_out = f"use {names[0]}" if names else "leave out inter.broker.listener.name"
            return (
                f"{self.inter_broker_listener} is one of controller.listener.names, and brokers talk to each other on "
                f"a listener of their own; {way_out}"
            )
        if self.is_broker and names and self.inter_broker_listener not in names:
            return f"brokers talk over {self.inter_broker_listener}, which is not among {', '.join(names)}"
        return None

    @rule("early_start_listeners", "listeners")
    def _early_listeners_exist(self) -> str | None:
        try:
            names = {each.listener for each in self.endpoints}.union(self.controller_listeners)
        except ValueError:
            return None  # told by the rule about listeners
        missing = [name for name in self.early_start_listeners or () if name.upper() not in names]
        return f"the node does not listen as {', '.join(missing)}" if missing else None

    # The quorum

    @rule("process_roles", "controller_quorum_voters", "controller_quorum_bootstrap_servers")
    def _quorum_is_known(self) -> str | None:
        if not self.controller_quorum_voters and not self.controller_quorum_bootstrap_servers:
            return (
                "one of the last two must say where the controllers are; write controller.quorum.voters=ID@HOST:PORT,… "
                "for voters that stay, or controller.quorum.bootstrap.servers=HOST:PORT,… for voters that the log names"
            )
        return None

    @rule("controller_quorum_voters")
    def _voters_are_different_nodes(self) -> str | None:
        try:
            voters = self.static_voters
        except ValueError as error:
            return str(error)
        by_id: dict[int, QuorumVoter] = {}
        by_address: dict[tuple[str, int], QuorumVoter] = {}
        for voter in voters:
            if voter.host == "0.0.0.0":
                return "others cannot connect to 0.0.0.0; give a name or address that they can reach"
            other = by_id.setdefault(voter.node_id, voter)
            if other != voter:
                return f"{other} and {voter} have the same id; each controller has a node.id of its own"
            other = by_address.setdefault((voter.host, voter.port), voter) if voter.port else voter
            if other != voter:
                return f"{other} and {voter} have the same address; each controller has one of its own"
        return None

    @rule("controller_quorum_bootstrap_servers")
    def _bootstrap_servers_are_addresses(self) -> str | None:
        try:
            for each in self.controller_quorum_bootstrap_servers:
                parse_host_and_port(each)
        except ValueError as error:
            return str(error)
        return None

    @rule("process_roles", "node_id", "controller_quorum_voters")
    def _voters_are_the_controllers(self) -> str | None:
        try:
            voter_ids = self.voter_ids
        except ValueError:
            return None  # told by the rule about voters
        if voter_ids and self.is_controller and self.node_id not in voter_ids:
            role = "a controller" if not self.is_broker else "a node that is controller too"
            way_out = "add it there, correct node.id" + (", or use process.roles=broker" if self.is_broker else "")
            return f"{role} must be one of the voters, and {self.node_id} is not among them; {way_out}"
        if not self.is_controller and self.node_id in voter_ids:
            return (
                f"a node that is only a broker cannot be one of the voters, and {self.node_id} is among them; give it "
                "another node.id, or use process.roles=broker,controller"
            )
        return None

    @rule("controller_quorum_auto_join_enable", "process_roles")
    def _only_controllers_join(self) -> str | None:
        if self.controller_quorum_auto_join_enable and not self.is_controller:
            return "only a controller can join the voters"
        return None
