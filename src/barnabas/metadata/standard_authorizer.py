"""Kafka's StandardAuthorizer: decisions by the rules in the metadata log, without walking those of other resources.

Rules are kept by kind and name of resource, then by principal and host, and what is left of them is two sets of bits:
the operations that are denied and those that are allowed. So a decision looks up the name, `*`, and the prefixes of
the name that have rules; in each of these the principal and `User:*`; and of each of these the host and `*`. How many
rules others have does not matter.

A rule that denies beats all that allow. To read, write, delete or alter allows to describe, too; to alter settings, to
see them. Where nothing is said of a resource at all, `allow_everyone_if_no_acl_found` decides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from barnabas.base.errors import SettingsError
from barnabas.base.ids import Uuid
from barnabas.metadata.access_images import AclsImage, StandardAcl
from barnabas.metadata.authorizer import AclOperation, AclPermissionType, PatternType, Resource

WILDCARD: Final = "*"
EVERY_USER: Final = "User:*"

_DENIED_BY: Final = {each: 1 << each | 1 << AclOperation.ALL for each in AclOperation}
_ALLOWED_BY: Final = _DENIED_BY | {
    AclOperation.DESCRIBE: _DENIED_BY[AclOperation.DESCRIBE]
    | 1 << AclOperation.READ
    | 1 << AclOperation.WRITE
    | 1 << AclOperation.DELETE
    | 1 << AclOperation.ALTER,
    AclOperation.DESCRIBE_CONFIGS: _DENIED_BY[AclOperation.DESCRIBE_CONFIGS] | 1 << AclOperation.ALTER_CONFIGS,
}
#: A name that no rule is likely to have: who may do it to that may do it to nearly all.
_ANY_NAME: Final = "hardcode"


class DefaultRule(Enum):
    """What decided where no single rule did; the values are the words of Kafka's log."""

    SUPER_USER = "SuperUser"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"


class AclDecision(NamedTuple):
    """Whether somebody may, and by which rule."""

    is_allowed: bool
    rule: StandardAcl | DefaultRule


class _Bits:
    """The operations that a principal is denied and allowed from a host."""

    __slots__ = ("allow", "deny")

    def __init__(self) -> None:
        self.allow = 0
        self.deny = 0


#: By principal, by host.
_Rules = dict[str, dict[str, _Bits]]


class _Patterns:
    """The names that a principal has rules for, of one kind of resource: each as literal, as prefix or both."""

    __slots__ = ("denies", "literal", "prefixed")

    def __init__(self) -> None:
        #: With the number of rules.
        self.literal: dict[str, int] = {}
        self.prefixed: dict[str, int] = {}
        #: How many of the rules deny.
        self.denies = 0


class _Prefixes:
    """The names of prefixed rules, such that those which a name begins with are found without trying every length.

    Each knows the longest other one that it begins with. Of those that sort before a name, the last begins with every
    prefix that the name begins with: so all of them are on its way from prefix to prefix.
    """

    __slots__ = ("_names", "_shorter")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._shorter: dict[str, str | None] = {}

    def of(self, name: str) -> Iterator[str]:
        """Those that the name begins with, the longest first."""
        place = bisect_right(self._names, name)
        found = self._names[place - 1] if place else None
        while found is not None:
            if name.startswith(found):
                yield found
            found = self._shorter[found]

    def add(self, prefix: str) -> None:
        shorter = next(self.of(prefix), None)
        place = bisect_right(self._names, prefix)
        self._names.insert(place, prefix)
        self._shorter[prefix] = shorter
        self._relink(place + 1, prefix, shorter, prefix)

    def remove(self, prefix: str) -> None:
        place = bisect_left(self._names, prefix)
        del self._names[place]
        self._relink(place, prefix, prefix, self._shorter.pop(prefix))

    def _relink(self, place: int, prefix: str, old: str | None, new: str | None) -> None:
        names, shorter = self._names, self._shorter
        while place < len(names) and names[place].startswith(prefix):
            if shorter[names[place]] == old:
                shorter[names[place]] = new
            place += 1


class _OfType:
    """The rules for one kind of resource."""

    __slots__ = ("literal", "patterns", "prefixed", "prefixes")

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.prefixes = _Prefixes()
        self.patterns: dict[str, _Patterns] = {}

    def named(self, pattern_type: int) -> dict[str, _Rules]:
        return self.prefixed if pattern_type == PatternType.PREFIXED else self.literal

    def matching(self, name: str) -> Iterator[tuple[PatternType, str, _Rules]]:
        """The rules that are about a resource."""
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            rules = self.literal.get(literal)
            if rules is not None:
                yield PatternType.LITERAL, literal, rules
        if self.prefixed:
            for prefix in self.prefixes.of(name):
                yield PatternType.PREFIXED, prefix, self.prefixed[prefix]


