"""Users that log in with SCRAM: what may be changed about them, and what is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.sasl import SCRAM_MECHANISMS, Mechanism
from barnabas.base.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential
from barnabas.metadata.access_images import ScramUser
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.features import METADATA_VERSION
from barnabas.metadata.image import ClusterImage
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.wire.stored.cluster_metadata import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

_MECHANISMS: Final = {each.number: each for each in SCRAM_MECHANISMS}
#: The first metadata.version with records for them.
_FIRST_LEVEL: Final = 11

#: A refusal: the error, and Kafka's words for it.
Refusal = tuple[ErrorCode, str]
_TWICE: Final[Refusal] = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)
_NOT_YET: Final[Refusal] = (ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")


def alter_user_scram_credentials(
    image: ClusterImage, request: AlterUserScramCredentialsRequest
) -> ControllerResult[AlterUserScramCredentialsResponse]:
    """Passwords are set and removed. Users that are refused do not keep others from being changed."""
    is_built = image.features.get(METADATA_VERSION, 0) >= _FIRST_LEVEL
    wanted: dict[str, ScramCredentialDeletion | ScramCredentialUpsertion] = {}
    refused: dict[str, Refusal] = {}
    alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for each in alterations:
        if each.name in refused:
            continue
        if wanted.pop(each.name, None) is not None:
            refused[each.name] = _TWICE
            continue
        refusal = _refusal(image, each) if is_built else _NOT_YET
        if refusal is None:
            wanted[each.name] = each
        else:
            refused[each.name] = refusal
    results = [AlterUserScramCredentialsResult(user=name, error_message=None) for name in wanted]
    results += [
        AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
        for name, (code, message) in refused.items()
    ]
    return ControllerResult(AlterUserScramCredentialsResponse(results=results), list(map(_record, wanted.values())))


def describe_user_scram_credentials(
    image: ClusterImage, users: Iterable[str] | None
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms of some users, or of all; never their keys."""
    found: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), credential in sorted(image.scram.items(), key=lambda each: each[0]):
        found.setdefault(name, []).append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    asked = list(users or ())
    if not asked:
        asked = list(found)
    results = []
    for name in dict.fromkeys(asked):
        result = DescribeUserScramCredentialsResult(user=name, credential_infos=[])
        if asked.count(name) > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name in found:
            result.credential_infos = found[name]
        else:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)


def scram_record(name: str, mechanism: Mechanism, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _refusal(image: ClusterImage, each: ScramCredentialDeletion | ScramCredentialUpsertion) -> Refusal | None:
    if not each.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if each.mechanism not in _MECHANISMS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(each, ScramCredentialDeletion):
        if ScramUser(each.name, each.mechanism) not in image.scram:
            return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    elif each.iterations < MIN_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    elif each.iterations > MAX_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    return None


def _record(each: ScramCredentialDeletion | ScramCredentialUpsertion) -> MetadataRecord:
    if isinstance(each, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=each.name, mechanism=each.mechanism)
    mechanism = _MECHANISMS[each.mechanism]
    credential = ScramCredential.of_salted(bytes(each.salted_password), mechanism, bytes(each.salt), each.iterations)
    return scram_record(each.name, mechanism, credential)
