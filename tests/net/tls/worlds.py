"""An authority, what it signed, and listeners and contexts that go with it."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

from barnabas.net import ListenerSpec
from barnabas.net.tls.contexts import TlsContexts
from barnabas.net.tls.dialing import ClientTls
from barnabas.net.tls.listening import ListenerTls
from barnabas.net.tls.options import Store, TlsOptions
from barnabas.net.tls.principal_mapping import PrincipalMapper
from barnabas.testing.certificates import CertificateAuthority, IssuedCertificate
from tests.net.worlds import Peer

HOSTS = ("localhost", "127.0.0.1")


@cache
def authority(name: str = "Test CA") -> CertificateAuthority:
    return CertificateAuthority.create(name)


@cache
def node() -> IssuedCertificate:
    return authority().issue("node", HOSTS)


@cache
def alice() -> IssuedCertificate:
    return authority().issue("alice")


def key_store(issued: IssuedCertificate) -> Store:
    return Store(type="PEM", key=issued.key_pem, certificates=issued.chain_pem)


def trust_store(trusted: CertificateAuthority) -> Store:
    return Store(type="PEM", certificates=trusted.certificate_pem)


def options(
    issued: IssuedCertificate | None = None, trusted: CertificateAuthority | None = None, **more: Any
) -> TlsOptions:
    keys = Store() if issued is None else key_store(issued)
    return TlsOptions(keystore=keys, truststore=trust_store(trusted or authority()), **more)


def listener(
    issued: IssuedCertificate | None = None,
    *,
    client_auth: str = "none",
    rules: str = "DEFAULT",
    trusted: CertificateAuthority | None = None,
    spec: dict[str, Any] | None = None,
    **more: Any,
) -> ListenerSpec:
    contexts = TlsContexts(options(issued or node(), trusted, client_auth=client_auth, **more), has_server=True)
    return ListenerSpec("SSL", "127.0.0.1", 0, tls=ListenerTls(contexts, PrincipalMapper(rules)), **(spec or {}))


def client(issued: IssuedCertificate | None = None, **more: Any) -> ClientTls:
    return ClientTls(TlsContexts(options(issued, **more), has_server=False))


def python_context(issued_files: tuple[str, str] | None = None) -> ssl.SSLContext:
    """Python's own, for a peer that is not ours."""
    context = ssl.create_default_context(cadata=authority().certificate_pem)
    if issued_files is not None:
        context.load_cert_chain(*issued_files)
    return context


class RawPeer(Peer):
    """One that looks at no byte that it is sent."""

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self._changed.set()