class AclIndex:
    """The rules that there are. One and the same rule counts once, however often it is added."""

    def __init__(self, acls: Iterable[StandardAcl] = ()) -> None:
        self._types: dict[int, _OfType] = {}
        # In the order of their names each prefix comes last among those that are there.
        for acl in sorted(acls):
            self.add(acl)

    def of_type(self, resource_type: int) -> _OfType | None:
        return self._types.get(resource_type)

    def add(self, acl: StandardAcl) -> None:
        of_type = self._types.get(acl.resource_type)
        if of_type is None:
            of_type = self._types[acl.resource_type] = _OfType()
        name = acl.resource_name
        named = of_type.named(acl.pattern_type)
        rules = named.get(name)
        if rules is None:
            rules = named[name] = {}
            if named is of_type.prefixed:
                of_type.prefixes.add(name)
        bits = rules.setdefault(acl.principal, {}).setdefault(acl.host, _Bits())
        mask = 1 << acl.operation
        is_deny = acl.permission_type == AclPermissionType.DENY
        if (bits.deny if is_deny else bits.allow) & mask:
            return
        patterns = of_type.patterns.setdefault(acl.principal, _Patterns())
        names = patterns.prefixed if named is of_type.prefixed else patterns.literal
        names[name] = names.get(name, 0) + 1
        if is_deny:
            bits.deny |= mask
            patterns.denies += 1
        else:
            bits.allow |= mask

    def remove(self, acl: StandardAcl) -> None:
        of_type = self._types.get(acl.resource_type)
        named = {} if of_type is None else of_type.named(acl.pattern_type)
        rules = named.get(acl.resource_name, {})
        bits = rules.get(acl.principal, {}).get(acl.host)
        mask = 1 << acl.operation
        is_deny = acl.permission_type == AclPermissionType.DENY
        if of_type is None or bits is None or not (bits.deny if is_deny else bits.allow) & mask:
            return
        if is_deny:
            bits.deny ^= mask
        else:
            bits.allow ^= mask
        self._forget_pattern(of_type, acl, is_deny)
        if not (bits.deny or bits.allow):
            hosts = rules[acl.principal]
            del hosts[acl.host]
            if not hosts:
                del rules[acl.principal]
            if not rules:
                del named[acl.resource_name]
                if named is of_type.prefixed:
                    of_type.prefixes.remove(acl.resource_name)

    @staticmethod
    def _forget_pattern(of_type: _OfType, acl: StandardAcl, is_deny: bool) -> None:
        patterns = of_type.patterns[acl.principal]
        names = patterns.prefixed if acl.pattern_type == PatternType.PREFIXED else patterns.literal
        names[acl.resource_name] -= 1
        patterns.denies -= is_deny
        if not names[acl.resource_name]:
            del names[acl.resource_name]
            if not (patterns.literal or patterns.prefixed):
                del of_type.patterns[acl.principal]


