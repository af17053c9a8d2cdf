"""Users that log in with SCRAM. Passwords are salted and hashed here; they never travel."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from random import Random
from typing import Final, NamedTuple

from barnabas.client.admin.driver import (
    NOT_DONE,
    Outcomes,
    Part,
    RequestSpec,
    broker_error,
    raise_if_error,
    settled,
    several,
)
from barnabas.client.admin.routes import AnyNode, ControllerStrategy
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

DEFAULT_ITERATIONS: Final = 4096
_SALT_BYTES: Final = 32


class ScramMechanism(IntEnum):
    """A hash that credentials are made for."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


class ScramCredentialInfo(NamedTuple):
    """What a broker tells of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A password to set for a user. `salt` is drawn unless it is given. The password is not shown by `repr`."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    iterations: int = DEFAULT_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential to remove."""

    user: str
    mechanism: ScramMechanism


class ScramCalls(Part):
    """Calls about SCRAM users, from Kafka 2.7 on."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """The credentials of some users, or of all that have any. RESOURCE_NOT_FOUND for a user without any."""
        call = await self._driver.begin("describe_user_scram_credentials", timeout)
        wanted = None if users is None else list(dict.fromkeys(several(users)))
        request = DescribeUserScramCredentialsRequest(
            # To a broker an empty list means all, as null does.
            users=None if wanted is None else [UserName(name=user) for user in wanted]
        )

        def read(response: DescribeUserScramCredentialsResponse) -> Outcomes[str, tuple[ScramCredentialInfo, ...]]:
            raise_if_error(response.error_code, response.error_message)
            results: dict[str, tuple[ScramCredentialInfo, ...]] = {}
            errors: dict[str, Exception] = {}
            for each in response.results:
                if each.error_code:
                    errors[each.user] = broker_error(each.error_code, each.error_message)
                else:
                    infos = each.credential_infos
                    results[each.user] = tuple(
                        ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations) for info in infos
                    )
            return Outcomes(results, errors)

        if wanted == []:
            return {}
        results, errors = await self._driver.ask_one(
            call, AnyNode(), DescribeUserScramCredentialsRequest, lambda spec: request, read
        )
        return settled(sorted({*results, *errors}) if wanted is None else wanted, results, errors)

    async def alter_user_scram_credentials(
        self, alterations: Iterable[ScramUpsertion | ScramDeletion], *, timeout: float | None = None
    ) -> None:
        """Set and remove passwords. RESOURCE_NOT_FOUND for what is to be removed and is not there; errors are by user.

        A user may be named once in a call: DUPLICATE_RESOURCE otherwise.
        """
        call = await self._driver.begin("alter_user_scram_credentials", timeout)
        given = list(alterations)
        deletions = [each for each in given if isinstance(each, ScramDeletion)]
        randomness = self._driver.randomness
        upsertions = [_salted(each, randomness) for each in given if isinstance(each, ScramUpsertion)]

        def build(spec: RequestSpec[str]) -> AlterUserScramCredentialsRequest:
            return AlterUserScramCredentialsRequest(
                deletions=[
                    ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                    for each in deletions
                    if each.user in spec.keys
                ],
                upsertions=[each for each in upsertions if each.name in spec.keys],
            )

        def read(
            spec: RequestSpec[str], response: AlterUserScramCredentialsResponse
        ) -> Iterable[tuple[str, Exception | None]]:
            for each in response.results:
                yield each.user, broker_error(each.error_code, each.error_message) if each.error_code else None

        users = [each.user for each in given]
        await self._driver.ask_each(
            call, users, ControllerStrategy(), AlterUserScramCredentialsRequest, build, read, may_pass=NOT_DONE
        )


def salted_password(password: str | bytes, salt: bytes, mechanism: ScramMechanism, iterations: int) -> bytes:
    """RFC 5802's Hi: what a server keeps instead of the password."""
    secret = password.encode() if isinstance(password, str) else password
    return hashlib.pbkdf2_hmac(mechanism.hash_name, secret, salt, iterations)


def _salted(each: ScramUpsertion, randomness: Random) -> ScramCredentialUpsertion:
    if each.mechanism is ScramMechanism.UNKNOWN:
        raise ValueError(f"the mechanism of {each.user}'s password is not known: give SCRAM_SHA_256 or SCRAM_SHA_512")
    salt = randomness.randbytes(_SALT_BYTES) if each.salt is None else each.salt
    return ScramCredentialUpsertion(
        name=each.user,
        mechanism=each.mechanism,
        iterations=each.iterations,
        salt=salt,
        salted_password=salted_password(each.password, salt, each.mechanism, each.iterations),
    )
