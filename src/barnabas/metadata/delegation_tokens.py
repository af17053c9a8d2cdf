"""Delegation tokens: given, prolonged, ended and told of, by the rules of Kafka's controller.

The secret of a token is not in the log: it follows from the token's id and from a key that all nodes have.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.base.sasl.tokens import token_hmac
from barnabas.metadata.access_images import DelegationTokenData
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.features import METADATA_VERSION
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.options import TokenOptions
from barnabas.metadata.snapshot import token_record
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from barnabas.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.wire.stored.cluster_metadata import MetadataRecord, RemoveDelegationTokenRecord

_USER: Final = "User"
#: The first metadata.version with records for them.
_FIRST_LEVEL: Final = 14
_FIRST_WITH_REQUESTER: Final = 3


def create_delegation_token(
    image: ClusterImage,
    options: TokenOptions,
    randomness: Random,
    request: CreateDelegationTokenRequest,
    version: int,
    requester: str,
    now_ms: int,
) -> ControllerResult[CreateDelegationTokenResponse]:
    owner = token_owner(request, requester)
    answer = refused_token(owner, requester, version, ErrorCode.NONE, 0)
    if options.secret_key is None:
        answer.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return ControllerResult(answer)
    if image.features.get(METADATA_VERSION, 0) < _FIRST_LEVEL:
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return ControllerResult(answer)
    if any(each.principal_type != _USER for each in request.renewers):
        answer.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
        return ControllerResult(answer)
    longest_ms = options.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        longest_ms = min(longest_ms, request.max_lifetime_ms)
    token = DelegationTokenData(
        owner,
        requester,
        tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers),
        issue_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms + longest_ms,
        expiration_timestamp_ms=now_ms + min(longest_ms, options.expiry_time_ms),
    )
    token_id = str(Uuid.random(randomness))
    answer.issue_timestamp_ms, answer.max_timestamp_ms = token.issue_timestamp_ms, token.max_timestamp_ms
    answer.expiry_timestamp_ms = token.expiration_timestamp_ms
    answer.token_id, answer.hmac = token_id, token_hmac(options.secret_key, token_id)
    return ControllerResult(answer, [token_record(token_id, token)])


def token_owner(request: CreateDelegationTokenRequest, requester: str) -> str:
    """Whom the token is to log in."""
    if request.owner_principal_name:
        return f"{request.owner_principal_type}:{request.owner_principal_name}"
    return requester


def refused_token(
    owner: str, requester: str, version: int, code: ErrorCode, no_time_ms: int
) -> CreateDelegationTokenResponse:
    """An answer without a token."""
    answer = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.partition(":")[0],
        principal_name=owner.partition(":")[2],
        issue_timestamp_ms=no_time_ms,
        expiry_timestamp_ms=no_time_ms,
        max_timestamp_ms=no_time_ms,
        token_id="",
        hmac=b"",
    )
    if version >= _FIRST_WITH_REQUESTER:
        kind, _, name = requester.partition(":")
        answer.token_requester_principal_type, answer.token_requester_principal_name = kind, name
    return answer


def renew_delegation_token(
    image: ClusterImage, options: TokenOptions, request: RenewDelegationTokenRequest, caller: str, now_ms: int
) -> ControllerResult[RenewDelegationTokenResponse]:
    found = _usable(image, options, bytes(request.hmac), caller, now_ms)
    if isinstance(found, ErrorCode):
        return ControllerResult(RenewDelegationTokenResponse(error_code=found, expiry_timestamp_ms=0))
    token_id, token = found
    period_ms = options.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    ends_ms = min(token.max_timestamp_ms, now_ms + period_ms)
    record = token_record(token_id, replace(token, expiration_timestamp_ms=ends_ms))
    return ControllerResult(RenewDelegationTokenResponse(expiry_timestamp_ms=ends_ms), [record])


def expire_delegation_token(
    image: ClusterImage, options: TokenOptions, request: ExpireDelegationTokenRequest, caller: str, now_ms: int
) -> ControllerResult[ExpireDelegationTokenResponse]:
    """End a token after some time; at once if that is negative."""
    found = _usable(image, options, bytes(request.hmac), caller, now_ms)
    if isinstance(found, ErrorCode):
        return ControllerResult(ExpireDelegationTokenResponse(error_code=found, expiry_timestamp_ms=0))
    token_id, token = found
    if request.expiry_time_period_ms < 0:
        record: MetadataRecord = RemoveDelegationTokenRecord(token_id=token_id)
        return ControllerResult(
            ExpireDelegationTokenResponse(expiry_timestamp_ms=request.expiry_time_period_ms), [record]
        )
    ends_ms = min(token.max_timestamp_ms, now_ms + request.expiry_time_period_ms)
    record = token_record(token_id, replace(token, expiration_timestamp_ms=ends_ms))
    return ControllerResult(ExpireDelegationTokenResponse(expiry_timestamp_ms=ends_ms), [record])


def expired_tokens(image: ClusterImage, now_ms: int) -> ControllerResult[None]:
    """Forget tokens whose time is over."""
    return ControllerResult(
        None,
        [
            RemoveDelegationTokenRecord(token_id=token_id)
            for token_id, token in image.delegation_tokens.items()
            if _is_over(token, now_ms)
        ],
    )


def describe_delegation_tokens(
    image: ClusterImage,
    secret_key: str,
    caller: str,
    owners: Iterable[str] | None,
    version: int,
    may_see: Callable[[str, str], bool],
) -> DescribeDelegationTokenResponse:
    """The tokens of some, or of all; those of others only as `may_see` says, of a token's id and its owner."""
    asked = None if owners is None else set(owners)
    tokens = []
    for token_id, token in image.delegation_tokens.items():
        concerned = {token.owner, token.requester, *token.renewers}
        if asked is not None and not asked & concerned:
            continue
        if caller in concerned or may_see(token_id, token.owner):
            tokens.append(_described(token_id, token, secret_key, version))
    return DescribeDelegationTokenResponse(tokens=tokens)


def _described(token_id: str, token: DelegationTokenData, secret_key: str, version: int) -> DescribedDelegationToken:
    kind, _, name = token.owner.partition(":")
    described = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token_id,
        hmac=token_hmac(secret_key, token_id),
        renewers=[
            DescribedDelegationTokenRenewer(
                principal_type=each.partition(":")[0], principal_name=each.partition(":")[2]
            )
            for each in token.renewers
        ],
    )
    if version >= _FIRST_WITH_REQUESTER:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type, described.token_requester_principal_name = kind, name
    return described


def _usable(
    image: ClusterImage, options: TokenOptions, secret: bytes, caller: str, now_ms: int
) -> tuple[str, DelegationTokenData] | ErrorCode:
    """The token with this secret, if the caller may change it."""
    if options.secret_key is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    for token_id, token in image.delegation_tokens.items():
        if not hmac.compare_digest(token_hmac(options.secret_key, token_id), secret):
            continue
        if _is_over(token, now_ms):
            return ErrorCode.DELEGATION_TOKEN_EXPIRED
        if caller != token.owner and caller not in token.renewers:
            return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        return token_id, token
    return ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def _is_over(token: DelegationTokenData, now_ms: int) -> bool:
    return token.max_timestamp_ms < now_ms or token.expiration_timestamp_ms < now_ms
