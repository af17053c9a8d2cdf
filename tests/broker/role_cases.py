"""Files of settings that say which roles a node plays and who the quorum is, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Settings = Mapping[str, str]

VOTERS: Final = "1@a:9093,2@b:9093,3@c:9093"
COMBINED: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": VOTERS,
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093",
}
BROKER: Final = COMBINED | {"process.roles": "broker", "node.id": "4", "listeners": "PLAINTEXT://a:9092"}
CONTROLLER: Final = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://a:9093"}

_OTHER_TOO: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT"


def changed(base: Settings, *gone: str, **changes: str) -> Settings:
    settings = {**base, **{name.replace("_", "."): value for name, value in changes.items()}}
    return {name: value for name, value in settings.items() if name not in gone}


def dynamic(base: Settings, **changes: str) -> Settings:
    """The same, with the voters in the log."""
    changes = {"controller_quorum_bootstrap_servers": "a:9093,b:9093"} | changes
    return changed(base, "controller.quorum.voters", **changes)


def voters(text: str) -> Settings:
    return changed(COMBINED, controller_quorum_voters=text)


def servers(text: str) -> Settings:
    return dynamic(COMBINED, controller_quorum_bootstrap_servers=text)


def listeners(base: Settings, text: str, **changes: str) -> Settings:
    return changed(base, listeners=text, **changes)


TAKEN: Final[Mapping[str, Settings]] = {
    "both roles": COMBINED,
    "only a broker": BROKER,
    "only a controller": CONTROLLER,
    "both roles, voters in the log": dynamic(COMBINED),
    "only a broker, voters in the log": dynamic(BROKER),
    "only a controller, voters in the log": dynamic(CONTROLLER),
    "voters and bootstrap servers": changed(COMBINED, controller_quorum_bootstrap_servers="a:9093"),
    "both roles, and the controller's listener is advertised": changed(
        COMBINED, advertised_listeners="PLAINTEXT://a:9092,CONTROLLER://a:9093"
    ),
    "a controller that advertises its listener": changed(CONTROLLER, advertised_listeners="CONTROLLER://b:9093"),
    "a controller that advertises a broker's listener": changed(CONTROLLER, advertised_listeners="PLAINTEXT://a:9092"),
    "a broker that advertises a controller's listener": changed(
        BROKER, advertised_listeners="PLAINTEXT://a:9092,CONTROLLER://a:9093"
    ),
    "two controller listeners": listeners(
        COMBINED,
        "PLAINTEXT://a:9092,CONTROLLER://a:9093,OTHER://a:9094",
        controller_listener_names="CONTROLLER,OTHER",
    ),
    "a broker that names two controller listeners": changed(BROKER, controller_listener_names="CONTROLLER,OTHER"),
    "a controller that names a listener of brokers": changed(CONTROLLER, inter_broker_listener_name="PLAINTEXT"),
    "roles in the other order": changed(COMBINED, process_roles="controller,broker"),
    "a role twice": changed(COMBINED, process_roles="broker,broker,controller"),
    "broker.id in the place of node.id": changed(COMBINED, "node.id", broker_id="1"),
    "a voter at any free port": voters("1@a:0,2@a:0"),
    "the same voter twice": voters("1@a:9093,1@a:9093"),
    "a voter with an IPv6 address": voters("1@[::1]:9093"),
    "blanks between voters": voters("1@a:9093, 2@b:9093"),
    "a bootstrap server twice": servers("a:9093,a:9093"),
    "a bootstrap server with an IPv6 address": servers("[::1]:9093"),
    "a controller at all addresses": listeners(CONTROLLER, "CONTROLLER://0.0.0.0:9093"),
    "both roles, the controller at all addresses": listeners(
        COMBINED, "PLAINTEXT://a:9092,CONTROLLER://0.0.0.0:9093"
    ),
    "both roles at all addresses, one advertised": listeners(
        COMBINED,
        "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
        advertised_listeners="PLAINTEXT://a:9092",
    ),
    "a controller that may join the voters": dynamic(CONTROLLER, controller_quorum_auto_join_enable="true"),
}  # fmt: skip

#: With a part of what is said of each.
REFUSED: Final[Mapping[str, tuple[Settings, str]]] = {
    "no roles": (
        changed(COMBINED, "process.roles"),
        "process.roles is not given: this is a file of ZooKeeper's time",
    ),
    "a file of ZooKeeper's time": (
        {"broker.id": "0", "zookeeper.connect": "localhost:2181"},
        "begin with a file of 'barnabas server init DIR'",
    ),
    "empty roles": (changed(COMBINED, process_roles=""), "items broker, controller, at least one"),
    "an unknown role": (changed(COMBINED, process_roles="zookeeper"), "items broker, controller, at least one"),
    "no id": (changed(COMBINED, "node.id"), "node.id is required"),
    "a negative id": (changed(COMBINED, node_id="-1"), "node.id = '-1': the value is not allowed"),
    "two ids that differ": (changed(COMBINED, broker_id="2"), "node.id = 1, broker.id = 2: both name this node"),
    "a broker among the voters": (
        changed(BROKER, node_id="2"),
        f"process.roles = broker, node.id = 2, controller.quorum.voters = {VOTERS}: a node that is only a broker "
        "cannot be one of the voters, and 2 is among them; give it another node.id, or use "
        "process.roles=broker,controller",
    ),
    "both roles, but no voter": (
        changed(COMBINED, node_id="4"),
        f"process.roles = broker,controller, node.id = 4, controller.quorum.voters = {VOTERS}: a node that is "
        "controller too must be one of the voters, and 4 is not among them; add it there, correct node.id, or use "
        "process.roles=broker",
    ),
    "a controller that is no voter": (
        changed(CONTROLLER, node_id="4"),
        "a controller must be one of the voters, and 4 is not among them; add it there, correct node.id",
    ),
    "no controller listener named": (
        changed(COMBINED, "controller.listener.names"),
        "controller.listener.names is required",
    ),
    "no controller listener named, of a broker": (
        changed(BROKER, "controller.listener.names"),
        "controller.listener.names is required",
    ),
    "no controller listener named, of a controller": (
        changed(CONTROLLER, "controller.listener.names"),
        "controller.listener.names is required",
    ),
    "the names of controller listeners are empty": (
        changed(COMBINED, controller_listener_names=""),
        "controller.listener.names = ''",
    ),
    "both roles without the controller's listener": (
        listeners(COMBINED, "PLAINTEXT://a:9092"),
        "process.roles = broker,controller, listeners = PLAINTEXT://a:9092, controller.listener.names = CONTROLLER: a "
        "controller must listen under all of its controller.listener.names; add CONTROLLER://:9093 to listeners",
    ),
    "a controller without listeners": (changed(CONTROLLER, "listeners"), "add CONTROLLER://:9093 to listeners"),
    "a controller with one of its two listeners": (
        changed(CONTROLLER, controller_listener_names="CONTROLLER,OTHER"),
        "add OTHER://:9093 to listeners",
    ),
    "a controller with a broker's listener": (
        listeners(CONTROLLER, COMBINED["listeners"]),
        "take PLAINTEXT out of listeners, or use process.roles=broker,controller",
    ),
    "a broker with a controller's listener": (
        listeners(BROKER, COMBINED["listeners"]),
        "CONTROLLER belongs to the controllers, so a node that is only a broker must not open it; take it out of "
        "listeners, or use process.roles=broker,controller",
    ),
    "both roles without a broker's listener": (
        listeners(COMBINED, "CONTROLLER://a:9093"),
        "a broker needs a listener that is not one of the controller's",
    ),
    "only the controller's listener advertised": (
        changed(COMBINED, advertised_listeners="CONTROLLER://a:9093"),
        "a broker needs a listener that is not one of the controller's",
    ),
    "a listener advertised that is not there": (
        changed(
            COMBINED,
            advertised_listeners="PLAINTEXT://a:9092,OTHER://a:9094",
            listener_security_protocol_map=_OTHER_TOO,
        ),
        "OTHER is advertised, but the node does not listen under that name",
    ),
    "the controller's listener advertised at all addresses": (
        changed(COMBINED, advertised_listeners="PLAINTEXT://a:9092,CONTROLLER://0.0.0.0:9093"),
        "clients cannot connect to 0.0.0.0",
    ),
    "a controller that advertises all addresses": (
        changed(CONTROLLER, advertised_listeners="CONTROLLER://0.0.0.0:9093"),
        "clients cannot connect to 0.0.0.0",
    ),
    "both roles at all addresses": (
        listeners(COMBINED, "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093"),
        "clients cannot connect to 0.0.0.0",
    ),
    "brokers that talk on the controller's listener": (
        changed(COMBINED, inter_broker_listener_name="CONTROLLER"),
        "CONTROLLER is one of controller.listener.names, and brokers talk to each other on a listener of their own; "
        "use PLAINTEXT",
    ),
    "a controller whose brokers talk on its listener": (
        changed(CONTROLLER, inter_broker_listener_name="CONTROLLER"),
        "leave out inter.broker.listener.name",
    ),
    "brokers that talk on a listener that is not there": (
        changed(COMBINED, inter_broker_listener_name="OTHER", listener_security_protocol_map=_OTHER_TOO),
        "brokers talk over OTHER, which is not among PLAINTEXT",
    ),
    "neither voters nor bootstrap servers": (
        changed(COMBINED, "controller.quorum.voters"),
        "process.roles = broker,controller, controller.quorum.voters =  (default), controller.quorum.bootstrap.servers "
        "=  (default): one of the last two must say where the controllers are",
    ),
    "neither, of a broker": (changed(BROKER, "controller.quorum.voters"), "one of the last two must say where"),
    "both empty": (
        changed(COMBINED, controller_quorum_voters="", controller_quorum_bootstrap_servers=""),
        "one of the last two must say where",
    ),
    "a voter without id": (voters("a:9093"), "each id@host:port"),
    "a voter whose id is a word": (voters("one@a:9093"), "each id@host:port"),
    "a voter without port": (voters("1@a"), "each id@host:port"),
    "a voter with two ids": (voters("1@2@a:9093"), "each id@host:port"),
    "a voter whose port is too large": (voters("1@a:70000"), "'a:70000' has port 70000, and the highest is 65535"),
    "voters that end with a comma": (voters("1@a:9093,"), "each id@host:port"),
    "voters between semicolons": (voters("1@a:9093;2@b:9093"), "each id@host:port"),
    "a bootstrap server without port": (servers("a"), "each host:port"),
    "a bootstrap server with an id": (servers("1@a:9093"), "each host:port"),
    "a bootstrap server whose port is too large": (servers("a:70000"), "has port 70000"),
    "a broker that joins the voters": (
        dynamic(BROKER, controller_quorum_auto_join_enable="true"),
        "only a controller can join the voters",
    ),
    "a broker that does not know the controllers' protocol": (
        changed(BROKER, listener_security_protocol_map="PLAINTEXT:PLAINTEXT"),
        "listener.security.protocol.map does not say which protocol CONTROLLER uses",
    ),
    "a controller that does not know its own protocol": (
        changed(CONTROLLER, listener_security_protocol_map="PLAINTEXT:PLAINTEXT"),
        "listener.security.protocol.map does not say which protocol CONTROLLER uses",
    ),
    "one port for both": (
        listeners(COMBINED, "PLAINTEXT://a:9092,CONTROLLER://a:9092"),
        "PLAINTEXT and CONTROLLER share port 9092",
    ),
}  # fmt: skip

#: Kafka takes these, and they cannot work.
REFUSED_HERE_ALONE: Final[Mapping[str, tuple[Settings, str]]] = {
    "an id at two addresses": (voters("1@a:9093,1@b:9093,2@c:9093"), "1@a:9093 and 1@b:9093 have the same id"),
    "two voters at one address": (voters("1@a:9093,2@a:9093"), "1@a:9093 and 2@a:9093 have the same address"),
    "a voter with a negative id": (voters("-1@a:9093,1@b:9093"), "each id@host:port"),
    "a voter without host": (voters("1@:9093"), "each id@host:port"),
    "a voter at all addresses": (voters("1@0.0.0.0:9093"), "others cannot connect to 0.0.0.0"),
}
