"""Keys and trusted certificates out of PEM, PKCS12 and JKS, as `keytool` and `openssl` make them; and what is wrong
with those that cannot be used."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import SettingsError
from barnabas.net.tls.contexts import TlsContexts, client_context, server_context, shake_hands, stamp_of
from barnabas.net.tls.jks import WrongPasswordError, read_jks, reveal_key
from barnabas.net.tls.options import Store, TlsOptions
from barnabas.net.tls.pem import certificates_in, pem_blocks, private_key_in
from barnabas.net.tls.stores import load_key, load_trusted
from tests.net.tls.worlds import authority, key_store, node, trust_store
from tests.oracles import other_process

PASSWORD = "swordfish-é"
needs_keytool = other_process(None if shutil.which("keytool") else "keytool is not installed")


def keytool(*arguments: str, password: str = PASSWORD) -> None:
    done = subprocess.run(
        ["keytool", *arguments, "-storepass:env", "PW"],
        env={"PW": password, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def certificate_der() -> bytes:
    return certificates_in(node().certificate_pem)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores as Java's tool makes them, of a key that we have in other forms, too."""
    made = tmp_path_factory.mktemp("stores")
    (made / "ca.pem").write_text(authority().certificate_pem)
    (made / "node.pem").write_text(node().pem)
    (made / "node.p12").write_bytes(node().pkcs12("swordfish"))
    (made / "trust.p12").write_bytes(authority().pkcs12("swordfish"))
    if shutil.which("keytool"):
        for kind, name in (("JKS", "jks"), ("PKCS12", "java.p12")):
            keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(made / "ca.pem"), "-storetype", kind,
                    "-keystore", str(made / f"trust.{name}"), password="swordfish")  # fmt: skip
            keytool("-importkeystore", "-srckeystore", str(made / "node.p12"), "-srcstoretype", "PKCS12",
                    "-srcstorepass", "swordfish", "-destkeystore", str(made / f"node.{name}"), "-deststoretype", kind,
                    "-deststorepass", "swordfish", password="swordfish")  # fmt: skip
    return made


def works(keys: Store, trusted: Store) -> None:
    """A server with the key and a client with the trust store talk to each other."""
    server = server_context(TlsOptions(keystore=keys))
    client = client_context(TlsOptions(truststore=trusted, checks_host=False))
    shake_hands(server, client)


@needs_keytool
@pytest.mark.parametrize("type_", ["JKS", "PKCS12"])
@pytest.mark.parametrize("name", ["jks", "java.p12"])
def test_stores_of_keytool(folder: Path, name: str, type_: str) -> None:
    """Java reads either whatever the type says, and so do we: scripts say JKS of what keytool made as PKCS12."""
    keys = Store(type=type_, location=str(folder / f"node.{name}"), password="swordfish", key_password="swordfish")
    trusted = Store(type=type_, location=str(folder / f"trust.{name}"), password="swordfish")
    assert load_trusted(trusted) == tuple(certificates_in(authority().certificate_pem))
    assert load_key(keys).chain[0] == certificate_der()
    works(keys, trusted)


def test_our_own_pkcs12_stores(folder: Path) -> None:
    keys = Store(type="PKCS12", location=str(folder / "node.p12"), password="swordfish")
    works(keys, Store(type="PKCS12", location=str(folder / "trust.p12"), password="swordfish"))


def test_pem_in_files_in_one_line_and_encrypted(folder: Path) -> None:
    works(
        Store(type="PEM", location=str(folder / "node.pem")),
        Store(type="PEM", location=str(folder / "ca.pem")),
    )
    one_line = node().key_pem.replace("\n", " "), node().chain_pem.replace("\n", " ")
    works(
        Store(type="PEM", key=one_line[0], certificates=one_line[1]),
        Store(type="PEM", certificates=authority().certificate_pem.replace("\n", " ")),
    )
    hidden = Store(
        type="PEM", key=node().encrypted_key_pem(PASSWORD), certificates=node().chain_pem, key_password=PASSWORD
    )
    works(hidden, trust_store(authority()))


def test_a_key_of_openssl_in_its_older_form(folder: Path, tmp_path: Path) -> None:
    older = subprocess.run(
        ["openssl", "ec", "-in", str(folder / "node.pem")], capture_output=True, text=True, check=True
    ).stdout
    assert "EC PRIVATE KEY" in older
    works(Store(type="PEM", key=older, certificates=node().chain_pem), trust_store(authority()))


