"""Python's TLS contexts, made of what the settings say, and made anew when keys or certificates change.

Each connection has a full handshake: a session that is resumed would carry over the verdict on a certificate that may
have expired, or whose issuer is not trusted any more.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from typing import Final

from barnabas.base.errors import SettingsError
from barnabas.net.tls.cipher_suites import TLS_1_3, openssl_names
from barnabas.net.tls.options import PROTOCOLS, TlsOptions
from barnabas.net.tls.pem import certificate_text
from barnabas.net.tls.stores import KeyMaterial, load_key, load_trusted

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
#: Enough turns for any handshake between two who agree.
_TURNS: Final = 20

#: What tells whether a file has changed.
Stamp = tuple[tuple[str, int, int, int] | None, ...]


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """For a listener. Raises `SettingsError`."""
    if not options.keystore.is_given:
        raise SettingsError(
            "TLS on a listener needs a private key and its certificate; give ssl.keystore.location, or "
            "ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _CLIENT_AUTH[options.client_auth]
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    _apply(context, options)
    if options.truststore.is_given or options.client_auth != "none":
        _trust(context, options, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """For connections that we open. Raises `SettingsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.checks_host
    _apply(context, options)
    _trust(context, options, ssl.Purpose.SERVER_AUTH)
    return context


def _apply(context: ssl.SSLContext, options: TlsOptions) -> None:
    """What both sides have in common."""
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    unknown = [each for each in options.enabled_protocols if each not in PROTOCOLS]
    if unknown:
        raise SettingsError(
            f"ssl.enabled.protocols has {unknown[0]}, which is not to be had: {' and '.join(PROTOCOLS)} are"
        )
    versions = [_VERSIONS[each] for each in options.enabled_protocols] or list(_VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if options.cipher_suites:
        _set_ciphers(context, options.cipher_suites)
    if options.keystore.is_given:
        _load_key(context, load_key(options.keystore))


def _set_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """Those of TLS 1.3 cannot be chosen in Python's context: who agrees on another one is turned away afterwards."""
    try:
        names = openssl_names(suites)
    except ValueError as problem:
        raise SettingsError(f"ssl.cipher.suites: {problem}") from None
    older = [name for name in names if name not in TLS_1_3]
    if len(older) == len(names):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > context.maximum_version:
        raise SettingsError("ssl.cipher.suites has no suite for the versions of ssl.enabled.protocols")
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise SettingsError("ssl.cipher.suites: the library here has none of them") from None


def _trust(context: ssl.SSLContext, options: TlsOptions, purpose: ssl.Purpose) -> None:
    """Who is in the trust store is trusted, also if somebody else signed it: as in Java."""
    if not options.truststore.is_given:
        context.load_default_certs(purpose)
        return
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(load_trusted(options.truststore)))
    except ssl.SSLError as problem:
        raise SettingsError(f"ssl.truststore: a certificate in it cannot be used: {_words(problem)}") from None


def _load_key(context: ssl.SSLContext, material: KeyMaterial) -> None:
    text = material.key.text + certificate_text(list(material.chain))
    password = material.password or ""
    try:
        _with_file(text.encode(), lambda path: context.load_cert_chain(path, password=lambda: password))
    except ssl.SSLError as problem:
        raise SettingsError(
            "ssl.keystore: the private key cannot be used: it does not belong to its certificate, or its password is "
            f"wrong ({_words(problem)})"
        ) from None


def _with_file(data: bytes, use: Callable[[str], None]) -> None:
    """Python takes keys from files alone; this one is in memory, and nobody else's, where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("barnabas-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            use(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "key.pem")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
        use(path)


def _words(problem: ssl.SSLError) -> str:
    return (problem.reason or "unknown").lower().replace("_", " ")


class TlsContexts:
    """The contexts of a listener, or of those who connect to it; new connections use the newest.

    Made once at the start, which raises `SettingsError`; a change that cannot be used leaves everything as it was.
    """

    __slots__ = ("_client", "_server", "_stamp", "has_server", "options")

    def __init__(self, options: TlsOptions, *, has_server: bool) -> None:
        self.has_server = has_server
        self.options = options
        self._stamp: Stamp = ()
        self._server: ssl.SSLContext | None = None
        self._client: ssl.SSLContext | None = None
        self.replace(options)

    @property
    def server(self) -> ssl.SSLContext:
        if self._server is None:
            raise SettingsError("these are settings of a client")
        return self._server

    @property
    def client(self) -> ssl.SSLContext:
        if self._client is None:
            # Only nodes that connect to others need it, and a listener may have no trust store for it.
            self._client = client_context(self.options)
        return self._client

    def replace(self, options: TlsOptions) -> None:
        """Take other settings, or the same with files that have changed. Raises `SettingsError`."""
        stamp = stamp_of(options)
        server = server_context(options) if self.has_server else None
        client = None if self.has_server and self._client is None else client_context(options)
        self.options, self._stamp, self._server, self._client = options, stamp, server, client

    @property
    def has_stale_files(self) -> bool:
        """Whether a file has changed since it was read."""
        return stamp_of(self.options) != self._stamp

    def check_itself(self) -> None:
        """Whether a node that shows this certificate is trusted by one with this trust store, as the nodes of a cluster
        must be. Raises `SettingsError`."""
        client = client_context(self.options)
        client.check_hostname = False
        try:
            shake_hands(self.server, client)
        except ssl.SSLError as problem:
            raise SettingsError(
                f"the certificate of ssl.keystore is not trusted by ssl.truststore ({_words(problem)}), so the nodes "
                "of the cluster could not talk to each other"
            ) from None


class GivenContext:
    """A context that somebody made, in the place of `TlsContexts` of a client."""

    __slots__ = ("client", "options")

    def __init__(self, client: ssl.SSLContext) -> None:
        self.client = client
        self.options = TlsOptions()


def stamp_of(options: TlsOptions) -> Stamp:
    """What the files look like now; None for one that is not there."""
    return tuple(map(_stamp, options.files))


def _stamp(path: str) -> tuple[str, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return path, found.st_ino, found.st_mtime_ns, found.st_size


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Let two contexts talk to each other in memory. Raises `ssl.SSLError` if one turns the other away."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_TURNS):
        waiting = []
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(side)
        if not waiting:
            return
    raise ssl.SSLError("the handshake does not end")
