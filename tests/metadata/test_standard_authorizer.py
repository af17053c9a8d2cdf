"""Decisions by ACLs, against a twin that walks all rules as Kafka's documents say they are meant."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import SettingsError
from barnabas.base.ids import Uuid
from barnabas.metadata.access_images import AclsImage, StandardAcl
from barnabas.metadata.authorizer import AclOperation, AclPermissionType, PatternType, Resource
from barnabas.metadata.standard_authorizer import DefaultRule, StandardAuthorizer, parse_super_users

_NAMES = ("a", "ab", "abc", "abd", "b", "*", "hardcode", "hard")
_HOSTS = ("10.0.0.1", "10.0.0.2", "*")
_PRINCIPALS = ("User:ann", "User:bob", "User:*", "Group:ann")
_OPERATIONS = tuple(AclOperation)
_ACLS = st.builds(
    StandardAcl,
    resource_type=st.sampled_from((Resource.TOPIC, Resource.GROUP)),
    resource_name=st.sampled_from(_NAMES),
    pattern_type=st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    principal=st.sampled_from(_PRINCIPALS),
    host=st.sampled_from(_HOSTS),
    operation=st.sampled_from(_OPERATIONS),
    permission_type=st.sampled_from(AclPermissionType),
)
_ASKED = st.tuples(
    st.sampled_from(("User:ann", "User:bob", "Group:ann", "User:root")),
    st.sampled_from(_HOSTS[:2]),
    st.sampled_from(_OPERATIONS[1:]),
    st.sampled_from((Resource.TOPIC, Resource.GROUP)),
    st.sampled_from((*_NAMES, "abcd", "z", "hardcoded")),
)
_IMPLIED = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def _touches(acl: StandardAcl, kind: Resource, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def _is_about(acl: StandardAcl, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def _matches(acl: StandardAcl, operation: AclOperation) -> bool:
    operations = {operation, AclOperation.ALL}
    if acl.permission_type == AclPermissionType.ALLOW:
        operations |= _IMPLIED.get(operation, set())
    return acl.operation in operations


class Twin:
    """The rules by the book, one after the other."""

    def __init__(self, acls: Iterable[StandardAcl], super_users: frozenset[str], everyone: bool) -> None:
        self.acls = list(acls)
        self.super_users = super_users
        self.everyone = everyone

    def is_allowed(self, principal: str, host: str, operation: AclOperation, kind: Resource, name: str) -> bool:
        if principal in self.super_users:
            return True
        touching = [each for each in self.acls if _touches(each, kind, name)]
        if not touching:
            return self.everyone
        found = [each for each in touching if _is_about(each, principal, host) and _matches(each, operation)]
        permissions = {each.permission_type for each in found}
        return AclPermissionType.ALLOW in permissions and AclPermissionType.DENY not in permissions

    def is_allowed_by_type(self, principal: str, host: str, operation: AclOperation, kind: Resource) -> bool:
        if self.is_allowed(principal, host, operation, kind, "hardcode"):
            return True
        about = [
            each
            for each in self.acls
            if each.resource_type == kind
            and _is_about(each, principal, host)
            and each.operation in (operation, AclOperation.ALL)
        ]
        denied = [each for each in about if each.permission_type == AclPermissionType.DENY]
        allowed = [each for each in about if each.permission_type == AclPermissionType.ALLOW]
        if any(_is_wildcard(each) for each in denied):
            return False
        if any(_is_wildcard(each) for each in allowed):
            return True
        return any(not any(_dominates(deny, allow) for deny in denied) for allow in allowed)


def _is_wildcard(acl: StandardAcl) -> bool:
    return acl.resource_name == "*" and acl.pattern_type == PatternType.LITERAL


def _dominates(deny: StandardAcl, allow: StandardAcl) -> bool:
    if deny.pattern_type == PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type == PatternType.LITERAL and allow.resource_name == deny.resource_name


def _image(acls: Iterable[StandardAcl]) -> AclsImage:
    return AclsImage((Uuid(number.to_bytes(16, "big")), acl) for number, acl in enumerate(dict.fromkeys(acls), 1))


@settings(max_examples=300)
@given(st.lists(_ACLS, max_size=12), st.lists(_ASKED, min_size=1, max_size=12), st.booleans())
def test_decisions_are_those_of_a_walk_through_all_rules(
    acls: list[StandardAcl], asked: list[tuple[str, str, AclOperation, Resource, str]], everyone: bool
) -> None:
    root = frozenset({"User:root"})
    authorizer, twin = StandardAuthorizer(root, everyone), Twin(acls, root, everyone)
    image = _image(acls)
    authorizer.apply(image, image)
    for each in asked:
        expected = twin.is_allowed(*each)
        assert authorizer.is_allowed(*each) == expected
        decision = authorizer.decide(*each)
        assert decision.is_allowed == expected
        if isinstance(decision.rule, StandardAcl):
            assert decision.rule in acls
            assert (decision.rule.permission_type == AclPermissionType.ALLOW) == expected
        principal, host, operation, kind, _ = each
        by_type = principal, host, operation, kind
        assert authorizer.is_allowed_by_type(*by_type) == twin.is_allowed_by_type(*by_type)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.booleans(), _ACLS), max_size=30), st.lists(_ASKED, min_size=1, max_size=6))
def test_what_comes_and_goes_leaves_what_is_there(
    steps: list[tuple[bool, StandardAcl]], asked: list[tuple[str, str, AclOperation, Resource, str]]
) -> None:
    authorizer = StandardAuthorizer()
    image = AclsImage()
    ids: dict[StandardAcl, Uuid] = {}
    for number, (comes, acl) in enumerate(steps, 1):
        if comes and not image.has(acl):
            ids[acl] = Uuid(number.to_bytes(16, "big"))
            image = image.set(ids[acl], acl)
        elif not comes and acl in ids:
            image = image.delete(ids.pop(acl))
        authorizer.apply(image, [*ids.values(), *(Uuid(each.to_bytes(16, "big")) for each in range(1, number + 1))])
        fresh = StandardAuthorizer()
        fresh.apply(image, image)
        for each in asked:
            assert authorizer.decide(*each) == fresh.decide(*each)
        assert image.has(acl) == (acl in ids)


def test_rules_that_a_snapshot_passed_over_are_gone() -> None:
    authorizer = StandardAuthorizer()
    old = _image([_allow("a", AclOperation.READ), _allow("b", AclOperation.READ)])
    authorizer.apply(old, old)
    new = old.delete(next(iter(old)))
    authorizer.apply(new, new)
    assert not authorizer.is_allowed("User:ann", "10.0.0.1", AclOperation.READ, Resource.TOPIC, "a")
    assert authorizer.is_allowed("User:ann", "10.0.0.1", AclOperation.READ, Resource.TOPIC, "b")


def test_the_rule_that_decided_is_told() -> None:
    deny = _allow("secret", AclOperation.READ)._replace(permission_type=int(AclPermissionType.DENY), principal="User:*")
    authorizer = StandardAuthorizer(frozenset({"User:root"}))
    image = _image([_allow("secret", AclOperation.ALL), deny])
    authorizer.apply(image, image)
    asked = "10.0.0.1", AclOperation.READ, Resource.TOPIC
    assert authorizer.decide("User:ann", *asked, "secret") == (False, deny)
    assert authorizer.decide("User:root", *asked, "secret") == (True, DefaultRule.SUPER_USER)
    assert authorizer.decide("User:ann", *asked, "other") == (False, DefaultRule.DEFAULT_DENY)
    describe = authorizer.decide("User:ann", "10.0.0.1", AclOperation.DESCRIBE, Resource.TOPIC, "secret")
    assert describe == (True, _allow("secret", AclOperation.ALL))


def test_super_users_are_principals_between_semicolons() -> None:
    assert parse_super_users(" User:ann ; User:CN=b,O=c;;") == {"User:ann", "User:CN=b,O=c"}
    assert parse_super_users("") == frozenset()
    with pytest.raises(SettingsError, match="'ann' is no principal"):
        parse_super_users("ann;User:bob")


def _allow(name: str, operation: AclOperation) -> StandardAcl:
    return StandardAcl(
        Resource.TOPIC, name, PatternType.LITERAL, "User:ann", "*", operation, int(AclPermissionType.ALLOW)
    )
