"""ACLs on the controller: which are taken, which filters mean which, and what goes to the log."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.access_images import AclsImage, StandardAcl
from barnabas.metadata.acls import create_acls, delete_acls, matcher
from barnabas.metadata.authorizer import AclOperation, AclPermissionType, PatternType, Resource
from barnabas.metadata.delta import everything
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.options import MAX_RECORDS_PER_REQUEST
from barnabas.metadata.replay import ImageBuilder
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.stored.cluster_metadata import MetadataRecord

_ANY = 1
_READ = StandardAcl(
    Resource.TOPIC, "clicks", PatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW
)


def _creation(acl: StandardAcl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _filter(name: str | None = None, pattern: int = _ANY, **others: object) -> DeleteAclsFilter:
    settings: dict[str, object] = {
        "resource_type_filter": _ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": _ANY,
        "permission_type": _ANY,
    }
    return DeleteAclsFilter(
        resource_name_filter=name,
        pattern_type_filter=pattern,
        **(settings | others),  # type: ignore[arg-type]
    )


def _replayed(image: ClusterImage, records: list[MetadataRecord]) -> tuple[ClusterImage, ImageBuilder]:
    builder = ImageBuilder(image)
    for record in records:
        builder.replay(record)
    return builder.build(image.offset + len(records), 0), builder


def _with(*acls: StandardAcl) -> ClusterImage:
    request = CreateAclsRequest(creations=[_creation(each) for each in acls])
    return _replayed(ClusterImage(), create_acls(AclsImage(), Random(1), request).records)[0]


def test_a_rule_is_there_once() -> None:
    image = _with(_READ)
    request = CreateAclsRequest(creations=[_creation(each) for each in (_READ, _READ._replace(host="h"), _READ)])
    outcome = create_acls(image.acls, Random(2), request)
    assert [each.error_code for each in outcome.response.results] == [0, 0, 0]
    assert len(outcome.records) == 1
    after, builder = _replayed(image, outcome.records)
    assert set(after.acls.values()) == {_READ, _READ._replace(host="h")}
    assert len(builder.delta.acls_changed) == 1
    assert len(everything(after).acls_changed) == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": Resource.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_type": _ANY}, "Invalid resourceType ANY"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": _ANY}, "Invalid operation ANY"),
        ({"permission_type": _ANY}, "Invalid permissionType ANY"),
        ({"principal": "ann"}, "Could not parse principal"),
    ],
)
def test_what_is_no_rule_is_refused_by_itself(change: dict[str, object], told: str) -> None:
    creations = [_creation(_READ._replace(**change)), _creation(_READ)]  # type: ignore[arg-type]
    outcome = create_acls(AclsImage(), Random(1), CreateAclsRequest(creations=creations))
    wrong, right = outcome.response.results
    assert (wrong.error_code, right.error_code) == (ErrorCode.INVALID_REQUEST, 0)
    assert told in (wrong.error_message or "")
    assert len(outcome.records) == 1


def test_one_request_creates_a_bounded_number() -> None:
    names = [_creation(_READ._replace(resource_name=str(each))) for each in range(MAX_RECORDS_PER_REQUEST + 1)]
    with pytest.raises(BrokerError, match="more than one request may create") as refusal:
        create_acls(AclsImage(), Random(1), CreateAclsRequest(creations=names))
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION


def test_filters_mean_what_they_say() -> None:
    prefixed = _READ._replace(resource_name="cl", pattern_type=PatternType.PREFIXED)
    wildcard = _READ._replace(resource_name="*", permission_type=AclPermissionType.DENY)
    other = _READ._replace(resource_type=Resource.GROUP, principal="User:bob", host="h", operation=AclOperation.ALL)
    acls = [_READ, prefixed, wildcard, other]

    def meant(wanted: DeleteAclsFilter) -> list[StandardAcl]:
        return [acl for acl in acls if matcher(wanted)(acl)]

    assert meant(_filter()) == acls
    assert meant(_filter("clicks")) == [_READ, other]
    assert meant(_filter("clicks", PatternType.MATCH)) == acls
    assert meant(_filter("cl", PatternType.MATCH)) == [prefixed, wildcard]
    assert meant(_filter("cl", PatternType.PREFIXED)) == [prefixed]
    assert meant(_filter(None, PatternType.LITERAL)) == [_READ, wildcard, other]
    assert meant(_filter(resource_type_filter=Resource.GROUP)) == [other]
    assert meant(_filter(principal_filter="User:bob")) == [other]
    assert meant(_filter(host_filter="h")) == [other]
    assert meant(_filter(operation=AclOperation.ALL)) == [other]
    assert meant(_filter(permission_type=AclPermissionType.DENY)) == [wildcard]


def test_each_filter_is_told_what_it_means_and_each_rule_goes_once() -> None:
    other = _READ._replace(principal="User:bob")
    image = _with(_READ, other)
    wanted = [_filter("clicks"), _filter(principal_filter="User:bob"), _filter(operation=99), _filter("nothing")]
    outcome = delete_acls(image.acls, DeleteAclsRequest(filters=wanted))
    told = [(each.error_code, len(each.matching_acls)) for each in outcome.response.filter_results]
    assert told == [(0, 2), (0, 1), (ErrorCode.INVALID_REQUEST, 0), (0, 0)]
    assert len(outcome.records) == 2
    after, builder = _replayed(image, outcome.records)
    assert not after.acls
    assert not after.acls.has(_READ)
    assert len(builder.delta.acls_changed) == 2
