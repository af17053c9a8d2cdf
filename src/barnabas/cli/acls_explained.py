"""`barnabas acls explain`: whether somebody may do something, which rule decides, and which would help.

The rules are those of the cluster; what they come to is decided here, as a broker decides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.cli.acl_words import operation_name, parse_operation, parse_principal
from barnabas.cli.admin_options import ClusterOptions, reason
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, connection, flag
from barnabas.cli.output import print_json, say, shown
from barnabas.client.admin.acls import Acl, AclFilter, AclPermission, PatternType, ResourceType
from barnabas.metadata.access_images import AclsImage, StandardAcl
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.metadata.standard_authorizer import (
    EVERY_USER,
    WILDCARD,
    AclDecision,
    DefaultRule,
    StandardAuthorizer,
    parse_super_users,
)

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

_RESOURCES: Final = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--cluster": ResourceType.CLUSTER,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--delegation-token": ResourceType.DELEGATION_TOKEN,
    "--user-principal": ResourceType.USER,
}
_SETTINGS: Final = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")
#: Where nobody says from where: no rule names it, so only rules for all hosts count.
_ELSEWHERE: Final = "an address that no rule names"


class Question(NamedTuple):
    """Who wants to do what."""

    principal: str
    host: str
    operation: AclOperation
    resource: Resource
    name: str

    @property
    def place(self) -> str:
        kind = self.resource.name.lower().replace("_", " ")
        return "the cluster" if self.resource is Resource.CLUSTER else f"{kind} {shown(self.name)}"


class Explanation(NamedTuple):
    """What was decided, by what, and what else there is."""

    decision: AclDecision
    #: All rules about the resource, and why each of them does not count; None if it does.
    rules: list[tuple[StandardAcl, str | None]]
    #: Commands that would change it, each with what it does.
    help: list[tuple[str, str]]
    #: What could not be found out.
    notes: list[str]


@click.command("explain", cls=KafkaTool)
@connection(controllers=True)
@click.option("--principal", metavar="PRINCIPAL", help="Who: User:ann.")
@click.option("--operation", metavar="WHAT", help="What: Read, Write, DescribeConfigs …")
@click.option("--host", metavar="IP", help="From where; without it only rules for all hosts count.")
@click.option("--topic", metavar="NAME", help="To a topic.")
@click.option("--group", metavar="NAME", help="To a group.")
@click.option("--transactional-id", metavar="ID", help="To a transactional id.")
@click.option("--delegation-token", metavar="ID", help="To a delegation token.")
@click.option("--user-principal", metavar="PRINCIPAL", help="To a user.")
@flag("--cluster", "To the cluster.")
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
    principal: str | None,
    operation: str | None,
    host: str | None,
    **names: str | None,
) -> int:
    """Say whether somebody may do something, which rule decides it, and which would change it.

    \b
    Example:
      barnabas acls explain --bootstrap-server 127.0.0.1:9092 --principal User:ann --operation Read --topic clicks
    """
    given = GivenOptions(ctx)
    given.need("--principal", "--operation")
    given.exactly_one("--bootstrap-server", "--bootstrap-controller")
    option = given.exactly_one(*_RESOURCES)
    name = names.get(option.removeprefix("--").replace("-", "_")) or CLUSTER_NAME
    wanted = AclOperation(parse_operation(operation or ""))
    asked = Question(parse_principal(principal or ""), host or _ELSEWHERE, wanted, Resource(_RESOURCES[option]), name)
    cluster = ClusterOptions(bootstrap_server, command_config, bootstrap_controller)
    acls, settings, notes = cluster.run(lambda admin: _look(admin, asked))
    where = (
        f"--bootstrap-server {bootstrap_server}"
        if bootstrap_server
        else f"--bootstrap-controller {bootstrap_controller}"
    )
    found = explained(asked, acls, settings, f"barnabas acls {where}", option)
    _show(asked, found._replace(notes=[*notes, *found.notes]), as_json)
    return 0


async def _look(admin: Admin, asked: Question) -> tuple[list[StandardAcl], dict[str, str | None], list[str]]:
    """The rules about the resource, and the settings that count."""
    wanted = AclFilter(
        resource_type=ResourceType(asked.resource), resource_name=asked.name, pattern_type=PatternType.MATCH
    )
    acls = [_standard(each) for each in await admin.describe_acls(wanted)]
    notes: list[str] = []
    settings: dict[str, str | None] = {}
    try:
        settings = await _settings(admin)
    except BarnabasError as problem:
        notes.append(
            f"whether it is a super user is not known: the settings of the brokers cannot be seen ({reason(problem)})"
        )
    return acls, settings, notes


async def _settings(admin: Admin) -> dict[str, str | None]:
    from barnabas.client.admin import ConfigResource, ConfigResourceType

    cluster = await admin.describe_cluster()
    broker = ConfigResource(ConfigResourceType.BROKER, str(min(each.node_id for each in cluster.nodes)))
    found = (await admin.describe_configs([broker]))[broker]
    return {name: found[name].value for name in _SETTINGS if name in found}


def _standard(acl: Acl) -> StandardAcl:
    return StandardAcl(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def explained(
    asked: Question, acls: Sequence[StandardAcl], settings: dict[str, str | None], tool: str, option: str
) -> Explanation:
    """Decide as a broker does, and look at what stands in the way."""
    authorizer = StandardAuthorizer(
        parse_super_users(settings.get("super.users") or ""),
        settings.get("allow.everyone.if.no.acl.found") == "true",
    )
    image = AclsImage((Uuid(number.to_bytes(16, "big")), acl) for number, acl in enumerate(acls, 1))
    authorizer.apply(image, image)
    decision = authorizer.decide(*asked)
    rules = [(acl, _why_not(acl, asked)) for acl in sorted(acls)]
    notes = []
    if settings and not settings.get("authorizer.class.name"):
        notes.append("the brokers have no authorizer (authorizer.class.name): everybody may do everything")
    if asked.host == _ELSEWHERE and any(
        acl.host != WILDCARD and acl.principal in (asked.principal, EVERY_USER) for acl in acls
    ):
        notes.append("some rules are for certain hosts: give --host to have them count")
    return Explanation(decision, rules, _help(asked, decision, authorizer, acls, tool, option), notes)


def _why_not(acl: StandardAcl, asked: Question) -> str | None:
    """Why a rule about the resource does not count; None if it does."""
    if acl.principal not in (asked.principal, EVERY_USER):
        return "is about somebody else"
    if acl.host not in (asked.host, WILDCARD):
        return "is about another host"
    alone = StandardAuthorizer(allow_everyone_if_no_acl_found=False)
    allowing = AclsImage([(Uuid(bytes(15) + b"\1"), acl)])
    alone.apply(allowing, allowing)
    counts = alone.decide(*asked).rule == acl
    return None if counts else "is about another operation"


def _help(
    asked: Question,
    decision: AclDecision,
    authorizer: StandardAuthorizer,
    acls: Sequence[StandardAcl],
    tool: str,
    option: str,
) -> list[tuple[str, str]]:
    if decision.is_allowed:
        return []
    named = option if asked.resource is Resource.CLUSTER else f"{option} {asked.name}"
    what = f"--operation {operation_name(asked.operation)}"
    host = "" if asked.host == _ELSEWHERE else f" --allow-host {asked.host}"
    allow = f"{tool} --add --allow-principal {asked.principal}{host} {what} {named}", "allows just that"
    denying = [acl for acl in acls if acl.permission_type == AclPermission.DENY and _why_not(acl, asked) is None]
    if not denying:
        return [allow]
    found = [(_removal(acl, tool, option), "removes a rule that denies it") for acl in denying]
    left = [acl for acl in acls if acl not in denying]
    without = StandardAuthorizer(authorizer.super_users, authorizer.allow_everyone_if_no_acl_found)
    image = AclsImage((Uuid(number.to_bytes(16, "big")), acl) for number, acl in enumerate(left, 1))
    without.apply(image, image)
    if not without.decide(*asked).is_allowed:
        found.append((allow[0], "allows it then; as long as a rule denies it, no other helps"))
    return found


def _removal(acl: StandardAcl, tool: str, option: str) -> str:
    operation = operation_name(AclOperation(acl.operation))
    name = "" if acl.resource_type == Resource.CLUSTER else f" {_quoted(acl.resource_name)}"
    pattern = " --resource-pattern-type prefixed" if acl.pattern_type == PatternType.PREFIXED else ""
    return (
        f"{tool} --remove --deny-principal {_quoted(acl.principal)} --deny-host {_quoted(acl.host)} "
        f"--operation {operation} {option}{name}{pattern}"
    )


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


def _told(acl: StandardAcl) -> str:
    pattern = PatternType(acl.pattern_type).name.lower()
    return (
        f"{AclPermission(acl.permission_type).name} {shown(acl.principal)} from {shown(acl.host)} to "
        f"{AclOperation(acl.operation).name} {Resource(acl.resource_type).name} {shown(acl.resource_name)} ({pattern})"
    )


_REASONS: Final = {
    DefaultRule.SUPER_USER: "super.users names it, and no rule counts for those",
    DefaultRule.DEFAULT_ALLOW: "no rule is about it, and allow.everyone.if.no.acl.found is true",
    DefaultRule.DEFAULT_DENY: "no rule allows it",
}


def _show(asked: Question, found: Explanation, as_json: bool) -> None:
    rule = found.decision.rule
    decided_by = _REASONS[rule] if isinstance(rule, DefaultRule) else _told(rule)
    if as_json:
        document: dict[str, Any] = {
            "allowed": found.decision.is_allowed,
            "decidedBy": decided_by,
            "rules": [{"rule": _told(acl), "counts": why is None, "why": why} for acl, why in found.rules],
            "help": [{"command": command, "effect": effect} for command, effect in found.help],
            "notes": found.notes,
        }
        print_json(document)
        return
    may = "may" if found.decision.is_allowed else "may not"
    say(f"{shown(asked.principal)} {may} {asked.operation.name} {asked.place} from {asked.host}")
    say(f"Decided by: {decided_by}")
    others = [(acl, why) for acl, why in found.rules if acl != rule]
    if others:
        say(f"Other rules about {asked.place}:")
        for acl, why in others:
            say(f"  {_told(acl)}: {why or 'counts, too'}")
    for command, effect in found.help:
        say(f"What would help ({effect}):")
        say(f"  {command}")
    for note in found.notes:
        say(f"Note: {note}")