class StandardAuthorizer:
    """Decides by the rules of an image; `apply` brings it to the next one."""

    def __init__(self, super_users: frozenset[str] = frozenset(), allow_everyone_if_no_acl_found: bool = False) -> None:
        self.super_users = super_users
        self.allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self._acls = AclsImage()
        self._index = AclIndex()

    @property
    def acls(self) -> AclsImage:
        """The rules that it goes by."""
        return self._acls

    def apply(self, acls: AclsImage, changed: Iterable[Uuid]) -> None:
        """Go by these rules from now on. `changed`: those that came or went since the last ones, and perhaps others."""
        if acls is self._acls:
            return
        before, index = self._acls, self._index
        count = len(before)
        for acl_id in changed:
            old, new = before.get(acl_id), acls.get(acl_id)
            count += (new is not None) - (old is not None)
            if old != new:
                if old is not None:
                    index.remove(old)
                if new is not None:
                    index.add(new)
        if count != len(acls):
            # Between two images that a snapshot lies between, rules go that nobody names.
            self._index = AclIndex(acls.values())
        self._acls = acls

    def is_allowed(
        self, principal: str, host: str, operation: AclOperation, resource_type: Resource, resource_name: str
    ) -> bool:
        """The same as `decide` without the rule."""
        if principal in self.super_users:
            return True
        of_type = self._index.of_type(resource_type)
        if of_type is None:
            return self.allow_everyone_if_no_acl_found
        denied_by, allowed_by = _DENIED_BY[operation], _ALLOWED_BY[operation]
        is_allowed, is_mentioned = False, False
        for _, _, rules in of_type.matching(resource_name):
            is_mentioned = True
            for who in (principal, EVERY_USER):
                hosts = rules.get(who)
                if hosts is not None:
                    for where in (host, WILDCARD):
                        bits = hosts.get(where)
                        if bits is not None:
                            if bits.deny & denied_by:
                                return False
                            is_allowed = is_allowed or bool(bits.allow & allowed_by)
        return is_allowed or (not is_mentioned and self.allow_everyone_if_no_acl_found)

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: Resource, resource_name: str
    ) -> AclDecision:
        """Whether somebody may, and why."""
        if principal in self.super_users:
            return AclDecision(True, DefaultRule.SUPER_USER)
        of_type = self._index.of_type(resource_type)
        allowing: StandardAcl | None = None
        is_mentioned = False
        for pattern_type, name, rules in () if of_type is None else of_type.matching(resource_name):
            is_mentioned = True
            for who in (principal, EVERY_USER):
                for where in (host, WILDCARD):
                    bits = rules.get(who, {}).get(where)
                    if bits is None:
                        continue
                    resource = resource_type, name, pattern_type, who, where
                    denying = bits.deny & _DENIED_BY[operation]
                    if denying:
                        return AclDecision(False, StandardAcl(*resource, _lowest(denying), AclPermissionType.DENY))
                    found = bits.allow & _ALLOWED_BY[operation]
                    if found and allowing is None:
                        allowing = StandardAcl(*resource, _lowest(found), AclPermissionType.ALLOW)
        if allowing is not None:
            return AclDecision(True, allowing)
        if not is_mentioned and self.allow_everyone_if_no_acl_found:
            return AclDecision(True, DefaultRule.DEFAULT_ALLOW)
        return AclDecision(False, DefaultRule.DEFAULT_DENY)

    def is_allowed_by_type(self, principal: str, host: str, operation: AclOperation, resource_type: Resource) -> bool:
        """Whether there can be a resource of this kind that somebody may do it to.

        What one operation allows of another does not count here, as in Kafka.
        """
        if self.is_allowed(principal, host, operation, resource_type, _ANY_NAME):
            return True
        of_type = self._index.of_type(resource_type)
        if of_type is None:
            return False
        known = [each for who in {principal, EVERY_USER} if (each := of_type.patterns.get(who)) is not None]
        if not known:
            return False
        asked = _Asked(of_type, (principal, EVERY_USER), (host, WILDCARD), _DENIED_BY[operation])
        if not any(each.denies for each in known):
            return asked.allows_any(known)
        return asked.allows_any_not_denied(known)


class _Asked:
    """What a principal may do to names that rules mention."""

    def __init__(self, of_type: _OfType, who: tuple[str, str], where: tuple[str, str], mask: int) -> None:
        self._of_type = of_type
        self._who = who
        self._where = where
        self._mask = mask

    def _has(self, rules: _Rules | None, *, is_deny: bool) -> bool:
        if rules is None:
            return False
        for who in self._who:
            hosts = rules.get(who)
            if hosts is not None:
                for where in self._where:
                    bits = hosts.get(where)
                    if bits is not None and (bits.deny if is_deny else bits.allow) & self._mask:
                        return True
        return False

    def allows_any(self, known: list[_Patterns]) -> bool:
        literal, prefixed = self._of_type.literal, self._of_type.prefixed
        return any(
            any(self._has(literal.get(name), is_deny=False) for name in each.literal)
            or any(self._has(prefixed.get(name), is_deny=False) for name in each.prefixed)
            for each in known
        )

    def allows_any_not_denied(self, known: list[_Patterns]) -> bool:
        literal, prefixed = self._of_type.literal, self._of_type.prefixed
        if self._has(literal.get(WILDCARD), is_deny=True):
            return False
        if self._has(literal.get(WILDCARD), is_deny=False):
            return True
        for each in known:
            for name in each.literal:
                rules = literal.get(name)
                is_open = self._has(rules, is_deny=False) and not self._has(rules, is_deny=True)
                if is_open and not self._is_denied_by_prefix(name):
                    return True
            for name in each.prefixed:
                if self._has(prefixed.get(name), is_deny=False) and not self._is_denied_by_prefix(name):
                    return True
        return False

    def _is_denied_by_prefix(self, name: str) -> bool:
        prefixed = self._of_type.prefixed
        return any(self._has(prefixed[each], is_deny=True) for each in self._of_type.prefixes.of(name))


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`, which are separated by semicolons."""
    found = frozenset(each for part in text.split(";") if (each := part.strip()))
    for each in sorted(found):
        if not is_principal(each):
            raise SettingsError(
                f"{each!r} is no principal: write type and name, as in User:ann, separated by semicolons"
            )
    return found


def is_principal(text: str) -> bool:
    """Whether it is a type and a name: `User:ann`."""
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)
