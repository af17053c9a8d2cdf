"""`barnabas certs`: certificates for trying out: an authority of one's own, nodes with their hosts, clients."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.output import say

if TYPE_CHECKING:
    from barnabas.testing.certificates import CertificateAuthority, IssuedCertificate

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_AUTHORITY: Final = "ca"
_PASSWORD_FILE: Final = "password"
_PASSWORD_BYTES: Final = 18


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME[=HOST,…]",
    help="A node, and the names and addresses under which others reach it; default: node, on this machine. Repeatable.",
)
@click.option("--client", "clients", multiple=True, metavar="NAME", help="A client; default: client. Repeatable.")
@click.option("--days", default=365, show_default=True, type=click.IntRange(1, 36500), help="How long they are valid.")
@click.option("--replace", is_flag=True, help="Make those anew that are there already; the authority stays.")
def certs(folder: str, nodes: tuple[str, ...], clients: tuple[str, ...], days: int, replace: bool) -> None:
    """Make certificates for trying out TLS: an authority, and what it signs for nodes and clients.

    Each gets a .pem file with its key and certificate, the two apart as .key and .crt, a PKCS12 store .p12 for Java,
    and a .properties file with the settings that use it. Nobody but you can read the files. The authority is used again
    when there is one in DIR, so that more can be added later.

    They are for machines of yours: whoever has ca.key can pretend to be anybody. For a cluster that matters, have your
    own authority sign.

    \b
    Examples:
      barnabas certs certs
      barnabas certs certs --node node-1=node-1.example.org,10.0.0.1 --client alice --client bob
      barnabas topics --bootstrap-server localhost:9093 --command-config certs/alice.properties --list
    """
    named = dict(map(_parse_node, nodes or ("node",)))
    users = clients or ("client",)
    _check_names([*named, *users])
    place = Path(folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _authority(place)
    password = _password(place)
    made = []
    for name, hosts in named.items():
        made += _write_issued(place, authority, name, hosts, days, password, replace=replace)
    for name in users:
        made += _write_issued(place, authority, name, (), days, password, replace=replace)
    for line in made:
        say(line)
    first = next(iter(named))
    say(f"Nodes: the lines of {place / f'{first}.properties'} belong into server.properties, beside listeners=SSL://…")
    say(f"Clients: --command-config {place / f'{users[0]}.properties'}, or the same settings in a program")


def _parse_node(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, hosts = text.partition("=")
    return name, tuple(each.strip() for each in hosts.split(",") if each.strip()) or _HOSTS


def _check_names(names: list[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name) or name.strip(".") == "" or name in (_AUTHORITY, "truststore", _PASSWORD_FILE):
            raise click.UsageError(f"{name!r} cannot be a name here: files are called by it")
        if names.count(name) > 1:
            raise click.UsageError(f"{name} is named twice; nodes and clients have names of their own")


def _authority(place: Path) -> CertificateAuthority:
    from barnabas.testing.certificates import CertificateAuthority

    key, certificate = place / f"{_AUTHORITY}.key", place / f"{_AUTHORITY}.pem"
    if key.exists() != certificate.exists():
        raise BarnabasError(f"of {key} and {certificate} only one is there; both belong to the authority")
    if key.exists():
        try:
            return CertificateAuthority.load(key.read_text(), certificate.read_text())
        except ValueError as problem:
            raise BarnabasError(f"{key} and {certificate} cannot be used: {problem}") from None
    made = CertificateAuthority.create()
    _write(key, made.key_pem.encode())
    _write(certificate, made.certificate_pem.encode())
    say(f"{certificate}: the authority, whom nodes and clients must trust; {key}: its key, keep it")
    return made


def _password(place: Path) -> str:
    """That of the PKCS12 stores, which Java does not open without one."""
    path = place / _PASSWORD_FILE
    if not path.exists():
        _write(path, secrets.token_urlsafe(_PASSWORD_BYTES).encode())
    return path.read_text()


def _write_issued(
    place: Path,
    authority: CertificateAuthority,
    name: str,
    hosts: tuple[str, ...],
    days: int,
    password: str,
    *,
    replace: bool,
) -> list[str]:
    if (place / f"{name}.pem").exists() and not replace:
        return [f"{place / f'{name}.pem'}: is there already and stays; --replace makes it anew"]
    issued = authority.issue(name, hosts, days=days)
    _write(place / f"{name}.key", issued.key_pem.encode())
    _write(place / f"{name}.crt", issued.chain_pem.encode())
    _write(place / f"{name}.p12", issued.pkcs12(password))
    _write(place / "truststore.p12", authority.pkcs12(password))
    _write(place / f"{name}.properties", _properties(place, issued, is_node=bool(hosts)).encode())
    _write(place / f"{name}.pem", issued.pem.encode())  # last, as it says that all is there
    who = f"a node at {', '.join(hosts)}" if hosts else f"a client, User:CN={name},O=…"
    return [f"{place / f'{name}.pem'}: {who}"]


def _properties(place: Path, issued: IssuedCertificate, *, is_node: bool) -> str:
    folder = place.resolve()
    lines = [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / f'{issued.common_name}.pem'}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / f'{_AUTHORITY}.pem'}",
    ]
    own = ["# none, requested or required", "ssl.client.auth=required"] if is_node else ["security.protocol=SSL"]
    return "\n".join([*own, *lines, ""])


def _write(path: Path, data: bytes) -> None:
    """For its owner alone, from the first byte on; whoever reads it meanwhile has the old file or the new one."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    draft.replace(path)
