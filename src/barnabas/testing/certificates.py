"""Certificates for tests and for trying out: an authority of one's own, and what it signs.

    authority = CertificateAuthority.create()
    node = authority.issue("node-1", hosts=["localhost", "127.0.0.1"])
    Path("node.pem").write_text(node.pem)

They are for machines that one owns: nobody else trusts the authority, and its key is not well hidden.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import BarnabasError
from barnabas.base.extras import how_to_install

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, GeneralName, KeyUsage, Name

_DAY: Final = datetime.timedelta(days=1)
#: Clocks of machines differ by a little.
_EARLIER: Final = datetime.timedelta(hours=1)
_CA_DAYS: Final = 3650
ORGANIZATION: Final = "Barnabas try-out"


class MissingExtraError(BarnabasError):
    """The library that makes certificates is not installed."""

    def __init__(self) -> None:
        super().__init__(f"making certificates needs {how_to_install('security')}")


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A key and its certificate, with that of who signed it behind it."""

    common_name: str
    key_pem: str = field(repr=False)
    certificate_pem: str
    authority_pem: str

    @property
    def chain_pem(self) -> str:
        return self.certificate_pem

    @property
    def pem(self) -> str:
        """Key and certificate in one, as `ssl.keystore.location` takes it."""
        return self.key_pem + self.chain_pem

    def encrypted_key_pem(self, password: str) -> str:
        """The key, to be used only by who knows the password."""
        from cryptography.hazmat.primitives import serialization

        key = serialization.load_pem_private_key(self.key_pem.encode(), None)
        hidden = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        return key.private_bytes(serialization.Encoding.PEM, form, hidden).decode()

    def pkcs12(self, password: str) -> bytes:
        """Key and certificates as a PKCS12 store."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import pkcs12

        key = serialization.load_pem_private_key(self.key_pem.encode(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        certificate, authority = (
            x509.load_pem_x509_certificate(each.encode()) for each in (self.certificate_pem, self.authority_pem)
        )
        hidden = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(self.common_name.encode(), key, certificate, [authority], hidden)


class CertificateAuthority:
    """Signs certificates. Raises `MissingExtraError` where the library for it is missing."""

    def __init__(self, key: EllipticCurvePrivateKey, certificate: Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, name: str = "Barnabas try-out CA", days: int = _CA_DAYS) -> CertificateAuthority:
        """A new authority, whom nobody trusts yet."""
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            raise MissingExtraError from None
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name, ORGANIZATION)
        builder = _builder(subject, subject, key, _now() - _EARLIER, _now() + days * _DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        return cls(key, _signed(builder, key))

    @classmethod
    def load(cls, key_pem: str, certificate_pem: str) -> CertificateAuthority:
        """One that was made before. Raises `ValueError` for what is none."""
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import serialization
            from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        except ImportError:
            raise MissingExtraError from None
        key = serialization.load_pem_private_key(key_pem.encode(), None)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ValueError("the key of the authority is of another kind than those made here")
        return cls(key, x509.load_pem_x509_certificate(certificate_pem.encode()))

    @property
    def certificate_pem(self) -> str:
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return _key_pem(self._key)

    def pkcs12(self, password: str) -> bytes:
        """A trust store with the authority in it, as Java reads it."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12

        trusted = pkcs12.PKCS12Certificate(self._certificate, b"authority")
        hidden = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_java_truststore([trusted], hidden)

    def issue(
        self,
        common_name: str,
        hosts: Iterable[str] = (),
        *,
        organization: str | None = ORGANIZATION,
        days: float = 365,
        starts: datetime.datetime | None = None,
    ) -> IssuedCertificate:
        """A key with a certificate, for a server if it has hosts and for clients in any case."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        begins = starts or _now() - _EARLIER
        subject = _name(common_name, organization)
        builder = _builder(subject, self._certificate.subject, key, begins, begins + _EARLIER + days * _DAY)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        names = [_host(each) for each in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        certificate = _signed(builder, self._key)
        made = certificate.public_bytes(Encoding.PEM).decode()
        return IssuedCertificate(common_name, _key_pem(key), made, self.certificate_pem)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _name(common_name: str, organization: str | None) -> Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(name: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: Name, issuer: Name, key: EllipticCurvePrivateKey, begins: datetime.datetime, ends: datetime.datetime
) -> CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: CertificateBuilder, key: EllipticCurvePrivateKey) -> Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
