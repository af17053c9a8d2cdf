"""Who may log in at an embedded broker or cluster, and how: users, TLS, an issuer of tokens and rules, in one line.

with EmbeddedBroker(security=Security({"ann": "swordfish"}, tls=True, oidc=True)) as broker:
    producer = Producer(broker.bootstrap_servers, **broker.security.client_settings("ann"))
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from functools import cached_property
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final

from barnabas.base.sasl import SCRAM_MECHANISMS, Mechanism, mechanism_called
from barnabas.base.sasl.scram import MIN_ITERATIONS, ScramCredential
from barnabas.metadata.scram_users import scram_record
from barnabas.wire.stored.cluster_metadata import UserScramCredentialRecord

if TYPE_CHECKING:
    from random import Random

    from barnabas.testing.certificates import CertificateAuthority, IssuedCertificate
    from barnabas.testing.oidc import OidcIssuer

_MODULES: Final = "org.apache.kafka.common.security"
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SALT_BYTES: Final = 16
#: Whom the nodes of a cluster are to each other.
_NODE: Final = "barnabas-node"
_MAPPING: Final = "RULE:^CN=(.*?),.*$/$1/,DEFAULT"


class Security:
    """What an embedded broker asks of its clients; `repr` shows no passwords.

    - `users`: names and passwords. They log in by PLAIN and SCRAM, and by tokens if there is an issuer.
    - `issuer`, `oidc`: an issuer of yours whose tokens are taken, or `oidc=True` for one that lives and ends with the
      broker, and knows the users as clients. `security.issuer` is it.
    - `tls`: whether all is encrypted, by certificates that are made for it. Without users, clients show certificates:
      `client_settings("ann")` has one for `User:ann`.
    - `super_users`: names for whom no rule counts. If there are some, what no rule allows is denied to all others
      (`StandardAuthorizer`).
    """

    def __init__(
        self,
        users: Mapping[str, str] | None = None,
        issuer: OidcIssuer | None = None,
        mechanisms: Sequence[str] = (Mechanism.PLAIN, *SCRAM_MECHANISMS),
        *,
        tls: bool = False,
        oidc: bool = False,
        super_users: Sequence[str] = (),
    ) -> None:
        self.users = dict(users or {})
        if not self.users and not tls:
            raise ValueError("users: somebody must be able to log in")
        if not self.users and (oidc or issuer is not None):
            raise ValueError("users: an issuer gives tokens to users")
        if oidc and issuer is not None:
            raise ValueError("oidc=True makes an issuer, and one was given")
        self.mechanisms = tuple(map(mechanism_called, mechanisms))
        self.super_users = tuple(super_users)
        self.is_encrypted = tls
        self._owns_issuer = oidc
        self._node_password = token_urlsafe()
        self._authority: CertificateAuthority | None = None
        self._clients: dict[str, IssuedCertificate] = {}
        if oidc:
            from barnabas.testing.oidc import OidcIssuer

            issuer = OidcIssuer(self.users)
        self.issuer = issuer
        if tls:
            from barnabas.testing.certificates import CertificateAuthority

            self._authority = CertificateAuthority.create()

    def __repr__(self) -> str:
        who = ", ".join(self.users) or "certificates"
        return f"<Security {self.protocol}: {who}>"

    @property
    def protocol(self) -> str:
        """The security protocol of the listener, which is its name, too."""
        if not self.users:
            return "SSL"
        return "SASL_SSL" if self.is_encrypted else "SASL_PLAINTEXT"

    # For the broker

    def start(self) -> None:
        """Before the broker starts: what it needs beside itself."""
        if self._owns_issuer and self.issuer is not None:
            self.issuer.__enter__()

    def stop(self) -> None:
        if self._owns_issuer and self.issuer is not None:
            self.issuer.__exit__(None, None, None)

    def settings(self, host: str, port: int, controller_host: str, controller_port: int) -> dict[str, object]:
        """Settings of the broker, by Kafka's names."""
        listener = self.protocol
        shown = f"[{host}]" if ":" in host else host
        controllers = "PLAINTEXT"
        if self.super_users:
            # Controllers ask, too: who is nobody may do nothing there.
            controllers = "SASL_SSL" if self.is_encrypted else "SASL_PLAINTEXT"
        found: dict[str, object] = {
            "listeners": f"{listener}://{shown}:{port},CONTROLLER://{controller_host}:{controller_port}",
            "listener.security.protocol.map": f"{listener}:{listener},CONTROLLER:{controllers}",
            "security.inter.broker.protocol": listener,
            **self._of_tls(host, controller_host),
            **self._of_sasl(listener),
        }
        if self.super_users:
            nodes = f'username="{_NODE}" password="{self._node_password}" user_{_NODE}="{self._node_password}"'
            found |= {
                "authorizer.class.name": _AUTHORIZER,
                "super.users": ";".join(f"User:{each}" for each in (*self.super_users, _NODE)),
                "sasl.mechanism.controller.protocol": Mechanism.PLAIN,
                "listener.name.controller.sasl.enabled.mechanisms": Mechanism.PLAIN,
                "listener.name.controller.plain.sasl.jaas.config": (
                    f"{_MODULES}.plain.PlainLoginModule required {nodes};"
                ),
            }
        return found

    def _of_tls(self, *hosts: str) -> dict[str, object]:
        if self._authority is None:
            return {}
        names = dict.fromkeys(each for each in (*hosts, "127.0.0.1", "localhost") if each)
        node = self._authority.issue(_NODE, names)
        found: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": node.key_pem,
            "ssl.keystore.certificate.chain": node.chain_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self._authority.certificate_pem,
        }
        if not self.users:
            found |= {"ssl.client.auth": "required", "ssl.principal.mapping.rules": _MAPPING}
        return found

    def _of_sasl(self, listener: str) -> dict[str, object]:
        if not self.users:
            return {}
        users = {**self.users, _NODE: self._node_password}
        options = "".join(f" user_{name}={_quoted(each)}" for name, each in users.items())
        login = f"username={_quoted(_NODE)} password={_quoted(self._node_password)}"
        # The nodes' own is among them in any case.
        enabled = list(dict.fromkeys((Mechanism.PLAIN, *self.mechanisms)))
        found: dict[str, object] = {
            "sasl.mechanism.inter.broker.protocol": Mechanism.PLAIN,
            f"listener.name.{listener.lower()}.plain.sasl.jaas.config": (
                f"{_MODULES}.plain.PlainLoginModule required {login}{options};"
            ),
        }
        if self.issuer is not None:
            enabled.append(Mechanism.OAUTHBEARER)
            found |= {
                "sasl.oauthbearer.jwks.endpoint.url": self.issuer.jwks_url,
                "sasl.oauthbearer.expected.issuer": self.issuer.url,
                "sasl.oauthbearer.expected.audience": self.issuer.audience,
            }
        found["sasl.enabled.mechanisms"] = ",".join(enabled)
        return found

    def records(self, randomness: Random) -> list[UserScramCredentialRecord]:
        """The users in the metadata log."""
        records = []
        for mechanism in SCRAM_MECHANISMS:
            for name, password in self.users.items():
                salt = randomness.randbytes(_SALT_BYTES)
                credential = ScramCredential.of_password(password, mechanism, salt, MIN_ITERATIONS)
                records.append(scram_record(name, mechanism, credential))
        return records

    def node_settings(self) -> dict[str, Any]:
        """Keywords for a client of ours that is one of the nodes."""
        if not self.users:
            return self.client_settings(_NODE)
        own = {"sasl_plain_username": _NODE, "sasl_plain_password": self._node_password}
        return {**self._shared, "sasl_mechanism": str(Mechanism.PLAIN), **own}

    # For clients

    def client_settings(self, user: str, mechanism: str = Mechanism.SCRAM_SHA_256) -> dict[str, Any]:
        """Keywords for a client of ours, kafka-python's or aiokafka's. By OAUTHBEARER a user is a client of the issuer;
        our clients ask it by themselves."""
        if not self.users:
            context = ssl.create_default_context(cadata=self.ca_pem)
            _load(context, self._certificate(user))
            return {**self._shared, "ssl_context": context}
        found = {**self._shared, "sasl_mechanism": str(mechanism)}
        if mechanism != Mechanism.OAUTHBEARER:
            return found | {"sasl_plain_username": user, "sasl_plain_password": self._password(user)}
        return found | {
            "sasl_oauthbearer_token_endpoint_url": self._token_url,
            "sasl_oauthbearer_client_credentials_client_id": user,
            "sasl_oauthbearer_client_credentials_client_secret": self._password(user),
        }

    def librdkafka_settings(self, user: str, mechanism: str = Mechanism.SCRAM_SHA_256) -> dict[str, Any]:
        """Settings for confluent-kafka and others on librdkafka."""
        found: dict[str, Any] = {"security.protocol": self.protocol}
        if self.is_encrypted:
            found["ssl.ca.pem"] = self.ca_pem
        if not self.users:
            own = self._certificate(user)
            return found | {"ssl.certificate.pem": own.chain_pem, "ssl.key.pem": own.key_pem}
        found["sasl.mechanism"] = str(mechanism)
        if mechanism != Mechanism.OAUTHBEARER:
            return found | {"sasl.username": user, "sasl.password": self._password(user)}
        return found | {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self._token_url,
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": self._password(user),
        }

    def properties(self, user: str, mechanism: str = Mechanism.SCRAM_SHA_256) -> dict[str, str]:
        """Settings by Kafka's names: for Java, for `--command-config` of tools, and with `kafka.` before them for
        Spark."""
        found = {"security.protocol": self.protocol}
        if self.is_encrypted:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca_pem}
        if not self.users:
            own = self._certificate(user)
            return found | {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": own.key_pem,
                "ssl.keystore.certificate.chain": own.chain_pem,
            }
        found["sasl.mechanism"] = str(mechanism)
        if mechanism == Mechanism.OAUTHBEARER:
            return found | {
                "sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.oauthbearer.token.endpoint.url": self._token_url,
                "sasl.oauthbearer.client.credentials.client.id": user,
                "sasl.oauthbearer.client.credentials.client.secret": self._password(user),
            }
        kind = "plain.PlainLoginModule" if mechanism == Mechanism.PLAIN else "scram.ScramLoginModule"
        login = f"username={_quoted(user)} password={_quoted(self._password(user))}"
        return found | {"sasl.jaas.config": f"{_MODULES}.{kind} required {login};"}

    @property
    def ca_pem(self) -> str:
        """The certificate that clients must trust."""
        if self._authority is None:
            raise ValueError("there is no TLS: Security(…, tls=True)")
        return self._authority.certificate_pem

    @cached_property
    def _shared(self) -> dict[str, Any]:
        found: dict[str, Any] = {"security_protocol": self.protocol}
        if self.is_encrypted and self.users:
            found["ssl_context"] = ssl.create_default_context(cadata=self.ca_pem)
        return found

    def _password(self, user: str) -> str:
        try:
            return self.users[user]
        except KeyError:
            raise ValueError(f"there is no user {user!r}: there are {', '.join(self.users)}") from None

    @property
    def _token_url(self) -> str:
        if self.issuer is None:
            raise ValueError("OAUTHBEARER needs an issuer: Security(…, oidc=True)")
        return self.issuer.token_url

    def _certificate(self, user: str) -> IssuedCertificate:
        if self._authority is None:
            raise ValueError("there is no TLS: Security(…, tls=True)")
        if user not in self._clients:
            self._clients[user] = self._authority.issue(user)
        return self._clients[user]


def _load(context: ssl.SSLContext, certificate: IssuedCertificate) -> None:
    """Python loads keys from files alone: one that nobody else sees, for a moment."""
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(certificate.pem)
        file.flush()
        context.load_cert_chain(file.name)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
