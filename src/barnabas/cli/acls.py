"""`barnabas acls`: who may do what. Kafka's `kafka-acls`, with its output; and `acls explain`, which says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from barnabas.cli.acl_words import operation_name, parse_operation, parse_principal
from barnabas.cli.acls_explained import explain
from barnabas.cli.admin_options import ClusterOptions
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, action, connection, flag
from barnabas.cli.output import print_json, say, shown
from barnabas.client.admin.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from barnabas.metadata.authorizer import CLUSTER_NAME, OPERATIONS, Resource

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.admin import Admin

F = TypeVar("F", bound="Callable[..., Any]")

_ACTIONS: Final = ("--add", "--remove", "--list")
_PATTERNS: Final = ("any", "match", "literal", "prefixed")
_ANY_HOST: Final = "*"


class _Acls(KafkaTool):
    """Kafka's tool, or ours that explains."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == [explain.name]:
            return explain.make_context(f"{info_name} {explain.name}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _many(name: str, help: str, metavar: str = "NAME") -> Callable[[F], F]:
    return click.option(name, multiple=True, metavar=metavar, help=help)


@click.command(cls=_Acls)
@connection(controllers=True)
@action("--add", "Add rules.")
@action("--remove", "Remove rules.")
@action("--list", "Show rules; all, or those for the resources that are named.")
@_many("--topic", "A topic; '*' for all.")
@_many("--group", "A group; '*' for all.")
@_many("--transactional-id", "A transactional id; '*' for all.", "ID")
@_many("--delegation-token", "A delegation token; '*' for all.", "ID")
@_many("--user-principal", "A user, for whom tokens may be made or described.", "PRINCIPAL")
@flag("--cluster", "The cluster.")
@flag("--idempotent", "With --producer: also IdempotentWrite on the cluster.")
@click.option(
    "--resource-pattern-type",
    type=click.Choice(_PATTERNS, case_sensitive=False),
    default="literal",
    help="How names are meant: as they are, or as prefixes. To remove and list also: whatever the rules have (any), "
    "or all rules that touch the name (match).",
)
@_many("--operation", "What is allowed or denied: Read, Write, DescribeConfigs …; All if it is not given.", "WHAT")
@_many("--allow-principal", "Who is allowed: User:ann, or User:'*' for all.", "PRINCIPAL")
@_many("--deny-principal", "Who is denied, whatever else allows it.", "PRINCIPAL")
@_many("--allow-host", "From where they are allowed; from everywhere if it is not given.", "IP")
@_many("--deny-host", "From where they are denied; from everywhere if it is not given.", "IP")
@_many("--principal", "With --list: only the rules of these.", "PRINCIPAL")
@flag("--producer", "What a producer needs: Write, Describe and Create on topics, Write and Describe on ids.")
@flag("--consumer", "What a consumer needs: Read and Describe on topics, Read on groups.")
@flag("--force", "Do not ask before rules are removed.")
@click.pass_context
def acls(
    ctx: click.Context,
    /,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
    resource_pattern_type: str,
    principal: Sequence[str],
    **options: Sequence[str],
) -> int:
    """Add, remove and show rules: who may do what. `barnabas acls explain` says why somebody may, or may not.

    \b
    Examples:
      barnabas acls --bootstrap-server 127.0.0.1:9092 --list
      barnabas acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal User:ann --producer --topic clicks
      barnabas acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal User:bob --consumer --topic clicks \\
        --group readers
      barnabas acls --bootstrap-server 127.0.0.1:9092 --add --deny-principal User:eve --operation Read \\
        --topic secret- --resource-pattern-type prefixed
      barnabas acls --bootstrap-server 127.0.0.1:9092 --remove --topic clicks --force
      barnabas acls explain --bootstrap-server 127.0.0.1:9092 --principal User:ann --operation Read --topic clicks
    """
    given = GivenOptions(ctx)
    what = given.exactly_one(*_ACTIONS)
    given.exactly_one("--bootstrap-server", "--bootstrap-controller")
    _check_options(given)
    cluster = ClusterOptions(bootstrap_server, command_config, bootstrap_controller)
    wanted = _Wanted(given, PatternType[resource_pattern_type.upper()], options)
    if what == "--list":
        return _list(cluster, wanted, [parse_principal(each) for each in principal], as_json)
    rules = wanted.rules()
    if what == "--add":
        return _add(cluster, wanted, rules)
    return _remove(cluster, wanted, rules, "--force" in given)


def _check_options(given: GivenOptions) -> None:
    hosts_and_principals = "--allow-host", "--allow-principal", "--deny-host", "--deny-principal"
    given.exclude("--list", "--producer", "--consumer", *hosts_and_principals)
    for role in ("--producer", "--consumer"):
        given.exclude(role, "--operation", "--deny-principal", "--deny-host", hint=": it says itself what it takes")
    given.only_with("--principal", "--list")
    given.only_with("--idempotent", "--producer")
    if "--producer" in given:
        given.need("--topic", why="for --producer")
    if "--consumer" in given:
        given.need("--topic", "--group", why="for --consumer")
        if "--producer" not in given:
            given.exclude("--consumer", "--cluster", "--transactional-id")


#: The type and the name of a resource.
_Place = tuple[ResourceType, str]
#: Whom rules are about: principal, host, operation, permission.
_Entry = tuple[str, str, AclOperation, AclPermission]


class _Wanted:
    """What the options say of resources and of rules for them."""

    def __init__(self, given: GivenOptions, pattern: PatternType, options: Mapping[str, Sequence[str]]) -> None:
        self._given = given
        self.pattern = pattern
        self._options = options

    def places(self) -> list[_Place]:
        kinds = {
            "topic": ResourceType.TOPIC,
            "group": ResourceType.GROUP,
            "transactional_id": ResourceType.TRANSACTIONAL_ID,
            "delegation_token": ResourceType.DELEGATION_TOKEN,
            "user_principal": ResourceType.USER,
        }
        found = [(kind, name.strip()) for option, kind in kinds.items() for name in self._options[option]]
        if self.pattern is PatternType.LITERAL and self._given.among(("--cluster", "--idempotent")):
            found.append((ResourceType.CLUSTER, CLUSTER_NAME))
        return list(dict.fromkeys(found))

    def rules(self) -> dict[_Place, list[_Entry]]:
        """By resource, what is added or removed; nothing in it stands for all rules."""
        places = self.places()
        if not places:
            raise click.UsageError(
                "name at least one resource: --topic, --group, --cluster, --transactional-id, --delegation-token "
                "or --user-principal"
            )
        found: dict[_Place, list[_Entry]] = {}
        if not self._given.among(("--producer", "--consumer")):
            operations = [parse_operation(each) for each in self._options["operation"] or ("All",)]
            found = {place: self._entries(operations) for place in places}
        for role, needs in (("--producer", _PRODUCER), ("--consumer", _CONSUMER)):
            if role in self._given:
                for place in places:
                    if place[0] in needs:
                        found[place] = list(dict.fromkeys([*found.get(place, ()), *self._entries(needs[place[0]])]))
        if "--producer" in self._given and "--idempotent" not in self._given:
            found.pop((ResourceType.CLUSTER, CLUSTER_NAME), None)
        _check_operations(found)
        return found

    def _entries(self, operations: Iterable[AclOperation]) -> list[_Entry]:
        found: dict[_Entry, None] = {}
        for who, where, permission in (
            ("allow_principal", "allow_host", AclPermission.ALLOW),
            ("deny_principal", "deny_host", AclPermission.DENY),
        ):
            hosts = [each.strip() for each in self._options[where]] or [_ANY_HOST]
            found |= dict.fromkeys(
                (parse_principal(principal), host, operation, permission)
                for principal in self._options[who]
                for operation in operations
                for host in hosts
            )
        return list(found)


_PRODUCER: Final = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.CLUSTER: (AclOperation.IDEMPOTENT_WRITE,),
}
_CONSUMER: Final = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


