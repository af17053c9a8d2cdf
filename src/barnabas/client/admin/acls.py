"""Access rules: who may do what to which resource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from barnabas.client.admin.driver import NOT_DONE, Part, RequestSpec, broker_error, raise_if_error, settled
from barnabas.client.admin.routes import AnyNode
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

#: What a broker says instead of operations when it was not asked for them, or does not know.
_NO_OPERATIONS: Final = -(2**31)


class AclOperation(IntEnum):
    """What somebody may do."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        return cls.UNKNOWN


class AclPermission(IntEnum):
    """Whether a rule allows or forbids. One that forbids beats all that allow."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> AclPermission:
        return cls.UNKNOWN


class ResourceType(IntEnum):
    """What kind of thing a rule is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


class PatternType(IntEnum):
    """How the name in a rule is meant. MATCH is for filters: all rules that touch a name, also by prefix or `*`."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One access rule. The name of the only resource of type CLUSTER is `kafka-cluster`."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType = PatternType.LITERAL
    principal: str
    host: str = "*"
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal} from {self.host} to {self.operation.name} "
            f"{self.resource_type.name} {self.resource_name} ({self.pattern_type.name})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which rules are meant; without arguments, all."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


def authorized_operations(bits: int) -> frozenset[AclOperation] | None:
    """What a mask of operations says; None if the broker does not tell."""
    if bits == _NO_OPERATIONS:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


class AclCalls(Part):
    """Calls about access rules. Without an authorizer, a cluster answers SECURITY_DISABLED."""

    async def describe_acls(
        self, acl_filter: AclFilter | None = None, *, timeout: float | None = None
    ) -> tuple[Acl, ...]:
        """The rules that match a filter; all of them without one."""
        call = await self._driver.begin("describe_acls", timeout)
        wanted = acl_filter or AclFilter()
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )

        def read(response: DescribeAclsResponse) -> tuple[Acl, ...]:
            raise_if_error(response.error_code, response.error_message)
            return tuple(
                Acl(
                    resource_type=ResourceType(resource.resource_type),
                    resource_name=resource.resource_name,
                    pattern_type=PatternType(resource.pattern_type),
                    principal=each.principal,
                    host=each.host,
                    operation=AclOperation(each.operation),
                    permission=AclPermission(each.permission_type),
                )
                for resource in response.resources
                for each in resource.acls
            )

        return await self._driver.ask_one(call, AnyNode(), DescribeAclsRequest, lambda spec: request, read)

    async def create_acls(self, acls: Iterable[Acl], *, timeout: float | None = None) -> None:
        """Add rules; one that is there already is no error. Raises `BrokerError`, or `KeyedError` by rule."""
        call = await self._driver.begin("create_acls", timeout)
        given = list(acls)
        for acl in given:
            _check(acl)

        def build(spec: RequestSpec[Acl]) -> CreateAclsRequest:
            return CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        resource_pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in spec.keys
                ]
            )

        def read(spec: RequestSpec[Acl], response: CreateAclsResponse) -> Iterable[tuple[Acl, Exception | None]]:
            for acl, result in zip(spec.keys, response.results, strict=False):
                yield acl, broker_error(result.error_code, result.error_message) if result.error_code else None

        await self._driver.ask_each(call, given, AnyNode(), CreateAclsRequest, build, read, may_pass=NOT_DONE)

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout: float | None = None
    ) -> dict[AclFilter, tuple[Acl, ...]]:
        """Remove the rules that match filters, and return by filter which ones those were."""
        call = await self._driver.begin("delete_acls", timeout)

        def build(spec: RequestSpec[AclFilter]) -> DeleteAclsRequest:
            return DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=each.resource_type,
                        resource_name_filter=each.resource_name,
                        pattern_type_filter=each.pattern_type,
                        principal_filter=each.principal,
                        host_filter=each.host,
                        operation=each.operation,
                        permission_type=each.permission,
                    )
                    for each in spec.keys
                ]
            )

        def read(
            spec: RequestSpec[AclFilter], response: DeleteAclsResponse
        ) -> Iterable[tuple[AclFilter, tuple[Acl, ...] | Exception]]:
            for each, result in zip(spec.keys, response.filter_results, strict=False):
                yield each, _deleted(result)

        return await self._driver.ask_each(call, filters, AnyNode(), DeleteAclsRequest, build, read, may_pass=NOT_DONE)


def _check(acl: Acl) -> None:
    """A broker has no good answer to a rule that is a filter."""
    parts = (acl.resource_type, acl.pattern_type, acl.operation, acl.permission)
    for part in parts:
        if part.name in ("UNKNOWN", "ANY", "MATCH"):
            raise ValueError(f"{type(part).__name__}.{part.name} is for filters, not for a rule: {acl}")


def _deleted(result: DeleteAclsFilterResult) -> tuple[Acl, ...] | Exception:
    if result.error_code:
        return broker_error(result.error_code, result.error_message)
    matches = [(_acl(each), each) for each in result.matching_acls]
    failed = {acl: broker_error(each.error_code, each.error_message) for acl, each in matches if each.error_code}
    try:
        settled([acl for acl, _ in matches], {acl: acl for acl, _ in matches if acl not in failed}, dict(failed))
    except Exception as failure:
        return failure
    return tuple(acl for acl, _ in matches)


def _acl(each: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        resource_type=ResourceType(each.resource_type),
        resource_name=each.resource_name,
        pattern_type=PatternType(each.pattern_type),
        principal=each.principal,
        host=each.host,
        operation=AclOperation(each.operation),
        permission=AclPermission(each.permission_type),
    )
