"""Quotas: how much users, client ids and addresses may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.client.admin.driver import NOT_DONE, Part, RequestSpec, broker_error, raise_if_error
from barnabas.client.admin.routes import AnyNode, ControllerStrategy
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


class QuotaName(Enum):
    """Names that are no names: DEFAULT is for all without a quota of their own, ANY (in filters) for all names."""

    DEFAULT = "default"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """Whom a quota is for, by user, client id or address, or by user and client id together."""

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None

    def __str__(self) -> str:
        named = (f"{kind} {name if isinstance(name, str) else f'({name.value})'}" for kind, name in _parts(self))
        return ", ".join(named) or "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """Which quotas are meant. What is None may be anything; with `is_strict`, it must not be part of the entity."""

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None
    is_strict: bool = False


class QuotaCalls(Part):
    """Calls about quotas, from Kafka 2.6 on."""

    async def describe_client_quotas(
        self, quota_filter: QuotaFilter | None = None, *, timeout: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of each entity that matches, such as `{"producer_byte_rate": 1024.0}`; of all without a filter."""
        call = await self._driver.begin("describe_client_quotas", timeout)
        wanted = quota_filter or QuotaFilter()
        request = DescribeClientQuotasRequest(
            components=[_component(kind, name) for kind, name in _parts(wanted)], strict=wanted.is_strict
        )

        def read(response: DescribeClientQuotasResponse) -> dict[QuotaEntity, dict[str, float]]:
            raise_if_error(response.error_code, response.error_message)
            return {
                _entity((each.entity_type, each.entity_name) for each in entry.entity): {
                    each.key: each.value for each in entry.values
                }
                for entry in response.entries or ()
            }

        return await self._driver.ask_one(call, AnyNode(), DescribeClientQuotasRequest, lambda spec: request, read)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set quotas by name, or remove those whose value is None. INVALID_REQUEST for what cannot have that quota."""
        call = await self._driver.begin("alter_client_quotas", timeout)
        if any(name is QuotaName.ANY for entity in changes for _, name in _parts(entity)):
            raise ValueError("a quota is for a name or for DEFAULT; ANY is for filters")

        def build(spec: RequestSpec[QuotaEntity]) -> AlterClientQuotasRequest:
            return AlterClientQuotasRequest(
                entries=[
                    EntryData(
                        entity=[
                            EntityData(entity_type=kind, entity_name=name if isinstance(name, str) else None)
                            for kind, name in _parts(entity)
                        ],
                        ops=[
                            OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                            for key, value in changes[entity].items()
                        ],
                    )
                    for entity in spec.keys
                ],
                validate_only=validate_only,
            )

        def read(
            spec: RequestSpec[QuotaEntity], response: AlterClientQuotasResponse
        ) -> Iterable[tuple[QuotaEntity, Exception | None]]:
            for entry in response.entries:
                entity = _entity((each.entity_type, each.entity_name) for each in entry.entity)
                yield entity, broker_error(entry.error_code, entry.error_message) if entry.error_code else None

        await self._driver.ask_each(
            call, changes, ControllerStrategy(), AlterClientQuotasRequest, build, read, may_pass=NOT_DONE
        )


def _parts(entity: QuotaEntity | QuotaFilter) -> list[tuple[str, str | QuotaName]]:
    named = (("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip))
    return [(kind, name) for kind, name in named if name is not None]


def _component(kind: str, name: str | QuotaName) -> ComponentData:
    if isinstance(name, str):
        return ComponentData(entity_type=kind, match_type=_EXACT, match=name)
    return ComponentData(entity_type=kind, match_type=_DEFAULT if name is QuotaName.DEFAULT else _ANY, match=None)


def _entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    names = {kind: QuotaName.DEFAULT if name is None else name for kind, name in parts}
    return QuotaEntity(user=names.get("user"), client_id=names.get("client-id"), ip=names.get("ip"))
