"""`barnabas certs`: what it writes can be used, is nobody else's to read, and is not overwritten unasked."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from barnabas.base.properties import load_properties_file
from barnabas.net.tls.contexts import client_context, server_context, shake_hands
from barnabas.net.tls.distinguished_names import subject_name
from barnabas.net.tls.options import Store, TlsOptions
from barnabas.net.tls.stores import load_key, load_trusted
from tests.cli.tools import Tools


def options(path: Path) -> TlsOptions:
    """What a file of settings that it wrote says."""
    given = load_properties_file(str(path))
    return TlsOptions(
        keystore=Store(type="PEM", location=str(given["ssl.keystore.location"])),
        truststore=Store(type="PEM", location=str(given["ssl.truststore.location"])),
        client_auth=str(given.get("ssl.client.auth", "none")),
        checks_host=False,
    )


def test_a_node_and_a_client_know_each_other(barnabas: Tools, tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    told = barnabas("certs", str(folder), "--node", "n1=n1.example.org,10.0.0.1", "--client", "alice")
    assert told.code == 0
    assert "n1.example.org, 10.0.0.1" in told.out
    assert options(folder / "n1.properties").client_auth == "required"
    shake_hands(server_context(options(folder / "n1.properties")), client_context(options(folder / "alice.properties")))
    password = (folder / "password").read_text()
    store = load_key(Store(type="PKCS12", location=str(folder / "alice.p12"), password=password))
    assert subject_name(store.chain[0]) == "CN=alice,O=Barnabas try-out"
    trusted = load_trusted(Store(type="PKCS12", location=str(folder / "truststore.p12"), password=password))
    assert trusted == (ssl.PEM_cert_to_DER_cert((folder / "ca.pem").read_text()),)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    assert password not in told.out


def test_more_are_added_by_the_same_authority_and_none_is_lost(barnabas: Tools, tmp_path: Path) -> None:
    barnabas("certs", str(tmp_path))
    before = {name: (tmp_path / name).read_text() for name in ("ca.pem", "node.pem", "client.pem")}
    told = barnabas("certs", str(tmp_path), "--client", "bob")
    assert "node.pem: is there already and stays" in told.out
    assert {name: (tmp_path / name).read_text() for name in before} == before
    shake_hands(
        server_context(options(tmp_path / "node.properties")), client_context(options(tmp_path / "bob.properties"))
    )
    barnabas("certs", str(tmp_path), "--replace")
    assert (tmp_path / "ca.pem").read_text() == before["ca.pem"]
    assert (tmp_path / "node.pem").read_text() != before["node.pem"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--client", "a/b"), "files are called by it"),
        (("--client", "ca"), "files are called by it"),
        (("--client", "x", "--node", "x"), "named twice"),
        (("--days", "0"), "not in the range"),
    ],
)
def test_what_cannot_be_asked_for(barnabas: Tools, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    told = barnabas("certs", str(tmp_path / "x"), *arguments)
    assert told.code == 2
    assert words in told.err
    assert not (tmp_path / "x").exists()


def test_an_authority_that_is_not_whole_is_told(barnabas: Tools, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    told = barnabas("certs", str(tmp_path))
    assert told.code == 1
    assert "only one is there" in told.err
