"""Quotas of users, client ids and addresses: what may be changed about them, and what is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import IntEnum
from ipaddress import ip_address
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.access_images import ClientQuotaEntity, ClientQuotasImage
from barnabas.metadata.controller_result import ControllerResult
from barnabas.wire.messages import alter_client_quotas as alter
from barnabas.wire.messages import describe_client_quotas as describe
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from barnabas.wire.stored.cluster_metadata import ClientQuotaRecord, EntityData, MetadataRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: The largest value of each, and Kafka's name of its type where it must be a whole number.
_OF_USERS: Final[Mapping[str, tuple[float, str | None]]] = {
    PRODUCER_BYTE_RATE: (float(2**63 - 1), "a LONG"),
    CONSUMER_BYTE_RATE: (float(2**63 - 1), "a LONG"),
    REQUEST_PERCENTAGE: (math.inf, None),
    CONTROLLER_MUTATION_RATE: (math.inf, None),
}
_OF_ADDRESSES: Final[Mapping[str, tuple[float, str | None]]] = {CONNECTION_CREATION_RATE: (float(2**31 - 1), "an INT")}
#: A fraction up to this is taken for a number that was whole.
_EPSILON: Final = 1e-6

IsKnownHost = Callable[[str], bool]


def is_address(name: str) -> bool:
    """Whether it says by itself which address it is."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def hosts_named(request: AlterClientQuotasRequest) -> list[str]:
    """What must be known to be an address, or to stand for one, before it is decided."""
    named = (each for entry in request.entries for each in entry.entity if each.entity_type == IP)
    return [each.entity_name for each in named if each.entity_name]


def alter_client_quotas(
    image: ClientQuotasImage, request: AlterClientQuotasRequest, is_known_host: IsKnownHost = is_address
) -> ControllerResult[AlterClientQuotasResponse]:
    """Quotas are set and removed. Entities that are refused do not keep others from being changed.

    As in Kafka, an entity that is named twice is changed by its first entry, and told of the second.
    """
    records: list[MetadataRecord] = []
    problems: dict[ClientQuotaEntity, str | None] = {}
    for entry in request.entries:
        names = {each.entity_type: each.entity_name for each in entry.entity}
        entity = ClientQuotaEntity(tuple(names.items()))
        wanted = {each.key: None if each.remove else each.value for each in entry.ops}
        if entity in problems or len(wanted) < len(entry.ops):
            problems[entity] = f"Ignoring duplicate entity {_as_java(names)}"
            continue
        problem = problems[entity] = _problem(names, wanted, is_known_host)
        if problem is None:
            records += _records(entity, image.get(entity, {}), wanted)
    results = [_result(entity, problem) for entity, problem in problems.items()]
    return ControllerResult(AlterClientQuotasResponse(entries=results), [] if request.validate_only else records)


def quotas_refused(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    """Nothing of a request was done, for the same reason."""
    return AlterClientQuotasResponse(
        entries=[
            alter.EntryResult(error_code=code, error_message=code.text, entity=entry.entity)
            for entry in request.entries
        ]
    )


def _result(entity: ClientQuotaEntity, problem: str | None) -> alter.EntryResult:
    return alter.EntryResult(
        error_code=ErrorCode.NONE if problem is None else ErrorCode.INVALID_REQUEST,
        error_message=problem,
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names],
    )


def _records(
    entity: ClientQuotaEntity, now: Mapping[str, float], wanted: Mapping[str, float | None]
) -> list[ClientQuotaRecord]:
    """What changes, if anything does."""
    named = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names]
    return [
        ClientQuotaRecord(entity=named, key=key, value=0.0 if value is None else value, remove=value is None)
        for key, value in wanted.items()
        if now.get(key) != value
    ]


def _problem(
    names: Mapping[str, str | None], wanted: Mapping[str, float | None], is_known_host: IsKnownHost
) -> str | None:
    """In Kafka's words."""
    for kind, name in names.items():
        if kind not in _TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if not names:
        return "Invalid empty client quota entity"
    if IP in names and len(names) > 1:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    address = names.get(IP)
    if address is not None and not is_known_host(address):
        return f"{address} is not a valid IP or resolvable host."
    allowed = _OF_ADDRESSES if IP in names else _OF_USERS
    problems = (_problem_of(allowed, key, value) for key, value in wanted.items() if value is not None)
    return next((problem for problem in problems if problem is not None), None)


def _problem_of(allowed: Mapping[str, tuple[float, str | None]], key: str, value: float) -> str | None:
    if key not in allowed:
        return f"Invalid configuration key {key}"
    if not value > 0:  # nor is it, if it is no number
        return f"Quota {key} must be greater than 0"
    largest, integral = allowed[key]
    if integral is not None:
        if value > largest:
            return f"Proposed value for {key} is too large for {integral}."
        if value % 1.0 > _EPSILON:
            return f"{key} cannot be a fractional value."
    return None


def _as_java(names: Mapping[str, str | None]) -> str:
    shown = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names.items())
    return f"ClientQuotaEntity(entries={{{shown}}})"


# Telling


class MatchType(IntEnum):
    """How a part of an entity is looked for; the numbers are the protocol's."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class ClientQuotaFilter:
    """Which entities a request means. Raises `BrokerError` if it makes no sense, in Kafka's words."""

    def __init__(self, request: DescribeClientQuotasRequest) -> None:
        self._is_strict = request.strict
        self._exact: dict[str, str | None] = {}
        self._any: set[str] = set()
        for component in request.components:
            self._add(component)
        kinds = self._exact.keys() | self._any
        if IP in kinds and len(kinds) > 1:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "Invalid entity filter component combination. IP filter component should not be used with "
                "user or clientId filter component.",
            )

    def _add(self, component: describe.ComponentData) -> None:
        kind, match = component.entity_type, component.match
        if not kind:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in self._exact or kind in self._any:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in _TYPES:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in list(MatchType):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        how = MatchType(component.match_type)
        if how is MatchType.EXACT:
            if match is None:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
            self._exact[kind] = match
            return
        if match is not None:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Request specified MATCH_TYPE_{how.name}, but also specified a match string.",
            )
        if how is MatchType.DEFAULT:
            self._exact[kind] = None
        else:
            self._any.add(kind)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        names = dict(entity.names)
        if self._is_strict and len(names) != len(self._exact) + len(self._any):
            return False
        return self._any <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self._exact.items()
        )


def described(entity: ClientQuotaEntity, quotas: Mapping[str, float]) -> describe.EntryData:
    return describe.EntryData(
        entity=[describe.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names],
        values=[describe.ValueData(key=key, value=value) for key, value in quotas.items()],
    )
