"""Quotas of users, clients and addresses, and passwords of users, for `barnabas configs`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.configs import CLIENTS, DEFAULT, IPS, USERS, ConfigsRequest
from barnabas.cli.output import is_terminal, print_json, print_table, say, shown

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, QuotaEntity, QuotaName, ScramMechanism

_QUOTAS: Final = {
    USERS: ("consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate", "request_percentage"),
    CLIENTS: ("consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate", "request_percentage"),
    IPS: ("connection_creation_rate",),
}
_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_CREDENTIAL: Final = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)
_DEFAULT_ITERATIONS: Final = 4096
_MIN_ITERATIONS: Final = 4096
_PARTS: Final = {USERS: "user", CLIENTS: "client_id", IPS: "ip"}
#: How an entity is called in what is shown.
_CALLED: Final = {USERS: "user-principal", CLIENTS: "client-id", IPS: "ip"}


async def alter(admin: Admin, wanted: ConfigsRequest) -> None:
    given = (*wanted.add, *wanted.delete)
    credentials = [each for each in given if each in _MECHANISMS]
    quotas = [each for each in given if each in _QUOTAS[wanted.types[0]]]
    has_passwords = wanted.types == (USERS,)
    for each in given:
        if each not in quotas and not (has_passwords and each in _MECHANISMS):
            known = (*_QUOTAS[wanted.types[0]], *(_MECHANISMS if has_passwords else ()))
            raise click.UsageError(f"{' and '.join(wanted.types)} have no {each!r}, only {', '.join(known)}")
    if credentials and quotas:
        raise click.UsageError(
            f"change {quotas[0]} and {credentials[0]} in two steps: they are kept at different places"
        )
    if not credentials:
        await _alter_quotas(admin, wanted)
    elif wanted.names[0] == DEFAULT:
        raise click.UsageError(f"{credentials[0]} is for one user, not for all")
    else:
        await _alter_credentials(admin, wanted)


async def _alter_quotas(admin: Admin, wanted: ConfigsRequest) -> None:
    changes: dict[str, float | None] = {}
    for name, text in wanted.add.items():
        changes[name] = _quota(name, text)
    if wanted.delete:
        now = await _quotas(admin, wanted)
        known = next(iter(now.values()), {})
        unknown = [each for each in wanted.delete if each not in known]
        if unknown:
            raise BarnabasError(f"--delete-config: there is no {', '.join(unknown)} that could be deleted")
        changes |= dict.fromkeys(wanted.delete)
    await admin.alter_client_quotas({_entity(wanted): changes})


def _quota(name: str, text: str) -> float:
    """Looked at before it is sent: brokers call also what is no number too large, or not greater than 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise click.UsageError(f"--add-config: {name} must be a number, not {text!r}")
    if value <= 0:
        raise click.UsageError(
            f"--add-config: {name} must be greater than 0, not {text}; --delete-config {name} removes it"
        )
    return value


def _entity(wanted: ConfigsRequest) -> QuotaEntity:
    from barnabas.client.admin import QuotaEntity, QuotaName

    return QuotaEntity(
        **{_PARTS[kind]: name or QuotaName.DEFAULT for kind, name in zip(wanted.types, wanted.names, strict=True)}
    )


async def _quotas(admin: Admin, wanted: ConfigsRequest) -> dict[QuotaEntity, dict[str, float]]:
    """Those of the entities that have just these parts: the quotas of a user with a client id are not the user's."""
    from barnabas.client.admin import QuotaFilter, QuotaName

    names: list[str | QuotaName] = [name or QuotaName.DEFAULT for name in wanted.names]
    names += [QuotaName.ANY] * (len(wanted.types) - len(names))
    parts = {_PARTS[kind]: name for kind, name in zip(wanted.types, names, strict=True)}
    return await admin.describe_client_quotas(QuotaFilter(is_strict=True, **parts))


async def _quotas_if_any(admin: Admin, wanted: ConfigsRequest) -> dict[QuotaEntity, dict[str, float]]:
    """The same of a cluster that may know users and no quotas."""
    from barnabas.net.errors import UnsupportedRequestError

    try:
        return await _quotas(admin, wanted)
    except UnsupportedRequestError:
        if wanted.types != (USERS,):
            raise
        return {}