def _check_operations(rules: Mapping[_Place, Sequence[_Entry]]) -> None:
    for (kind, _), entries in rules.items():
        known = {AclOperation.ALL, *(AclOperation(each) for each in OPERATIONS[Resource(kind)])}
        if any(operation not in known for _, _, operation, _ in entries):
            names = ", ".join(operation_name(each) for each in sorted(known))
            raise click.UsageError(f"ResourceType {kind.name} only supports operations {names}")


# Doing it


def _add(cluster: ClusterOptions, wanted: _Wanted, rules: Mapping[_Place, Sequence[_Entry]]) -> int:
    if wanted.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        name = wanted.pattern.name.lower()
        raise click.UsageError(
            f"--resource-pattern-type {name} is for --list and --remove: a rule is literal or prefixed"
        )
    if not all(rules.values()):
        raise click.UsageError("--allow-principal or --deny-principal is missing")

    async def add(admin: Admin) -> None:
        for (kind, name), entries in rules.items():
            pattern = PatternType.LITERAL if kind is ResourceType.CLUSTER else wanted.pattern
            resource = _resource(kind, name, pattern)
            place: dict[str, Any] = {"resource_type": kind, "resource_name": name, "pattern_type": pattern}
            existing = {_entry(each) for each in await admin.describe_acls(AclFilter(**place))}
            for each in entries:
                if each in existing:
                    say(f"Acl (pattern={resource}, entry={_told(each)}) already exists.")
            new = [each for each in entries if each not in existing]
            if new:
                say(f"Adding ACLs for resource `{resource}`: \n {_lines(new)}\n")
                await admin.create_acls(
                    Acl(principal=principal, host=host, operation=operation, permission=permission, **place)
                    for principal, host, operation, permission in new
                )

    cluster.run(add)
    return 0


