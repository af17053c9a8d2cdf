"""SCRAM users and delegation tokens as the controller decides about them, in Kafka's words."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.sasl import Mechanism
from barnabas.base.sasl.scram import ScramCredential, salted_password
from barnabas.base.sasl.tokens import token_hmac
from barnabas.metadata.access_images import ScramUser
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.delegation_tokens import (
    create_delegation_token,
    describe_delegation_tokens,
    expire_delegation_token,
    expired_tokens,
    renew_delegation_token,
)
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.options import TokenOptions
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.scram_users import alter_user_scram_credentials, describe_user_scram_credentials
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.wire.stored.cluster_metadata import FeatureLevelRecord, MetadataRecord

SALT = b"salt-of-a-user"
OPTIONS = TokenOptions("cluster-key", max_lifetime_ms=1000, expiry_time_ms=100)


def image_of(*records: MetadataRecord, level: int = 25, before: ClusterImage | None = None) -> ClusterImage:
    builder = ImageBuilder(before or ClusterImage())
    if before is None:
        builder.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
    for each in records:
        builder.replay(each)
    return builder.build(1, 1)


def upsertion(name: str = "ann", mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = salted_password("pw", Mechanism.SCRAM_SHA_256, SALT, 4096)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


def alter(
    image: ClusterImage, *changes: ScramCredentialDeletion | ScramCredentialUpsertion
) -> tuple[ClusterImage, dict[str, tuple[int, str | None]]]:
    outcome = alter_user_scram_credentials(
        image,
        AlterUserScramCredentialsRequest(
            deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
            upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
        ),
    )
    told = {each.user: (each.error_code, each.error_message) for each in outcome.response.results}
    return image_of(*outcome.records, before=image), told


def test_a_user_comes_and_goes() -> None:
    image, told = alter(image_of(), upsertion())
    assert told == {"ann": (0, None)}
    expected = ScramCredential.of_password("pw", Mechanism.SCRAM_SHA_256, SALT, 4096)
    kept = image.scram[ScramUser("ann", 1)]
    assert (kept.salt, kept.stored_key, kept.server_key) == (SALT, expected.stored_key, expected.server_key)
    (described,) = describe_user_scram_credentials(image, None).results
    assert (described.user, described.credential_infos[0].mechanism) == ("ann", 1)
    image, told = alter(image, ScramCredentialDeletion(name="ann", mechanism=1))
    assert (told, len(image.scram)) == ({"ann": (0, None)}, 0)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            ScramCredentialDeletion(name="ann", mechanism=2),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_what_is_wrong_with_one_user_does_not_keep_others_out(
    change: ScramCredentialDeletion | ScramCredentialUpsertion, code: ErrorCode, message: str
) -> None:
    image, told = alter(image_of(), change, upsertion("bob"))
    assert told == {change.name: (code, message), "bob": (0, None)}
    assert list(image.scram) == [ScramUser("bob", 1)]


def test_a_user_is_changed_once_in_a_request() -> None:
    image, told = alter(image_of(), upsertion(), upsertion(), upsertion("bob"))
    assert told["ann"] == (
        ErrorCode.DUPLICATE_RESOURCE,
        "A user credential cannot be altered twice in the same request",
    )
    assert list(image.scram) == [ScramUser("bob", 1)]


def test_users_are_told_with_what_is_wrong_about_the_question() -> None:
    image, _ = alter(image_of(), upsertion())
    results = describe_user_scram_credentials(image, ["ann", "bob", "carl", "carl"]).results
    assert [(each.user, each.error_code, len(each.credential_infos)) for each in results] == [
        ("ann", 0, 1),
        ("bob", ErrorCode.RESOURCE_NOT_FOUND, 0),
        ("carl", ErrorCode.DUPLICATE_RESOURCE, 0),
    ]
    assert "pw" not in repr(image.scram[ScramUser("ann", 1)])


def test_an_old_cluster_has_no_users() -> None:
    _, told = alter(image_of(level=10), upsertion())
    assert told["ann"][0] == ErrorCode.UNSUPPORTED_VERSION


def created(image: ClusterImage, *renewers: str, now_ms: int = 1000, max_ms: int = -1) -> tuple[ClusterImage, bytes]:
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="User", principal_name=each) for each in renewers],
        max_lifetime_ms=max_ms,
    )
    outcome = create_delegation_token(image, OPTIONS, Random(now_ms), request, 3, "User:ann", now_ms)
    answer = outcome.response
    assert (answer.error_code, answer.principal_name, answer.token_requester_principal_name) == (0, "ann", "ann")
    assert answer.hmac == token_hmac("cluster-key", answer.token_id)
    return image_of(*outcome.records, before=image), answer.hmac


def test_a_token_lives_as_long_as_it_is_renewed_but_not_for_ever() -> None:
    image, secret = created(image_of(), "bob")
    for caller, now_ms, ends_ms in [("User:ann", 1050, 1150), ("User:bob", 1140, 1240), ("User:ann", 1239, 1339)]:
        asked = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=-1)
        outcome = renew_delegation_token(image, OPTIONS, asked, caller, now_ms)
        assert (outcome.response.error_code, outcome.response.expiry_timestamp_ms) == (0, ends_ms)
        image = image_of(*outcome.records, before=image)
    image, short = created(image_of(), max_ms=50)
    asked = RenewDelegationTokenRequest(hmac=short, renew_period_ms=-1)
    assert renew_delegation_token(image, OPTIONS, asked, "User:ann", 1040).response.expiry_timestamp_ms == 1050


def test_who_may_not_change_a_token() -> None:
    image, secret = created(image_of())

    def code(caller: str, hmac: bytes, now_ms: int, options: TokenOptions = OPTIONS) -> int:
        renewing = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=5)
        ending = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=5)
        outcomes: list[ControllerResult[object]] = [
            renew_delegation_token(image, options, renewing, caller, now_ms),  # type: ignore[list-item]
            expire_delegation_token(image, options, ending, caller, now_ms),  # type: ignore[list-item]
        ]
        (found,) = {each.response.error_code for each in outcomes}  # type: ignore[attr-defined]
        assert bool(found) != any(each.records for each in outcomes)
        return int(found)

    assert code("User:ann", secret, 1001) == 0
    assert code("User:bob", secret, 1001) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert code("User:ann", b"other", 1001) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert code("User:ann", secret, 1101) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert code("User:ann", secret, 1001, TokenOptions()) == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_a_token_ends_at_once_or_later_and_is_forgotten() -> None:
    image, secret = created(image_of())
    asked = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1)
    outcome = expire_delegation_token(image, OPTIONS, asked, "User:ann", 1001)
    assert outcome.response.expiry_timestamp_ms == 1001
    assert not image_of(*outcome.records, before=image).delegation_tokens
    assert not expired_tokens(image, 1100).records
    assert len(expired_tokens(image, 1101).records) == 1


def test_tokens_are_for_users_and_need_a_key() -> None:
    robot = [CreatableRenewers(principal_type="Robot", principal_name="x")]
    request = CreateDelegationTokenRequest(renewers=robot, max_lifetime_ms=-1)
    answer = create_delegation_token(image_of(), OPTIONS, Random(1), request, 3, "User:ann", 0)
    assert (answer.response.error_code, answer.records) == (ErrorCode.INVALID_PRINCIPAL_TYPE, [])
    answer = create_delegation_token(image_of(), TokenOptions(), Random(1), request, 3, "User:ann", 0)
    assert answer.response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert "cluster-key" not in repr(OPTIONS)


def test_whose_tokens_are_told() -> None:
    image, _ = created(image_of(), "bob")

    def count(caller: str, owners: list[str] | None = None, *, sees_all: bool = False) -> int:
        answer = describe_delegation_tokens(image, "cluster-key", caller, owners, 3, lambda *_: sees_all)
        return len(answer.tokens)

    assert [count("User:ann"), count("User:bob"), count("User:carl"), count("User:carl", sees_all=True)] == [1, 1, 0, 1]
    assert [count("User:ann", ["User:ann"]), count("User:ann", ["User:carl"])] == [1, 0]
