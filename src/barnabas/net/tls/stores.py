"""Keys and certificates out of stores: PEM, PKCS12 and JKS. What is wrong with one is said without what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import SettingsError
from barnabas.base.extras import how_to_install
from barnabas.net.tls.jks import JCEKS_MAGIC, MAGIC, JksStore, read_jks, reveal_key
from barnabas.net.tls.options import PEM, Store
from barnabas.net.tls.pem import PemBlock, certificates_in, private_key_in

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

_TYPES: Final = ("PEM", "PKCS12", "JKS")
_EXTRA: Final = f"PKCS12 stores need {how_to_install('security')}; PEM and JKS work without it"


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificates, that of its owner first, encoded in DER."""

    key: PemBlock = field(repr=False)
    chain: tuple[bytes, ...]
    #: Of the key, if it is encrypted.
    password: str | None = field(default=None, repr=False)


def load_key(store: Store) -> KeyMaterial:
    """The key of a key store. Raises `SettingsError` that names the settings concerned."""
    where = _where(store, "ssl.keystore")
    try:
        if store.type == PEM or store.key is not None or store.certificates is not None:
            return _pem_key(store)
        data = _read(store)
        if data[:4] == MAGIC:
            return _jks_key(read_jks(data, _required(store)), store)
        return _pkcs12_key(data, store)
    except ValueError as problem:
        raise SettingsError(f"{where}: {problem}") from None


def load_trusted(store: Store) -> tuple[bytes, ...]:
    """The certificates of a trust store, encoded in DER. Raises `SettingsError` that names the settings concerned."""
    where = _where(store, "ssl.truststore")
    try:
        if store.certificates is not None:
            if store.type != PEM:
                raise ValueError("certificates as text need ssl.truststore.type=PEM")
            if store.location is not None:
                raise ValueError("give a file or the certificates themselves, not both")
            return tuple(certificates_in(store.certificates))
        data = _read(store)
        if store.type == PEM:
            return tuple(certificates_in(data.decode("utf-8", errors="replace")))
        if data[:4] == MAGIC:
            found = read_jks(data, store.password).trusted
        else:
            found = _pkcs12_certificates(data, store.password)
        if not found:
            raise ValueError("no trusted certificate is in it")
        return found
    except ValueError as problem:
        raise SettingsError(f"{where}: {problem}") from None


def _where(store: Store, prefix: str) -> str:
    return f"{prefix}.location {store.location}" if store.location else prefix


def _read(store: Store) -> bytes:
    if store.type not in _TYPES:
        raise ValueError(f"no store is of the type {store.type}; there are {', '.join(_TYPES)}")
    if store.location is None:
        raise ValueError("no file is given")
    try:
        data = Path(store.location).read_bytes()
    except OSError as problem:
        raise ValueError(f"it cannot be read: {problem.strerror or problem}") from None
    if data[:4] == JCEKS_MAGIC:
        raise ValueError("it is a JCEKS store; convert it: keytool -importkeystore -deststoretype PKCS12")
    if store.type != PEM and data.lstrip()[:5] == b"-----":
        raise ValueError(f"it holds PEM, and the type says {store.type}; set the type to PEM")
    return data


def _required(store: Store) -> str:
    if store.password is None:
        raise ValueError("its password is missing: set ssl.keystore.password")
    return store.password


def _pem_key(store: Store) -> KeyMaterial:
    if store.type != PEM:
        raise ValueError("a key as text needs ssl.keystore.type=PEM")
    if store.password is not None:
        raise ValueError("PEM has no ssl.keystore.password; the password of the key is ssl.key.password")
    if store.location is not None:
        if store.key is not None or store.certificates is not None:
            raise ValueError("give a file or the key itself, not both")
        chain_text = _read(store).decode("utf-8", errors="replace")
        key_text = chain_text
        if store.key_location is not None:
            key_store = Store(type=PEM, location=store.key_location)
            key_text = _read(key_store).decode("utf-8", errors="replace")
    elif store.key is None or store.certificates is None:
        missing = "ssl.keystore.key" if store.key is None else "ssl.keystore.certificate.chain"
        raise ValueError(f"the key and its certificates belong together, and {missing} is missing")
    else:
        key_text, chain_text = store.key, store.certificates
    key = private_key_in(key_text)
    if (key.label.startswith("ENCRYPTED") or key.headers) and store.key_password is None:
        raise ValueError("its key is encrypted, and ssl.key.password is missing")
    return KeyMaterial(key, tuple(certificates_in(chain_text)), store.key_password)


def _jks_key(found: JksStore, store: Store) -> KeyMaterial:
    if not found.keys:
        raise ValueError("no private key is in it")
    first = found.keys[0]
    password = store.key_password if store.key_password is not None else _required(store)
    return KeyMaterial(PemBlock("PRIVATE KEY", reveal_key(first.hidden, password)), first.chain)


def _pkcs12_key(data: bytes, store: Store) -> KeyMaterial:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError:
        raise ValueError(_EXTRA) from None
    _, key, certificate, others = _load_pkcs12(data, _required(store))
    if key is None or certificate is None:
        raise ValueError("no private key with a certificate is in it")
    encoded = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    chain = [certificate, *_ordered(certificate, others)]
    return KeyMaterial(PemBlock("PRIVATE KEY", encoded), tuple(each.public_bytes(Encoding.DER) for each in chain))


def _pkcs12_certificates(data: bytes, password: str | None) -> tuple[bytes, ...]:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding
    except ImportError:
        raise ValueError(_EXTRA) from None
    # Java trusts the entries that are certificates alone, not the chain of a key.
    has_key, _, _, others = _load_pkcs12(data, password)
    return () if has_key else tuple(each.public_bytes(Encoding.DER) for each in others)


def _load_pkcs12(
    data: bytes, password: str | None
) -> tuple[bool, PrivateKeyTypes | None, Certificate | None, list[Certificate]]:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        found = load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ValueError("the password is wrong, or it is no PKCS12 store") from None
    certificate = None if found.cert is None else found.cert.certificate
    others = [each.certificate for each in found.additional_certs]
    return found.key is not None, found.key, certificate, others


def _ordered(certificate: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Those who signed, one after the other: TLS sends them so, and a store may have them in any order."""
    chain, left = [certificate], list(others)
    while True:
        signer = next((each for each in left if each.subject == chain[-1].issuer), None)
        if signer is None:
            return chain[1:]
        left.remove(signer)
        chain.append(signer)
