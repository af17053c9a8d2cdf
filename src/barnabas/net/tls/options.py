"""What the `ssl.*` settings say, as values: where keys and trusted certificates are, and what is asked of a peer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from barnabas.base.settings.security import TlsSettings

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
PEM: Final = "PEM"
#: What a listener may ask of its clients.
CLIENT_AUTH: Final = ("none", "requested", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A key store or a trust store: a file, or its content as text. Secrets do not show."""

    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    #: Of a key store: the password of the key itself, if it has another; the key and its certificates as text.
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    #: A file with the key alone, where `location` has only its certificates, as other clients' settings say it.
    key_location: str | None = None
    certificates: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.certificates is not None or self.key is not None

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(each for each in (self.location, self.key_location) if each is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """What one listener, or one client, needs for TLS."""

    keystore: Store = Store()
    truststore: Store = Store()
    enabled_protocols: tuple[str, ...] = PROTOCOLS
    #: Empty for those of the library.
    cipher_suites: tuple[str, ...] = ()
    #: Of a client: whether the certificate must name the host that was asked for.
    checks_host: bool = True
    #: Of a listener.
    client_auth: str = "none"

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.keystore.files, *self.truststore.files)


def tls_options(settings: TlsSettings, client_auth: str = "none") -> TlsOptions:
    """What these settings say. Of a listener its own are to be given."""

    def revealed(name: str) -> str | None:
        secret = getattr(settings, name)
        return None if secret is None else str(secret.reveal())

    return TlsOptions(
        keystore=Store(
            type=settings.ssl_keystore_type.upper(),
            location=settings.ssl_keystore_location,
            password=revealed("ssl_keystore_password"),
            key_password=revealed("ssl_key_password"),
            key=revealed("ssl_keystore_key"),
            certificates=revealed("ssl_keystore_certificate_chain"),
        ),
        truststore=Store(
            type=settings.ssl_truststore_type.upper(),
            location=settings.ssl_truststore_location,
            password=revealed("ssl_truststore_password"),
            certificates=revealed("ssl_truststore_certificates"),
        ),
        enabled_protocols=settings.ssl_enabled_protocols,
        cipher_suites=settings.ssl_cipher_suites,
        checks_host=settings.ssl_endpoint_identification_algorithm.lower() == "https",
        client_auth=client_auth,
    )
