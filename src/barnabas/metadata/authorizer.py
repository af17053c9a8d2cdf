"""Who asks, and whether they may.

The hooks are called from the first day and allow everything, so that the day an authorizer is built no handler and no
decision of the controller must change.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

#: The one resource of the kind CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"


class AclOperation(IntEnum):
    """What somebody wants to do; the numbers are the protocol's."""

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


class Resource(IntEnum):
    """What they want to do it to; the numbers are the protocol's."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


#: What can be done to each kind of resource at all.
OPERATIONS: Final = {
    Resource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


class AuthorizableRequestContext(Protocol):
    """Who asks: values that a request forwarded to another node takes along."""

    @property
    def principal(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def client_id(self) -> str | None: ...


class Authorizer(Protocol):
    """Decides who may do what."""

    def is_allowed(
        self, caller: AuthorizableRequestContext, operation: AclOperation, resource_type: Resource, resource_name: str
    ) -> bool: ...


class AllowEverything:
    """The authorizer of a node that has none."""

    def is_allowed(
        self, caller: AuthorizableRequestContext, operation: AclOperation, resource_type: Resource, resource_name: str
    ) -> bool:
        return True


def authorized_operations(
    authorizer: Authorizer, caller: AuthorizableRequestContext, resource_type: Resource, resource_name: str
) -> int:
    """All that the principal may do to a resource, as the bits that responses carry."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource_type]
        if authorizer.is_allowed(caller, operation, resource_type, resource_name)
    )
