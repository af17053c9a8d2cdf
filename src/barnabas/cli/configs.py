"""`barnabas configs`: settings of topics, brokers, users and more. Kafka's `kafka-configs`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.admin_options import ClusterOptions
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, action, connection, flag
from barnabas.cli.output import say

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

TOPICS: Final = "topics"
CLIENTS: Final = "clients"
USERS: Final = "users"
BROKERS: Final = "brokers"
BROKER_LOGGERS: Final = "broker-loggers"
IPS: Final = "ips"
CLIENT_METRICS: Final = "client-metrics"
GROUPS: Final = "groups"

_TYPES: Final = (TOPICS, CLIENTS, USERS, BROKERS, IPS, CLIENT_METRICS, GROUPS, BROKER_LOGGERS)
#: Those that have settings for all without settings of their own.
_WITH_DEFAULTS: Final = frozenset({CLIENTS, USERS, BROKERS, IPS})

#: Options that name an entity of a type, in the order in which Kafka's tool looks at them.
_NAMED: Final = {
    "--topic": TOPICS,
    "--client": CLIENTS,
    "--user": USERS,
    "--broker": BROKERS,
    "--broker-logger": BROKER_LOGGERS,
    "--ip": IPS,
    "--client-metrics": CLIENT_METRICS,
    "--group": GROUPS,
}
_DEFAULTS: Final = {
    "--client-defaults": CLIENTS,
    "--user-defaults": USERS,
    "--broker-defaults": BROKERS,
    "--ip-defaults": IPS,
}
#: The name of the entity that stands for all others.
DEFAULT: Final = ""

#: A place outside brackets.
_OUTSIDE: Final = r"(?=[^\]]*(?:\[|$))"
_BETWEEN: Final = re.compile("," + _OUTSIDE)
_EQUALS: Final = re.compile(r"\s*=\s*" + _OUTSIDE)
_NAME: Final = re.compile(r"[$a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ConfigsRequest:
    """Whose settings, and what about them. There are fewer names than types where all entities of a type are meant."""

    types: tuple[str, ...]
    names: tuple[str, ...]
    add: dict[str, str]
    delete: tuple[str, ...]
    with_all: bool
    as_json: bool


@click.command(cls=KafkaTool)
@connection(controllers=True)
@action("--describe", "Show settings.")
@action("--alter", "Change settings.")
@flag("--all", "Describe all settings, not only those that were changed while brokers run.")
@click.option("--entity-type", "entity_types", multiple=True, metavar="TYPE", help=f"One of {', '.join(_TYPES)}.")
@click.option("--entity-name", "entity_names", multiple=True, metavar="NAME", help="The name of the entity.")
@flag("--entity-default", "What holds for clients, users, brokers or ips without settings of their own.")
@click.option("--topic", metavar="NAME", help="Short for --entity-type topics --entity-name NAME.")
@click.option("--client", metavar="ID", help="The same for clients.")
@flag("--client-defaults", "Short for --entity-type clients --entity-default.")
@click.option("--user", metavar="NAME", help="The same for users.")
@flag("--user-defaults", "The same for users.")
@click.option("--broker", metavar="ID", help="The same for brokers.")
@flag("--broker-defaults", "The same for brokers.")
@click.option("--broker-logger", metavar="ID", help="The loggers of a broker.")
@click.option("--ip", metavar="ADDRESS", help="The same for ips.")
@flag("--ip-defaults", "The same for ips.")
@click.option("--group", metavar="ID", help="The same for groups.")
@click.option("--client-metrics", metavar="NAME", help="The same for client metrics.")
@click.option("--add-config", metavar="K=V,…", help="Settings to set: 'k1=v1,k2=[v1,v2],k3=v3'.")
@click.option("--add-config-file", metavar="FILE", help="The same from a .properties file.")
@click.option("--delete-config", "delete_configs", multiple=True, metavar="K,…", help="Settings to remove: 'k1,k2'.")
@click.pass_context
def configs(
    ctx: click.Context,
    /,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    add_config: str | None,
    add_config_file: str | None,
    delete_configs: tuple[str, ...],
    **named: str | None,
) -> None:
    """Show and change the settings of topics, brokers, groups and client metrics, and quotas and passwords of users.

    \b
    Examples:
      barnabas configs --bootstrap-server 127.0.0.1:9092 --describe --topic clicks --all
      barnabas configs --bootstrap-server 127.0.0.1:9092 --alter --topic clicks
          --add-config 'retention.ms=86400000,cleanup.policy=[compact,delete]'
      barnabas configs --bootstrap-server 127.0.0.1:9092 --alter --user ann
          --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'
    """
    given = GivenOptions(ctx)
    is_alter = given.exactly_one("--describe", "--alter") == "--alter"
    given.exclude("--describe", "--add-config", "--add-config-file", "--delete-config")
    given.exactly_one("--bootstrap-server", "--bootstrap-controller")
    types, names = _entities(given, entity_types, entity_names, named)
    _check(given, types, names, is_alter)
    wanted = ConfigsRequest(
        types,
        names,
        _added(add_config, add_config_file),
        tuple(part.strip() for text in delete_configs for part in text.split(",")),
        "--all" in given,
        as_json,
    )
    cluster = ClusterOptions(bootstrap_server, command_config, bootstrap_controller)
    cluster.run(lambda admin: _work(admin, wanted, is_alter))


def _entities(
    given: GivenOptions, types: tuple[str, ...], names: tuple[str, ...], named: dict[str, str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Types and names, each in the order that Kafka's tool gives them."""
    shorts = given.among((*_NAMED, *_DEFAULTS))
    longs = given.among(("--entity-type", "--entity-name", "--entity-default"))
    if shorts and longs:
        raise click.UsageError(f"{longs[0]} does not go with {shorts[0]}")
    if shorts:
        both = _NAMED | _DEFAULTS
        values = [named.get(each[2:].replace("-", "_")) or DEFAULT for each in shorts]
        return tuple(both[each] for each in shorts), tuple(values)
    left = iter(names)
    ordered = [
        next(left) if each == "--entity-name" else DEFAULT
        for each in given.order
        if each in ("--entity-name", "--entity-default")
    ]
    return types, tuple(ordered)


