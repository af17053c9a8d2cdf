"""The files that `server init` writes: `config/kraft/{server,broker,controller}.properties`, as Kafka ships them.

They lie in `templates/kraft` as one would read them; what differs from node to node is put in the place of their lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.properties import format_properties, parse_properties
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.single_node import replication_for

FOLDER: Final = "config/kraft"
_CLIENT_PORT: Final = 9092
_CONTROLLER_PORT: Final = 9093
#: A setting, also one that is only proposed.
_NAME: Final = re.compile(r"^#?([a-z.]+)=.*\n")


class ServerFile(NamedTuple):
    """A file to write, and what it is for."""

    path: Path
    text: str
    purpose: str


def files_of_one_machine(directory: Path, host: str) -> list[ServerFile]:
    """A combined node, or a broker and its controller: files for one node each, to begin with."""
    folder = directory / FOLDER
    at = {
        "controller.quorum.voters": f"1@{host}:{_CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{host}:{_CLIENT_PORT}",
    }
    client, controller = f"PLAINTEXT://{host}:{_CLIENT_PORT}", f"CONTROLLER://{host}:{_CONTROLLER_PORT}"
    return [
        ServerFile(
            folder / "server.properties",
            _filled("server", at | {"listeners": f"{client},{controller}", "log.dirs": _data(directory, "data")}),
            "node 1, broker and controller",
        ),
        ServerFile(
            folder / "broker.properties",
            _filled("broker", at | {"listeners": client, "log.dirs": _data(directory, "broker-data")}),
            "node 2, only a broker",
        ),
        ServerFile(
            folder / "controller.properties",
            _filled("controller", at | {"listeners": controller, "log.dirs": _data(directory, "controller-data")}),
            "node 1, only a controller",
        ),
    ]


def files_of_nodes(directory: Path, hosts: Sequence[str]) -> list[ServerFile]:
    """Nodes that are broker and controller each, and the cluster together; those of one host get ports of their own."""
    places = []
    for number, host in enumerate(hosts, 1):
        before = 2 * hosts[: number - 1].count(host)
        places.append((number, host, _CLIENT_PORT + before, _CONTROLLER_PORT + before))
    voters = ",".join(f"{number}@{host}:{controller_port}" for number, host, _, controller_port in places)
    made = []
    for number, host, port, controller_port in places:
        values = {
            **replication_for(len(hosts)),
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{host}:{port}",
            "log.dirs": _data(directory, f"data-{number}"),
        }
        path = directory / FOLDER / f"server-{number}.properties"
        made.append(ServerFile(path, _filled("server", values), f"node {number} at {host}, broker and controller"))
    return made


def write_files(made: Sequence[ServerFile]) -> None:
    """Write all of them, or none: what is there already may have been edited."""
    for each in made:
        if each.path.exists():
            raise BarnabasError(f"{each.path} is there already, and nothing was written; choose another folder")
    for each in made:
        each.path.parent.mkdir(parents=True, exist_ok=True)
        each.path.write_text(each.text, encoding="ascii")


def shown_host(host: str) -> str:
    """As it stands before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _data(directory: Path, name: str) -> str:
    path = str((directory / name).absolute())
    if "," in path:
        raise BarnabasError(f"{directory.absolute()} has a comma in it, which separates paths in log.dirs; use another")
    return path


def _filled(template: str, values: Mapping[str, str]) -> str:
    """The template with these values; what comes out are settings of a node, or the values are no good."""
    text = (files("barnabas.cli") / "templates" / "kraft" / f"{template}.properties").read_text(encoding="ascii")

    def line(found: re.Match[str]) -> str:
        name, value = found[1], values.get(found[1])
        if value is None:
            return found[0]
        # Escapes are for who reads the file with a program; people are spared them where nothing asks for them.
        is_plain = value.isascii() and value.isprintable() and "\\" not in value
        return f"{name}={value}\n" if is_plain else format_properties({name: value})

    filled = "".join(_NAME.sub(line, each) for each in text.splitlines(keepends=True))
    BrokerSettings.load(parse_properties(filled))
    return filled
