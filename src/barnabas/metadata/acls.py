"""ACLs: which rules may be, which a filter means, and what creating and deleting them takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.metadata.access_images import AclsImage, StandardAcl
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, Resource
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.options import MAX_RECORDS_PER_REQUEST
from barnabas.metadata.snapshot import acl_record
from barnabas.metadata.standard_authorizer import WILDCARD
from barnabas.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.wire.stored.cluster_metadata import MetadataRecord, RemoveAccessControlEntryRecord

#: In a filter: whatever it is.
_ANY: Final = 1
_RESOURCES: Final = frozenset(Resource)
_OPERATIONS: Final = frozenset(AclOperation)
_PERMISSIONS: Final = frozenset(AclPermissionType)
_SPECIFIC: Final = (PatternType.LITERAL, PatternType.PREFIXED)


class AclBindingFilter(Protocol):
    """Which rules are meant, as requests say it. None and ANY stand for all."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


# Creating


def create_acls(
    acls: AclsImage, randomness: Random, request: CreateAclsRequest
) -> ControllerResult[CreateAclsResponse]:
    """A rule that is there already is no error, and is not there twice."""
    results: list[AclCreationResult] = []
    records: list[MetadataRecord] = []
    created: set[StandardAcl] = set()
    for creation in request.creations:
        problem = _what_is_wrong_with(creation)
        if problem is not None:
            results.append(AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=problem))
            continue
        results.append(AclCreationResult())
        acl = StandardAcl(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        if acl not in created and not acls.has(acl):
            created.add(acl)
            records.append(acl_record(_new_id(acls, randomness), acl))
    if len(records) > MAX_RECORDS_PER_REQUEST:
        why = f"{len(records)} ACLs are more than one request may create ({MAX_RECORDS_PER_REQUEST})"
        raise BrokerError(ErrorCode.POLICY_VIOLATION, why)
    return ControllerResult(CreateAclsResponse(results=results), records)


def _new_id(acls: AclsImage, randomness: Random) -> Uuid:
    while True:
        acl_id = Uuid.random(randomness)
        if acl_id not in acls:
            return acl_id


def _what_is_wrong_with(creation: AclCreation) -> str | None:
    name = creation.resource_name
    if creation.resource_type == Resource.CLUSTER and name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not name:
        return "Invalid empty resource name"
    if creation.resource_type not in _RESOURCES:
        return f"Invalid resourceType {_told(creation.resource_type)}"
    if creation.resource_pattern_type not in _SPECIFIC:
        return f"Invalid patternType {_told(creation.resource_pattern_type, 'MATCH')}"
    if creation.operation not in _OPERATIONS:
        return f"Invalid operation {_told(creation.operation)}"
    if creation.permission_type not in _PERMISSIONS:
        return f"Invalid permissionType {_told(creation.permission_type)}"
    if ":" not in creation.principal:
        return (
            f"Could not parse principal from `{creation.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return None


def _told(number: int, second: str = "UNKNOWN") -> str:
    return {_ANY: "ANY", 2: second}.get(number, "UNKNOWN")


# Filters


def what_is_wrong_with_filter(wanted: AclBindingFilter) -> str | None:
    if wanted.resource_type_filter != _ANY and wanted.resource_type_filter not in _RESOURCES:
        return "Unknown patternFilter."
    if wanted.pattern_type_filter not in frozenset(PatternType):
        return "Unknown patternFilter."
    if wanted.operation != _ANY and wanted.operation not in _OPERATIONS:
        return "Unknown entryFilter."
    if wanted.permission_type != _ANY and wanted.permission_type not in _PERMISSIONS:
        return "Unknown entryFilter."
    return None


def matcher(wanted: AclBindingFilter) -> Callable[[StandardAcl], bool]:
    """Whether a filter means a rule."""
    kind, pattern, name = wanted.resource_type_filter, wanted.pattern_type_filter, wanted.resource_name_filter
    # By the places of the fields in a rule: only what the filter says anything of is looked at.
    exact = [
        (place, value)
        for place, value in (
            (0, None if kind == _ANY else kind),
            (2, None if pattern in (PatternType.ANY, PatternType.MATCH) else pattern),
            (1, None if pattern == PatternType.MATCH else name),
            (3, wanted.principal_filter),
            (4, wanted.host_filter),
            (5, None if wanted.operation == _ANY else wanted.operation),
            (6, None if wanted.permission_type == _ANY else wanted.permission_type),
        )
        if value is not None
    ]
    touched = name if pattern == PatternType.MATCH else None

    def matches(acl: StandardAcl) -> bool:
        for place, value in exact:
            if acl[place] != value:
                return False
        return touched is None or touches(acl, touched)

    return matches


def touches(acl: StandardAcl, name: str) -> bool:
    """Whether a rule is about the resource of this name; its kind is not looked at."""
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


# Deleting


def delete_acls(acls: AclsImage, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
    """Each filter by itself: a rule that two of them mean is told twice, and goes once."""
    deleted: dict[Uuid, None] = {}
    results = [_delete(acls, wanted, deleted) for wanted in request.filters]
    records: list[MetadataRecord] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in deleted]
    return ControllerResult(DeleteAclsResponse(filter_results=results), records)


def _delete(acls: AclsImage, wanted: DeleteAclsFilter, deleted: dict[Uuid, None]) -> DeleteAclsFilterResult:
    problem = what_is_wrong_with_filter(wanted)
    if problem is not None:
        code = ErrorCode.INVALID_REQUEST
        return DeleteAclsFilterResult(error_code=code, error_message=problem, matching_acls=[])
    matches = matcher(wanted)
    found = {acl_id: acl for acl_id, acl in acls.items() if matches(acl)}
    if len(deleted) + len(found.keys() - deleted.keys()) > MAX_RECORDS_PER_REQUEST:
        why = f"Cannot remove more than {MAX_RECORDS_PER_REQUEST} acls in a single delete operation."
        return DeleteAclsFilterResult(error_code=ErrorCode.POLICY_VIOLATION, error_message=why, matching_acls=[])
    deleted |= dict.fromkeys(found)
    return DeleteAclsFilterResult(error_message=None, matching_acls=_matching(found.values()))


def _matching(acls: Iterable[StandardAcl]) -> list[DeleteAclsMatchingAcl]:
    return [
        DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for acl in acls
    ]
