"""Keys and certificates of a running node: files that change, settings that change, and what is refused."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.base.errors import SettingsError
from barnabas.client.admin import AlterConfig
from barnabas.testing import EmbeddedBroker
from barnabas.testing.certificates import CertificateAuthority, IssuedCertificate

HOSTS = ("localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.create()


@pytest.fixture
def folder(tmp_path: Path, authority: CertificateAuthority) -> Path:
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    (tmp_path / "node.pem").write_text(authority.issue("node", HOSTS).pem)
    return tmp_path


def settings(folder: Path, **more: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.fixture
def broker(folder: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides=settings(folder)) as broker:
        yield broker


def shown(broker: EmbeddedBroker, folder: Path) -> bytes:
    """The certificate that the node shows at this moment."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as raw:
        found = context.wrap_socket(raw, server_hostname=host).getpeercert(binary_form=True)
    assert found is not None
    return found


def der(issued: IssuedCertificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.certificate_pem)


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline_s, "it has not come true"
        time.sleep(0.1)


def admin(broker: EmbeddedBroker, folder: Path) -> barnabas.Admin:
    return barnabas.Admin(
        broker.bootstrap_servers, security_protocol="SSL", ssl_cafile=str(folder / "ca.pem"), request_timeout_ms=10_000
    )


def change(broker: EmbeddedBroker, folder: Path, changes: dict[str, str]) -> None:
    resource = barnabas.ConfigResource(barnabas.ConfigResourceType.BROKER, "1")
    with admin(broker, folder) as found:
        found.alter_configs({resource: [AlterConfig(name, value) for name, value in changes.items()]})


def test_a_file_that_changes_is_read_again_and_a_bad_one_is_not_used(
    broker: EmbeddedBroker, folder: Path, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    first = shown(broker, folder)
    (folder / "node.pem").write_text("half of a")
    until(lambda: any("keeps its certificates" in each.getMessage() for each in caplog.records))
    assert shown(broker, folder) == first
    new = authority.issue("node", (*HOSTS, "more.example"))
    (folder / "node.pem").write_text(new.pem)
    until(lambda: shown(broker, folder) == der(new))


def test_settings_that_change_are_tried_and_then_used(
    broker: EmbeddedBroker, folder: Path, authority: CertificateAuthority
) -> None:
    new, other = authority.issue("node", HOSTS), authority.issue("somebody else", HOSTS)
    prefix = "listener.name.plaintext."
    for value, words in (("/nowhere.pem", "No such file"), (other, "ssl.allow.dn.changes")):
        location = value
        if isinstance(value, IssuedCertificate):
            location = str(folder / "other.pem")
            Path(location).write_text(value.pem)
        with pytest.raises(barnabas.BarnabasError, match=words):
            change(broker, folder, {f"{prefix}ssl.keystore.location": str(location)})
    with pytest.raises(barnabas.BarnabasError, match=r"listener\.name\.NAME"):
        change(broker, folder, {"ssl.keystore.location": str(folder / "node.pem")})
    (folder / "new.pem").write_text(new.pem)
    change(broker, folder, {f"{prefix}ssl.keystore.location": str(folder / "new.pem")})
    until(lambda: shown(broker, folder) == der(new))
    resource = barnabas.ConfigResource(barnabas.ConfigResourceType.BROKER, "1")
    with admin(broker, folder) as found:
        described = found.describe_configs([resource])[resource]
    assert all(not entry.value for name, entry in described.items() if "password" in name or name.endswith(".key"))


def test_a_certificate_that_the_node_itself_does_not_trust_keeps_it_from_starting(folder: Path) -> None:
    (folder / "ca.pem").write_text(CertificateAuthority.create("Another").certificate_pem)
    with pytest.raises(SettingsError, match=r"not trusted by ssl\.truststore"):
        EmbeddedBroker(overrides=settings(folder)).start()


def test_a_listener_without_a_key_keeps_it_from_starting() -> None:
    with pytest.raises(SettingsError, match="needs a private key"):
        EmbeddedBroker(overrides={"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}).start()


def test_rules_that_cannot_be_read_keep_it_from_starting(folder: Path) -> None:
    with pytest.raises(SettingsError, match="is no rule"):
        EmbeddedBroker(overrides=settings(folder, ssl_principal_mapping_rules="whatever")).start()
