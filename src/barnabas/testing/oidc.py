"""A small issuer of tokens with real keys, for tests of OAUTHBEARER: it signs, publishes its keys, and gives tokens for
client credentials, over HTTP on this machine.

    with OidcIssuer({"ann": "swordfish"}) as issuer:
        token = issuer.token("ann")
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

_LIFETIME_S = 3600


class OidcIssuer:
    """See the module. `clients` are ids and secrets; without any, whoever asks gets a token."""

    def __init__(
        self, clients: Mapping[str, str] | None = None, *, audience: str = "kafka", lifetime_s: int = _LIFETIME_S
    ) -> None:
        from joserfc.jwk import RSAKey

        self._clients = dict(clients or {})
        self.audience = audience
        self.lifetime_s = lifetime_s
        self._key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, auto_kid=True)
        self._published = [self._key]
        self._server: ThreadingHTTPServer | None = None
        # The one that it had before, so that a broker that was restarted finds it where it was.
        self._port = 0
        #: How many tokens were given over HTTP.
        self.given = 0

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the issuer is not started: use it with `with`")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/jwks"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def token(self, subject: str, *, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A signed token; `claims` stand over what it says by itself, None leaves one out."""
        from joserfc import jwt

        now_s = int(time.time())
        said = {
            "iss": self.url,
            "aud": self.audience,
            "sub": subject,
            "iat": now_s,
            "exp": now_s + self.lifetime_s,
            **claims,
        }
        head = {"alg": "RS256", "kid": self._key.kid, **(header or {})}
        head, said = ({name: value for name, value in each.items() if value is not None} for each in (head, said))
        return jwt.encode(head, said, self._key)

    def rotate(self, *, publishes: bool = True) -> None:
        """Sign with a new key from now on; the old one stays published."""
        from joserfc.jwk import RSAKey

        self._key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, auto_kid=True)
        if publishes:
            self._published.append(self._key)

    def jwks(self) -> str:
        """The public keys, as they are published."""
        return json.dumps({"keys": [key.as_dict(private=False) for key in self._published]})

    def __enter__(self) -> Self:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200 if self.path == "/jwks" else 404, issuer.jwks())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                client = issuer._client(self.headers.get("Authorization", ""))
                if self.path != "/token" or client is None:
                    self._answer(401, json.dumps({"error": "invalid_client"}))
                    return
                issuer.given += 1
                self._answer(200, json.dumps({"access_token": issuer.token(client), "token_type": "Bearer"}))

            def _answer(self, status: int, body: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                """Nothing: who asks shows secrets."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="oidc-issuer", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _client(self, authorization: str) -> str | None:
        """Who asks, if it has shown that."""
        scheme, _, text = authorization.partition(" ")
        if scheme != "Basic":
            return None
        client, _, secret = b64decode(text).decode().partition(":")
        return client if not self._clients or self._clients.get(client) == secret else None
