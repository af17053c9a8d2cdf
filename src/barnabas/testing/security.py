"""Who may log in at an embedded broker: users, and an issuer of tokens, in one line.

with EmbeddedBroker(security=Security(users={"ann": "swordfish"})) as broker:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, **broker.security.client_settings("ann"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.base.sasl import SCRAM_MECHANISMS, Mechanism, mechanism_called
from barnabas.base.sasl.scram import MIN_ITERATIONS, ScramCredential
from barnabas.metadata.scram_users import scram_record
from barnabas.wire.stored.cluster_metadata import UserScramCredentialRecord

if TYPE_CHECKING:
    from random import Random

    from barnabas.testing.oidc import OidcIssuer

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SALT_BYTES = 16
LISTENER = "SASL_PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Security:
    """What an embedded broker asks of its clients. Users log in by PLAIN and SCRAM, and by tokens of `issuer` if one is
    given. Passwords are not shown by `repr`."""

    users: Mapping[str, str] = field(repr=False)
    issuer: OidcIssuer | None = None
    mechanisms: Sequence[str] = (Mechanism.PLAIN, *SCRAM_MECHANISMS)

    def __post_init__(self) -> None:
        if not self.users:
            raise ValueError("users: somebody must be able to log in")

    def settings(self, host: str, port: int, controller_host: str, controller_port: int) -> dict[str, object]:
        """Settings of the broker, by Kafka's names."""
        first, password = next(iter(self.users.items()))
        options = "".join(f" user_{name}={_quoted(each)}" for name, each in self.users.items())
        enabled = [mechanism_called(each) for each in self.mechanisms]
        if Mechanism.PLAIN not in enabled:
            enabled.insert(0, Mechanism.PLAIN)  # the broker's own
        found: dict[str, object] = {
            "listeners": f"{LISTENER}://{host}:{port},CONTROLLER://{controller_host}:{controller_port}",
            "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "security.inter.broker.protocol": LISTENER,
            "sasl.mechanism.inter.broker.protocol": Mechanism.PLAIN,
            f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
                f"{_PLAIN_MODULE} required username={_quoted(first)} password={_quoted(password)}{options};"
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

    def client_settings(self, user: str, mechanism: str = Mechanism.SCRAM_SHA_256) -> dict[str, Any]:
        """Keywords for a client of ours, kafka-python's or aiokafka's. By OAUTHBEARER a user is a client of the issuer;
        our clients ask it by themselves."""
        found: dict[str, Any] = {"security_protocol": LISTENER, "sasl_mechanism": str(mechanism)}
        if mechanism != Mechanism.OAUTHBEARER:
            return found | {"sasl_plain_username": user, "sasl_plain_password": self.users[user]}
        if self.issuer is None:
            raise ValueError("OAUTHBEARER needs an issuer: Security(…, issuer=OidcIssuer())")
        return found | {
            "sasl_oauthbearer_token_endpoint_url": self.issuer.token_url,
            "sasl_oauthbearer_client_credentials_client_id": user,
            "sasl_oauthbearer_client_credentials_client_secret": self.users[user],
        }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
