"""Delegation tokens: secrets that log in for somebody, for a while."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from barnabas.client.admin.driver import NOT_DONE, Part, RequestSpec, raise_if_error
from barnabas.client.admin.routes import AnyNode
from barnabas.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


class Principal(NamedTuple):
    """Somebody who can log in; in text `User:ann`."""

    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"{text!r} is no principal: a type and a name are expected, such as User:ann")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. `hmac` is the secret that goes with its id, and `repr` does not show it. Times are ms since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: Principal
    requester: Principal | None
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


class TokenCalls(Part):
    """Calls about delegation tokens. They need a connection that is logged in: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    otherwise; DELEGATION_TOKEN_AUTH_DISABLED where the cluster has no key for them.
    """

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[Principal] = (),
        owner: Principal | None = None,
        max_lifetime_ms: int = -1,
        timeout: float | None = None,
    ) -> DelegationToken:
        """A new token for the caller, or for another owner (from Kafka 3.3 on). -1: as long as the cluster allows."""
        call = await self._driver.begin("create_delegation_token", timeout)
        those = tuple(renewers)

        def build(spec: RequestSpec[tuple[()]]) -> CreateDelegationTokenRequest:
            # Null where the version has the fields, the default of nothing where it has not.
            nobody = None if spec.version >= 3 else ""
            return CreateDelegationTokenRequest(
                renewers=[CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in those],
                max_lifetime_ms=max_lifetime_ms,
                owner_principal_type=nobody if owner is None else owner.type,
                owner_principal_name=nobody if owner is None else owner.name,
            )

        def read(response: CreateDelegationTokenResponse) -> DelegationToken:
            raise_if_error(response.error_code)
            return DelegationToken(
                token_id=response.token_id,
                hmac=response.hmac,
                owner=Principal(response.principal_type, response.principal_name),
                requester=_requester(response.token_requester_principal_type, response.token_requester_principal_name),
                renewers=those,
                issued_ms=response.issue_timestamp_ms,
                expires_ms=response.expiry_timestamp_ms,
                max_ms=response.max_timestamp_ms,
            )

        return await self._driver.ask_one(call, AnyNode(), CreateDelegationTokenRequest, build, read, may_pass=NOT_DONE)

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Prolong a token, and return when it expires now. -1: by as much as the cluster does by itself."""
        call = await self._driver.begin("renew_delegation_token", timeout)
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)

        def read(response: RenewDelegationTokenResponse) -> int:
            raise_if_error(response.error_code)
            return response.expiry_timestamp_ms

        return await self._driver.ask_one(
            call, AnyNode(), RenewDelegationTokenRequest, lambda spec: request, read, may_pass=NOT_DONE
        )

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """End a token after some time, and return when that is. -1: at once."""
        call = await self._driver.begin("expire_delegation_token", timeout)
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)

        def read(response: ExpireDelegationTokenResponse) -> int:
            raise_if_error(response.error_code)
            return response.expiry_timestamp_ms

        return await self._driver.ask_one(
            call, AnyNode(), ExpireDelegationTokenRequest, lambda spec: request, read, may_pass=NOT_DONE
        )

    async def describe_delegation_tokens(
        self, owners: Iterable[Principal] | None = None, *, timeout: float | None = None
    ) -> tuple[DelegationToken, ...]:
        """The tokens of some owners, or all that the caller may see."""
        call = await self._driver.begin("describe_delegation_tokens", timeout)
        those = None
        if owners is not None:
            those = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in owners]
        request = DescribeDelegationTokenRequest(owners=those)

        def read(response: DescribeDelegationTokenResponse) -> tuple[DelegationToken, ...]:
            raise_if_error(response.error_code)
            return tuple(_token(each) for each in response.tokens)

        return await self._driver.ask_one(call, AnyNode(), DescribeDelegationTokenRequest, lambda spec: request, read)


def _token(each: DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        token_id=each.token_id,
        hmac=each.hmac,
        owner=Principal(each.principal_type, each.principal_name),
        requester=_requester(each.token_requester_principal_type, each.token_requester_principal_name),
        renewers=tuple(Principal(one.principal_type, one.principal_name) for one in each.renewers),
        issued_ms=each.issue_timestamp,
        expires_ms=each.expiry_timestamp,
        max_ms=each.max_timestamp,
    )


def _requester(kind: str, name: str) -> Principal | None:
    return Principal(kind, name) if kind else None