def _check(given: GivenOptions, types: tuple[str, ...], names: tuple[str, ...], is_alter: bool) -> None:
    """Which entities may be asked for, and how they are called."""
    if not types:
        raise click.UsageError("--entity-type is missing, or an option like --topic")
    for each in types:
        if each not in _TYPES:
            raise click.UsageError(f"--entity-type: {each!r} is none of {', '.join(_TYPES)}")
    if len(set(types)) != len(types):
        raise click.UsageError(f"{types[0]} are asked for twice")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise click.UsageError(f"{' and '.join(types)} do not go together, only {USERS} and {CLIENTS} do")
    if len(names) > len(types):
        raise click.UsageError("there are more names than types: give one --entity-name for each --entity-type")
    for kind, name in zip(types, names, strict=False):
        _check_name(kind, name)
    if is_alter:
        if len(names) != len(types):
            default = " or --entity-default" if types[0] in _WITH_DEFAULTS else ""
            raise click.UsageError(f"--entity-name{default} is missing for --alter of {' and '.join(types)}")
        given.at_most_one("--add-config", "--add-config-file")
        given.need_one_of("--add-config", "--add-config-file", "--delete-config", why="for --alter")
    elif BROKER_LOGGERS in types and not names:
        raise click.UsageError("--entity-name is missing for --describe of broker-loggers")


def _check_name(kind: str, name: str) -> None:
    if name == DEFAULT and kind not in _WITH_DEFAULTS:
        raise click.UsageError(f"{kind} have no defaults: --entity-name is needed, and must not be empty")
    if name and kind in (BROKERS, BROKER_LOGGERS):
        try:
            int(name)
        except ValueError:
            raise click.UsageError(f"{kind} go by their ids, and {name!r} is no number") from None
    if name and kind == IPS:
        import socket

        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError):
            raise click.UsageError(f"{name!r} is neither an address nor a host that can be resolved") from None


def _added(text: str | None, path: str | None) -> dict[str, str]:
    found: dict[str, str] = {}
    if path is not None:
        from barnabas.base.properties import load_properties_file

        found = {name: str(value) for name, value in load_properties_file(path).items()}
    elif text is not None:
        found = parse_settings(text)
    for name in found:
        if not _NAME.fullmatch(name):
            raise click.UsageError(f"{name!r} cannot be the name of a setting")
    return found


def parse_settings(text: str) -> dict[str, str]:
    """Settings by ','; brackets hold together what has ',' or '=' in it.

    >>> parse_settings("a=1,b=[x,y],c=")
    {'a': '1', 'b': 'x,y', 'c': ''}
    """
    found = {}
    for part in _BETWEEN.split(text):
        pair = _EQUALS.split(part)
        if len(pair) != 2:
            raise click.UsageError(f"--add-config: {part!r} is not of the form name=value or name=[value,value]")
        found[pair[0].strip()] = pair[1].replace("[", "").replace("]", "").strip()
    return found


async def _work(admin: Admin, wanted: ConfigsRequest, is_alter: bool) -> None:
    if wanted.types[0] in (USERS, CLIENTS, IPS):
        from barnabas.cli import configs_of_clients

        await (configs_of_clients.alter if is_alter else configs_of_clients.describe)(admin, wanted)
    else:
        from barnabas.cli import configs_of_resources

        await (configs_of_resources.alter if is_alter else configs_of_resources.describe)(admin, wanted)
    if is_alter:
        _tell_done(wanted)


def _tell_done(wanted: ConfigsRequest) -> None:
    from barnabas.cli.output import print_json

    kind, name = wanted.types[0], wanted.names[0]
    if wanted.as_json:
        entities: list[dict[str, Any]] = [
            {"type": each, "name": one or None} for each, one in zip(wanted.types, wanted.names, strict=True)
        ]
        print_json({"entities": entities, "set": sorted(wanted.add), "deleted": list(wanted.delete)})
    elif name:
        say(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        say(f"Completed updating default config for {kind} in the cluster.")
