"""SCRAM (RFC 5802, 7677): a password is proven, and never travels; nor does the server keep it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas.base.sasl.exchange import Authenticated, SaslError, text_of
from barnabas.base.sasl.mechanisms import Mechanism
from barnabas.base.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    ServerFinal,
    ServerFirst,
    base64_text,
    escaped,
)

#: With fewer rounds a password is too easy to guess.
MIN_ITERATIONS: Final = 4096
#: More are not taken by Kafka's controllers.
MAX_ITERATIONS: Final = 16384
#: What a server may ask a client for: more would keep it busy for seconds.
_MAX_ITERATIONS_ASKED: Final = 1_000_000
_SALT_BYTES: Final = 16
#: The extension by which a client says that its user is a delegation token.
TOKEN_AUTH: Final = "tokenauth"


class Keys(Protocol):
    """What a server keeps of a password."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a password was made into. The keys are secrets: whoever has them can pose as the server."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_password(cls, password: str | bytes, mechanism: Mechanism, salt: bytes, iterations: int) -> ScramCredential:
        return cls.of_salted(salted_password(password, mechanism, salt, iterations), mechanism, salt, iterations)

    @classmethod
    def of_salted(cls, salted: bytes, mechanism: Mechanism, salt: bytes, iterations: int) -> ScramCredential:
        """Of a password that was salted where it was typed."""
        name = mechanism.hash_name
        stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        return cls(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


@dataclass(frozen=True, slots=True)
class ScramLogin:
    """A credential, and who has shown to be there if it is proven."""

    credential: Keys
    shown: Authenticated


#: Of a user's name, and whether it is that of a delegation token: what is known of it, if anything.
FindLogin = Callable[[str, bool], ScramLogin | None]


def salted_password(password: str | bytes, mechanism: Mechanism, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's Hi. As in Kafka the password is taken as it is, without SASLprep."""
    secret = password.encode() if isinstance(password, str) else password
    return hashlib.pbkdf2_hmac(mechanism.hash_name, secret, salt, iterations)


class ScramClient:
    """Proves a password, and has the server prove that it knows it."""

    def __init__(
        self,
        mechanism: Mechanism,
        user: str,
        password: str,
        nonce: str,
        *,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        more = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
        self._bare = f"n={escaped(user)},r={nonce}{more}"
        #: What the server must show, once we have shown ours.
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        text = text_of(challenge, "the server's message")
        if self._signature is None:
            return self._prove(text)
        final = ServerFinal.parse(text)
        if final.error is not None:
            raise SaslError(f"the server refuses: {final.error}")
        if not hmac.compare_digest(final.signature, self._signature):
            raise SaslError("the server does not know the password: this may be a false one")
        return None

    def _prove(self, text: str) -> bytes:
        asked, name = ServerFirst.parse(text), self._mechanism.hash_name
        if not asked.nonce.startswith(self._nonce) or len(asked.nonce) == len(self._nonce):
            raise SaslError("the server's nonce does not begin with ours")
        if not MIN_ITERATIONS <= asked.iterations <= _MAX_ITERATIONS_ASKED:
            raise SaslError(
                f"the server asks for {asked.iterations} iterations, and {MIN_ITERATIONS} to "
                f"{_MAX_ITERATIONS_ASKED} are taken"
            )
        salted = salted_password(self._password, self._mechanism, asked.salt, asked.iterations)
        unproven = f"c={base64_text(b'n,,')},r={asked.nonce}"
        message = f"{self._bare},{text},{unproven}".encode()
        client_key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", name), message, name)
        return f"{unproven},p={base64_text(_xor(client_key, signature))}".encode()


class ScramServer:
    """Has a password proven.

    Whoever asks for a user that is not there is asked for a proof all the same, with a salt that stays the same for
    that name (`decoy_key` makes it), and fails where a wrong password fails.
    """

    def __init__(self, mechanism: Mechanism, find: FindLogin, nonce: str, decoy_key: bytes) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._decoy_key = decoy_key
        self._login: ScramLogin | None = None
        self._first: ClientFirst | None = None
        self._asked: ServerFirst | None = None
        self.outcome: Authenticated | None = None

    def respond(self, token: bytes) -> bytes:
        text = text_of(token, "the client's message")
        if self.outcome is not None:
            raise SaslError("the exchange is over")
        if self._first is None or self._asked is None:
            return self._begin(text)
        return self._finish(text, self._first, self._asked)

    def _begin(self, text: str) -> bytes:
        first = self._first = ClientFirst.parse(text)
        if first.authorization_id and first.authorization_id != first.user:
            told = "Authentication failed: Client requested an authorization id that is different from username"
            raise SaslError("it wants to be somebody else than its user", told)
        is_token = first.extensions.get(TOKEN_AUTH, "").lower() == "true"
        login = self._login = self._find(first.user, is_token)
        if login is None:
            salt = hmac.digest(self._decoy_key, f"{is_token}{first.user}".encode(), "sha256")[:_SALT_BYTES]
            iterations = MIN_ITERATIONS
        else:
            salt, iterations = login.credential.salt, login.credential.iterations
        self._asked = ServerFirst(first.nonce + self._nonce, salt, iterations)
        return str(self._asked).encode()

    def _finish(self, text: str, first: ClientFirst, asked: ServerFirst) -> bytes:
        final, name, login = ClientFinal.parse(text), self._mechanism.hash_name, self._login
        if final.binding != first.header.encode() or final.nonce != asked.nonce:
            raise SaslError("its last message does not belong to its first one")
        message = f"{first.bare},{asked},{final.unproven}".encode()
        # Also of nobody: a user who is not there must not be told apart by the time that it takes.
        stored_key = self._decoy_key if login is None else login.credential.stored_key
        signature = hmac.digest(stored_key, message, name)
        if len(final.proof) != len(signature):
            raise SaslError("its proof has a wrong length")
        shown_key = hashlib.new(name, _xor(final.proof, signature)).digest()
        if not hmac.compare_digest(shown_key, stored_key) or login is None:
            raise SaslError("the password is wrong, or there is no such user")
        self.outcome = login.shown
        server_signature = hmac.digest(login.credential.server_key, message, name)
        return f"v={base64_text(server_signature)}".encode()


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")