async def _alter_credentials(admin: Admin, wanted: ConfigsRequest) -> None:
    from barnabas.client.admin import ScramDeletion, ScramUpsertion

    user = wanted.names[0]
    changes: list[ScramDeletion | ScramUpsertion] = [ScramDeletion(user, _mechanism(each)) for each in wanted.delete]
    for name, text in wanted.add.items():
        match = _CREDENTIAL.fullmatch(text)
        if match is None:
            raise click.UsageError(f"--add-config: {name} is set like {name}=[iterations=8192,password=secret]")
        iterations = int(match[1] or _DEFAULT_ITERATIONS)
        iterations = _DEFAULT_ITERATIONS if iterations == -1 else iterations
        if iterations < _MIN_ITERATIONS:
            raise click.UsageError(
                f"--add-config: {name} needs at least {_MIN_ITERATIONS} iterations, not {iterations}"
            )
        changes.append(ScramUpsertion(user, _mechanism(name), match[2], iterations))
    # One by one: a controller takes a user only once in a request.
    for change in changes:
        await admin.alter_user_scram_credentials([change])


def _mechanism(name: str) -> ScramMechanism:
    from barnabas.client.admin import ScramMechanism

    return ScramMechanism[name.replace("-", "_")]


async def describe(admin: Admin, wanted: ConfigsRequest) -> None:
    quotas = await _quotas_if_any(admin, wanted)
    credentials: dict[str, Any] = {}
    if wanted.types == (USERS,) and DEFAULT not in wanted.names:
        credentials = await _credentials(admin, wanted)
    described = [(_parts(entity), dict(sorted(values.items()))) for entity, values in quotas.items()]
    described.sort(key=lambda each: [(kind, name or "") for kind, name in each[0]])
    if wanted.as_json:
        values: list[dict[str, Any]] = [
            {"entities": [{"type": kind, "name": name} for kind, name in parts], "quotas": each}
            for parts, each in described
        ]
        values += [
            {
                "entities": [{"type": USERS, "name": user}],
                "credentials": [{"mechanism": name, "iterations": number} for name, number in found],
            }
            for user, found in credentials.items()
        ]
        print_json(values)
        return
    rows = [
        (_entity_text(parts), [f"{key}={java_double(value)}" for key, value in each.items()])
        for parts, each in described
    ]
    secrets = [
        (f"user-principal '{user}'", [f"{name}=iterations={number}" for name, number in found])
        for user, found in credentials.items()
    ]
    if not rows and not secrets and len(wanted.names) == len(wanted.types):
        _tell_none(wanted)
        return
    if is_terminal():
        print_table(("entity", "settings"), [(who, what) for who, what in (*rows, *secrets)])
        return
    for who, what in rows:
        say(shown(f"Quota configs for {who} are {', '.join(what)}"))
    for who, what in secrets:
        say(shown(f"SCRAM credential configs for {who} are {', '.join(what)}"))


def _tell_none(wanted: ConfigsRequest) -> None:
    """On standard error: of these Kafka's tool prints nothing, and programs may read that."""
    what = "quotas or passwords" if wanted.types == (USERS,) and DEFAULT not in wanted.names else "quotas"
    who = _entity_text([(kind, name or None) for kind, name in zip(wanted.types, wanted.names, strict=True)])
    say(shown(f"no {what} are set for {who}"), err=True)


async def _credentials(admin: Admin, wanted: ConfigsRequest) -> dict[str, list[tuple[str, int]]]:
    """Mechanisms and iterations by user. A user without any is no error: quotas may be all there is."""
    from barnabas.base.error_codes import ErrorCode
    from barnabas.base.errors import BrokerError
    from barnabas.net.errors import UnsupportedRequestError

    try:
        found = await admin.describe_user_scram_credentials(list(wanted.names) or None)
    except UnsupportedRequestError:
        return {}
    except BrokerError as problem:
        if problem.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise
        return {}
    return {
        user: [(each.mechanism.name.replace("_", "-"), each.iterations) for each in infos]
        for user, infos in sorted(found.items())
    }


def _parts(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """Types and names, the latter None for defaults."""
    names = ((USERS, entity.user), (CLIENTS, entity.client_id), (IPS, entity.ip))
    return [(kind, name if isinstance(name, str) else None) for kind, name in names if name is not None]


def _entity_text(parts: list[tuple[str, str | None]]) -> str:
    return ", ".join(
        f"the default {_CALLED[kind]}" if name is None else f"{_CALLED[kind]} '{name}'" for kind, name in parts
    )


def java_double(value: float) -> str:
    """A number as Java writes it.

    >>> java_double(1024), java_double(1e8), java_double(0.5), java_double(1.5e-5)
    ('1024.0', '1.0E8', '0.5', '1.5E-5')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    for digits in range(1, 17):
        shorter = f"{value:.{digits}e}"
        if float(shorter) == value:
            mantissa, _, exponent = shorter.partition("e")
            break
    return f"{mantissa}E{int(exponent)}"
