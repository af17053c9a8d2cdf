"""Which quota is whose: Kafka's order of looking, and who shares what is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.base.foreign_text import told_apart
from barnabas.metadata.access_images import ClientQuotaEntity, ClientQuotasImage
from barnabas.metadata.client_quotas import CLIENT_ID, USER

#: For how many clients it is remembered what was found: client ids are anybody's to choose.
_MOST_REMEMBERED: Final = 10_000

#: Names of a user and of a client id. The empty one is left out of what is measured together.
Owner = tuple[str, str]


class QuotaLimit(NamedTuple):
    """A bound, and those who are measured together against it: a user with all client ids, one with one of them, or a
    client id of whomever."""

    owner: Owner
    bound: float


class QuotaLimits:
    """The quotas of one name, of one image.

    >>> quotas = ClientQuotasImage({
    ...     ClientQuotaEntity(((USER, "ann"),)): {"producer_byte_rate": 1000.0},
    ...     ClientQuotaEntity(((CLIENT_ID, None),)): {"producer_byte_rate": 10.0},
    ... })
    >>> limits = QuotaLimits(quotas, "producer_byte_rate")
    >>> limits.of("ann", "shop"), limits.of("bob", "shop")
    (QuotaLimit(owner=('ann', ''), bound=1000.0), QuotaLimit(owner=('', 'shop'), bound=10.0))
    """

    def __init__(self, quotas: ClientQuotasImage, key: str) -> None:
        self._quotas = quotas
        self._key = key
        self.is_empty = not quotas.has_any(key)
        self._found: dict[Owner, QuotaLimit | None] = {}

    def of(self, user: str, client_id: str) -> QuotaLimit | None:
        """What holds for a client, or None."""
        if self.is_empty:
            return None
        client = (user, told_apart(client_id))
        try:
            return self._found[client]
        except KeyError:
            if len(self._found) >= _MOST_REMEMBERED:
                self._found.clear()
            found = self._found[client] = self._find(user, client_id)
            return found

    def bound_of(self, owner: Owner) -> float | None:
        """Of one that was found once: None if it has no such quota any more, or shares one with others."""
        limit = self.of(*owner)
        return limit.bound if limit is not None and limit.owner == owner else None

    def _find(self, user: str, client_id: str) -> QuotaLimit | None:
        for entity, owner in _candidates(user, client_id):
            bound = self._quotas.get(entity, {}).get(self._key)
            if bound is not None:
                # Of a client that calls itself by another long name in every request, little is kept.
                return QuotaLimit((owner[0], told_apart(owner[1])), bound)
        return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[ClientQuotaEntity, Owner]]:
    """Whose quota may hold for a client, the closest first. As in Kafka, who has no client id has none by client id,
    not even the default one."""
    for named in (user, None):
        if client_id:
            yield _entity((USER, named), (CLIENT_ID, client_id)), (user, client_id)
            yield _entity((USER, named), (CLIENT_ID, None)), (user, client_id)
        yield _entity((USER, named)), (user, "")
    if client_id:
        yield _entity((CLIENT_ID, client_id)), ("", client_id)
        yield _entity((CLIENT_ID, None)), ("", client_id)


def _entity(*names: tuple[str, str | None]) -> ClientQuotaEntity:
    return ClientQuotaEntity(names)
