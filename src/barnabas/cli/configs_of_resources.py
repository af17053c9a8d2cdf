"""Settings of topics, brokers, loggers, client metrics and groups for `barnabas configs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError
from barnabas.cli.configs import BROKER_LOGGERS, BROKERS, CLIENT_METRICS, DEFAULT, GROUPS, TOPICS, ConfigsRequest
from barnabas.cli.output import is_terminal, print_json, print_table, say, shown
from barnabas.cli.progress import progress
from barnabas.net.errors import UnsupportedRequestError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ConfigEntry, ConfigResource, ConfigResourceType


def _resource(kind: str, name: str) -> ConfigResource:
    from barnabas.client.admin import ConfigResource

    return ConfigResource(_resource_type(kind), name)


def _resource_type(kind: str) -> ConfigResourceType:
    from barnabas.client.admin import ConfigResourceType

    return {
        TOPICS: ConfigResourceType.TOPIC,
        BROKERS: ConfigResourceType.BROKER,
        BROKER_LOGGERS: ConfigResourceType.BROKER_LOGGER,
        CLIENT_METRICS: ConfigResourceType.CLIENT_METRICS,
        GROUPS: ConfigResourceType.GROUP,
    }[kind]


async def alter(admin: Admin, wanted: ConfigsRequest) -> None:
    from barnabas.client.admin import AlterConfig, ConfigOp

    kind, name = wanted.types[0], wanted.names[0]
    if kind == BROKER_LOGGERS:
        known = {entry.name for entry in await _entries(admin, kind, name, with_all=True)}
        unknown = [each for each in (*wanted.add, *wanted.delete) if each not in known]
        if unknown:
            raise BarnabasError(f"broker {name} has no such loggers: {', '.join(unknown)}")
    changes = [AlterConfig(each, value) for each, value in wanted.add.items()]
    changes += [AlterConfig(each, None, ConfigOp.DELETE) for each in wanted.delete]
    await admin.alter_configs({_resource(kind, name): changes})


async def describe(admin: Admin, wanted: ConfigsRequest) -> None:
    kind = wanted.types[0]
    if wanted.names:
        names = [wanted.names[0]]
        # With --all there is something to tell in any case: the defaults.
        missing = not wanted.with_all and names[0] != DEFAULT and names[0] not in await _names(admin, kind)
    else:
        names, missing = await _names(admin, kind), False
        names += [DEFAULT] if kind == BROKERS else []
    if missing:
        if wanted.as_json:
            print_json([])
        else:
            say(f"The {kind[:-1]} '{names[0]}' doesn't exist and doesn't have dynamic config.")
        return
    found: list[dict[str, Any]] = []
    with progress(f"asking for {kind}", len(names)) as step:
        for name in names:
            entries = await _entries(admin, kind, name, with_all=wanted.with_all)
            if wanted.as_json:
                found.append({"type": kind, "name": name or None, "configs": [_values(entry) for entry in entries]})
            else:
                _show(kind, name, entries, wanted.with_all)
            step()
    if wanted.as_json:
        print_json(found)


async def _names(admin: Admin, kind: str) -> list[str]:
    """The entities that there are, or that have settings."""
    if kind == TOPICS:
        return sorted(await admin.list_topics(include_internal=True))
    if kind in (BROKERS, BROKER_LOGGERS):
        return [str(node.node_id) for node in sorted((await admin.describe_cluster()).nodes)]
    names = set()
    if kind == GROUPS:
        names = {each.group_id for each in await admin.list_groups()}
    try:
        names |= {each.name for each in await admin.list_config_resources([_resource_type(kind)])}
    except UnsupportedRequestError:
        # Groups had settings before brokers could list those that have some.
        if kind != GROUPS:
            raise
    return sorted(names)


async def _entries(admin: Admin, kind: str, name: str, *, with_all: bool) -> list[ConfigEntry]:
    """The settings by name: all, or those that were set at this very place."""
    from barnabas.client.admin import ConfigSource

    resource = _resource(kind, name)
    described = await admin.describe_configs([resource], include_synonyms=True)
    source = {
        TOPICS: ConfigSource.DYNAMIC_TOPIC_CONFIG,
        BROKERS: ConfigSource.DYNAMIC_BROKER_CONFIG if name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
        GROUPS: ConfigSource.DYNAMIC_GROUP_CONFIG,
    }.get(kind)
    return [
        entry
        for _, entry in sorted(described[resource].items())
        if with_all or source is None or entry.source is source
    ]


def _show(kind: str, name: str, entries: list[ConfigEntry], with_all: bool) -> None:
    if name == DEFAULT:
        title = f"Default configs for {kind} in the cluster are:"
    else:
        title = f"{'All' if with_all else 'Dynamic'} configs for {kind[:-1]} {name} are:"
    if is_terminal() and entries:
        rows = [(entry.name, _text(entry.value), entry.source.name.lower(), _synonyms(entry)) for entry in entries]
        print_table(("name", "value", "source", "otherwise"), rows, title=title, may_break=True)
        return
    say(shown(title))
    for entry in entries:
        sensitive = str(entry.is_sensitive).lower()
        line = f"{entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{_synonyms(entry)}}}"
        say(f"  {shown(line)}")


def _synonyms(entry: ConfigEntry) -> str:
    return ", ".join(f"{each.source.name}:{each.name}={_text(each.value)}" for each in entry.synonyms)


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _values(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "sensitive": entry.is_sensitive,
        "readOnly": entry.is_read_only,
        "synonyms": [{"source": each.source.name, "name": each.name, "value": each.value} for each in entry.synonyms],
    }