def _remove(cluster: ClusterOptions, wanted: _Wanted, rules: Mapping[_Place, Sequence[_Entry]], force: bool) -> int:
    async def remove(admin: Admin) -> None:
        for (kind, name), entries in rules.items():
            pattern = PatternType.LITERAL if kind is ResourceType.CLUSTER else wanted.pattern
            if not force and not _is_confirmed(_resource(kind, name, pattern), entries):
                continue
            place: dict[str, Any] = {"resource_type": kind, "resource_name": name, "pattern_type": pattern}
            filters = [
                AclFilter(principal=principal, host=host, operation=operation, permission=permission, **place)
                for principal, host, operation, permission in entries
            ]
            await admin.delete_acls(filters or [AclFilter(**place)])

    cluster.run(remove)
    return 0


def _is_confirmed(resource: str, entries: Sequence[_Entry]) -> bool:
    if entries:
        say(f"Are you sure you want to remove ACLs: \n {_lines(entries)}\n from resource filter `{resource}`? (y/n)")
    else:
        say(f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)")
    return input().strip().lower() == "y"


def _list(cluster: ClusterOptions, wanted: _Wanted, principals: Sequence[str], as_json: bool) -> int:
    filters = [
        AclFilter(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.LITERAL if kind is ResourceType.CLUSTER else wanted.pattern,
        )
        for kind, name in wanted.places()
    ]

    async def describe(admin: Admin) -> list[Acl]:
        found: dict[Acl, None] = {}
        for each in filters or [AclFilter()]:
            found |= dict.fromkeys(await admin.describe_acls(each))
        return sorted(found, key=_order)

    found = cluster.run(describe)
    if as_json:
        print_json([_as_json(each) for each in found if not principals or each.principal in principals])
    elif principals:
        for principal in principals:
            say(f"ACLs for principal `{shown(principal)}`")
            _show([each for each in found if each.principal == principal])
    else:
        _show(found)
    return 0


def _show(found: Iterable[Acl]) -> None:
    by_resource: dict[str, list[_Entry]] = {}
    for each in found:
        resource = _resource(each.resource_type, each.resource_name, each.pattern_type)
        by_resource.setdefault(resource, []).append(_entry(each))
    for resource, entries in by_resource.items():
        say(f"Current ACLs for resource `{resource}`:\n{_lines(entries)}\n")


def _order(acl: Acl) -> tuple[Any, ...]:
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def _resource(kind: ResourceType, name: str, pattern: PatternType) -> str:
    return f"ResourcePattern(resourceType={kind.name}, name={shown(name)}, patternType={pattern.name})"


def _lines(entries: Iterable[_Entry]) -> str:
    return "\n".join(f"\t{_told(each)}" for each in entries)


def _told(entry: _Entry) -> str:
    principal, host, operation, permission = entry
    return (
        f"(principal={shown(principal)}, host={shown(host)}, operation={operation.name}, "
        f"permissionType={permission.name})"
    )


def _entry(acl: Acl) -> _Entry:
    return acl.principal, acl.host, acl.operation, acl.permission


def _as_json(acl: Acl) -> dict[str, str]:
    return {
        "resourceType": acl.resource_type.name,
        "resourceName": acl.resource_name,
        "patternType": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permissionType": acl.permission.name,
    }