def test_who_is_in_the_trust_store_itself_is_trusted() -> None:
    """As in Java: it need not be the one at the end of the chain."""
    works(key_store(node()), Store(type="PEM", certificates=node().certificate_pem))


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (Store(type="PEM", location="/nowhere/x.pem"), "No such file"),
        (Store(type="PEM", key=node().key_pem), "certificate.chain is missing"),
        (Store(type="PEM", certificates=node().chain_pem), "ssl.keystore.key is missing"),
        (Store(type="JKS", key=node().key_pem, certificates=node().chain_pem), "ssl.keystore.type=PEM"),
        (Store(type="PEM", key="nothing", certificates=node().chain_pem), "no private key"),
        (Store(type="PEM", key=node().key_pem, certificates="nothing"), "no certificate"),
        (Store(type="PEM", key=node().encrypted_key_pem("x"), certificates=node().chain_pem), "ssl.key.password"),
        (Store(type="BCFKS", location=__file__), "no store is of the type BCFKS"),
        (Store(type="JKS", location=__file__, password="x"), "no PKCS12 store|password"),
        (
            Store(type="PEM", key=node().key_pem, certificates=node().chain_pem, password="x"),
            "the password of the key is ssl.key.password",
        ),
    ],
    ids=lambda each: "" if isinstance(each, Store) else each[:20],
)
def test_what_is_wrong_with_a_key_store_is_told_in_words(store: Store, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        load_key(store)
    assert "BEGIN" not in str(caught.value)


def test_a_key_that_does_not_belong_to_its_certificate_is_told() -> None:
    other = authority().issue("other")
    with pytest.raises(SettingsError, match="does not belong to its certificate"):
        server_context(TlsOptions(keystore=Store(type="PEM", key=other.key_pem, certificates=node().chain_pem)))
    wrong = Store(type="PEM", key=node().encrypted_key_pem("x"), certificates=node().chain_pem, key_password="y")
    with pytest.raises(SettingsError, match="password is"):
        server_context(TlsOptions(keystore=wrong))


@needs_keytool
def test_wrong_passwords_and_stores_without_what_is_needed(folder: Path) -> None:
    for name in ("node.jks", "node.p12"):
        with pytest.raises(SettingsError, match="password"):
            load_key(Store(type="JKS", location=str(folder / name), password="wrong"))
        with pytest.raises(SettingsError, match=r"ssl\.keystore\.password"):
            load_key(Store(type="JKS", location=str(folder / name)))
    with pytest.raises(SettingsError, match="no private key"):
        load_key(Store(type="JKS", location=str(folder / "trust.jks"), password="swordfish"))
    with pytest.raises(SettingsError, match="no trusted certificate"):
        load_trusted(Store(type="JKS", location=str(folder / "node.jks"), password="swordfish"))
    with pytest.raises(SettingsError, match="set the type to PEM"):
        load_trusted(Store(type="JKS", location=str(folder / "ca.pem")))
    # A trust store may be opened without a password, as in Java: what is in it is no secret.
    assert load_trusted(Store(type="JKS", location=str(folder / "trust.jks")))


@needs_keytool
def test_every_damage_to_a_jks_store_is_found(folder: Path) -> None:
    data = (folder / "node.jks").read_bytes()
    hidden = read_jks(data, "swordfish").keys[0].hidden
    assert reveal_key(hidden, "swordfish") == private_key_in(node().key_pem).content
    with pytest.raises(WrongPasswordError):
        reveal_key(hidden, "wrong")
    for place in range(4, len(data), 7):
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(ValueError, match=r"damaged|wrong"):
            read_jks(damaged, "swordfish")
        with pytest.raises(ValueError, match=r"."):
            read_jks(data[:place], "swordfish")


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_noise_is_no_store(data: bytes) -> None:
    for prefix in (b"", b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1"):
        with pytest.raises(ValueError, match=r"store|wrong|damaged"):
            read_jks(prefix + data + bytes(20), "x")


@given(st.text(max_size=200))
def test_noise_is_no_pem(text: str) -> None:
    with contextlib.suppress(ValueError):
        pem_blocks(text)


def test_a_changed_file_is_noticed_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    path.write_text(node().pem)
    options = TlsOptions(keystore=Store(type="PEM", location=str(path)), truststore=trust_store(authority()))
    contexts = TlsContexts(options, has_server=True)
    before, stamp = contexts.server, stamp_of(options)
    assert not contexts.has_stale_files
    path.write_text("half a")
    assert stamp_of(options) != stamp
    with pytest.raises(SettingsError):
        contexts.replace(options)
    assert contexts.server is before
    path.write_text(authority().issue("node", ["localhost"]).pem)
    contexts.replace(options)
    assert contexts.server is not before
    path.unlink()
    assert stamp_of(options) == (None,)


def test_secrets_do_not_show() -> None:
    shown = repr(TlsOptions(keystore=key_store(node()), truststore=Store(password="geheim")))
    assert "PRIVATE" not in shown
    assert "geheim" not in shown


def test_ciphers_have_javas_names_or_openssls() -> None:
    for name in ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"):
        context = server_context(TlsOptions(keystore=key_store(node()), cipher_suites=(name,)))
        assert context.maximum_version is ssl.TLSVersion.TLSv1_2
        assert "ECDHE-ECDSA-AES256-GCM-SHA384" in [each["name"] for each in context.get_ciphers()]
    for suites, protocols, words in (
        (("TLS_RSA_WITH_RC4_128_MD5",), ("TLSv1.2",), "no cipher suite that is known"),
        (("TLS_AES_128_GCM_SHA256",), ("TLSv1.2",), "no suite for the versions"),
        ((), ("TLSv1.1",), "TLSv1.1"),
    ):
        with pytest.raises(SettingsError, match=words):
            server_context(TlsOptions(keystore=key_store(node()), cipher_suites=suites, enabled_protocols=protocols))
