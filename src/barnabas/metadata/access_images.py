"""Who may do what, and how much: ACLs, SCRAM credentials, delegation tokens, client quotas.

They come with the log of a cluster that has them, and snapshots write them again. Each part is a mapping whose next
version shares structure with it, so a hundred thousand of them cost a change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from immutables import Map

from barnabas.base.ids import Uuid
from barnabas.base.persistent_map import PersistentMap


class StandardAcl(NamedTuple):
    """One rule; the enums by the protocol's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclsImage(PersistentMap[Uuid, StandardAcl]):
    """All rules, by their ids, and which there are: no rule is there twice."""

    __slots__ = ("_existing",)

    _existing: Map[StandardAcl, Uuid]

    def __init__(self, items: Mapping[Uuid, StandardAcl] | Iterable[tuple[Uuid, StandardAcl]] = ()) -> None:
        super().__init__(items)
        self._existing = Map({acl: acl_id for acl_id, acl in self.items()})

    def has(self, acl: StandardAcl) -> bool:
        return acl in self._existing

    def set(self, key: Uuid, value: StandardAcl) -> Self:
        before, existing = self.get(key), self._existing
        if before is not None and existing.get(before) == key:
            existing = existing.delete(before)
        changed = super().set(key, value)
        changed._existing = existing.set(value, key)
        return changed

    def delete(self, key: Uuid) -> Self:
        acl = self.get(key)
        if acl is None:
            return self
        changed = super().delete(key)
        changed._existing = self._existing.delete(acl) if self._existing.get(acl) == key else self._existing
        return changed


class ScramUser(NamedTuple):
    """A user has one credential for each mechanism: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramCredentialData:
    """What a password was made into; the keys are secrets, so they are not shown."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredentialData(iterations={self.iterations})"


class ScramImage(PersistentMap[ScramUser, ScramCredentialData]):
    """The credentials of all users."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DelegationTokenData:
    """A token without its secret, which is derived from its id. Principals as text, `User:ann`."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


class DelegationTokenImage(PersistentMap[str, DelegationTokenData]):
    """All tokens, by their ids."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class ClientQuotaEntity:
    """Whose quota it is: a type (`user`, `client-id`, `ip`) and a name, or two of these.

    No name stands for all who have no quota of their own. The order is that in which it was written, and says nothing.
    """

    names: tuple[tuple[str, str | None], ...]

    def __eq__(self, other: object) -> bool:
        return (
            frozenset(self.names) == frozenset(other.names) if isinstance(other, ClientQuotaEntity) else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(frozenset(self.names))


class ClientQuotasImage(PersistentMap[ClientQuotaEntity, Mapping[str, float]]):
    """The quotas of each entity, by their names; and how many there are of each name, so that who asks for one that
    nobody has need not look."""

    __slots__ = ("_counts",)

    _counts: Map[str, int]

    def __init__(
        self,
        items: Mapping[ClientQuotaEntity, Mapping[str, float]]
        | Iterable[tuple[ClientQuotaEntity, Mapping[str, float]]] = (),
    ) -> None:
        super().__init__(items)
        self._counts = Map(Counter(key for quotas in self.values() for key in quotas))

    def has_any(self, key: str) -> bool:
        """Whether anybody has a quota of this name."""
        return key in self._counts

    def set(self, key: ClientQuotaEntity, value: Mapping[str, float]) -> Self:
        changed = super().set(key, value)
        changed._counts = _counted(self._counts, self.get(key, {}), value)
        return changed

    def delete(self, key: ClientQuotaEntity) -> Self:
        changed = super().delete(key)
        changed._counts = _counted(self._counts, self.get(key, {}), {})
        return changed


def _counted(counts: Map[str, int], before: Iterable[str], after: Iterable[str]) -> Map[str, int]:
    for change, keys in ((-1, before), (1, after)):
        for key in keys:
            count = counts.get(key, 0) + change
            counts = counts.set(key, count) if count else counts.delete(key)
    return counts
