"""`barnabas delegation-tokens`: secrets that log in for somebody, for a while. Kafka's `kafka-delegation-tokens`."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.admin_options import ClusterOptions
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, action, connection
from barnabas.cli.output import print_json, say, shown

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, DelegationToken, Principal

_ACTIONS: Final = ("--create", "--renew", "--expire", "--describe")
_ROW: Final = "{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_HEAD: Final = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")


@click.command(cls=KafkaTool)
@connection()
@action("--create", "Ask for a token.")
@action("--renew", "Let a token live longer.")
@action("--expire", "Let a token end.")
@action("--describe", "Show tokens: one's own, and those of others where that is allowed.")
@click.option("--owner-principal", "owners", multiple=True, metavar="User:NAME", help="Whose token; may be repeated.")
@click.option("--renewer-principal", "renewers", multiple=True, metavar="User:NAME", help="Who may renew it, too.")
@click.option("--max-life-time-period", "max_life_ms", type=int, metavar="MS", help="-1: as the cluster allows.")
@click.option("--renew-time-period", "renew_ms", type=int, metavar="MS", help="-1: as long as the cluster does it.")
@click.option("--expiry-time-period", "expiry_ms", type=int, metavar="MS", help="-1: at once.")
@click.option("--hmac", "hmac", metavar="BASE64", help="The secret of the token.")
@click.pass_context
def delegation_tokens(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: str | None,
    as_json: bool,
    owners: Sequence[str],
    renewers: Sequence[str],
    max_life_ms: int | None,
    renew_ms: int | None,
    expiry_ms: int | None,
    hmac: str | None,
) -> None:
    """Ask for delegation tokens, renew, end and show them. One must be logged in, and not by a token.

    A token logs in with SCRAM: its id is the user, its HMAC the password, and the login module has tokenauth=true.

    \b
    Examples:
      barnabas delegation-tokens --bootstrap-server 127.0.0.1:9092 --command-config ann.properties --create \\
          --max-life-time-period -1 --renewer-principal User:bob
      barnabas delegation-tokens --bootstrap-server 127.0.0.1:9092 --command-config ann.properties --describe
    """
    given = GivenOptions(ctx)
    what = given.exactly_one(*_ACTIONS)
    given.need("--bootstrap-server", "--command-config")
    given.only_with("--max-life-time-period", "--create")
    given.only_with("--renewer-principal", "--create")
    given.only_with("--owner-principal", "--create", "--describe")
    given.only_with("--renew-time-period", "--renew")
    given.only_with("--expiry-time-period", "--expire")
    given.only_with("--hmac", "--renew", "--expire")
    for needing, needed in (("--create", "--max-life-time-period"), ("--renew", "--hmac"), ("--expire", "--hmac")):
        if what == needing:
            given.need(needed, why=f"for {needing}")
    given_owners, given_renewers = _principals(owners), _principals(renewers)

    async def work(admin: Admin) -> Any:
        if what == "--create":
            return await admin.create_delegation_token(
                renewers=given_renewers,
                owner=given_owners[0] if given_owners else None,
                max_lifetime_ms=-1 if max_life_ms is None else max_life_ms,
            )
        if what == "--renew":
            period_ms = -1 if renew_ms is None else renew_ms
            return await admin.renew_delegation_token(_secret(hmac), renew_period_ms=period_ms)
        if what == "--expire":
            return await admin.expire_delegation_token(
                _secret(hmac), expiry_period_ms=-1 if expiry_ms is None else expiry_ms
            )
        return await admin.describe_delegation_tokens(given_owners or None)

    _show(what, ClusterOptions(bootstrap_server, command_config).run(work), as_json)


def _show(what: str, found: Any, as_json: bool) -> None:
    if what in ("--renew", "--expire"):
        done = "renew" if what == "--renew" else "expire"
        if as_json:
            print_json({"expiryTimestamp": found})
        else:
            say(f"Completed {done} operation. New expiry date : {_time(found)}")
        return
    tokens: Iterable[DelegationToken] = [found] if what == "--create" else found
    if as_json:
        print_json([dict(zip(map(str.lower, _HEAD), _row(each), strict=True)) for each in tokens])
        return
    if what == "--create":
        say(shown(f"Created delegation token with tokenId : {found.token_id}"))
    say("")
    say(_ROW.format(*_HEAD))
    for each in tokens:
        say(shown(_ROW.format(*_row(each))))


def _row(token: DelegationToken) -> tuple[str, ...]:
    return (
        token.token_id,
        b64encode(token.hmac).decode(),
        str(token.owner),
        "" if token.requester is None else str(token.requester),
        f"[{', '.join(map(str, token.renewers))}]",
        _time(token.issued_ms),
        _time(token.expires_ms),
        _time(token.max_ms),
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%dT%H:%M")


def _principals(given: Sequence[str]) -> list[Principal]:
    from barnabas.client.admin import Principal

    try:
        return [Principal.parse(each.strip()) for each in given]
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None


def _secret(text: str | None) -> bytes:
    try:
        return b64decode(text or "", validate=True)
    except binascii.Error:
        raise click.UsageError("--hmac is not base64") from None
