"""Who asks, and whether they may: what every handler and every decision of the controller calls.

`AclOperation` and `Resource` are the words of ACLs. An `Authorizer` decides; `standard_authorizer` is Kafka's, by the
rules in the metadata log. `AllowEverything` stands where none is set.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

#: The one resource of the kind CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"


class AclOperation(IntEnum):
    """What somebody wants to do; the numbers are the protocol's. ALL is for rules alone."""

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


class Resource(IntEnum):
    """What they want to do it to; the numbers are the protocol's."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPermissionType(IntEnum):
    """What a rule does; the numbers are the protocol's. One that denies beats all that allow."""

    DENY = 2
    ALLOW = 3


class PatternType(IntEnum):
    """How the name in a rule is meant; the numbers are the protocol's. ANY and MATCH are for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


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
    Resource.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    Resource.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    Resource.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


class AuthorizableRequestContext(Protocol):
    """Who asks: values that a request forwarded to another node takes along."""

    @property
    def principal(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def is_token_authenticated(self) -> bool:
        """Whether it has shown who it is by a delegation token."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether the node asks itself, within its process: nobody is asked then."""
        ...


class Authorizer(Protocol):
    """Decides who may do what."""

    @property
    def keeps_acls(self) -> bool:
        """Whether it goes by the rules in the metadata log, so that requests for them make sense."""
        ...

    def is_allowed(
        self,
        caller: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: Resource,
        resource_name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
    ) -> bool:
        """`log_if_denied` is False where nobody asked for this very resource, or another permission may do as well."""
        ...

    def is_allowed_by_type(
        self, caller: AuthorizableRequestContext, operation: AclOperation, resource_type: Resource
    ) -> bool:
        """Whether there can be a resource of this kind that the caller may do it to."""
        ...


class AllowEverything:
    """The authorizer of a node that has none."""

    keeps_acls = False

    def is_allowed(
        self,
        caller: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: Resource,
        resource_name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
    ) -> bool:
        return True

    def is_allowed_by_type(
        self, caller: AuthorizableRequestContext, operation: AclOperation, resource_type: Resource
    ) -> bool:
        return True


def authorized_operations(
    authorizer: Authorizer, caller: AuthorizableRequestContext, resource_type: Resource, resource_name: str
) -> int:
    """All that the principal may do to a resource, as the bits that responses carry."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource_type]
        if authorizer.is_allowed(
            caller, operation, resource_type, resource_name, log_if_denied=False, log_if_allowed=False
        )
    )


def cluster_authorized_operations(authorizer: Authorizer, caller: AuthorizableRequestContext) -> int:
    """All that the principal may do to the cluster; nothing is told to those who may not describe it."""
    if not authorizer.is_allowed(caller, AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(authorizer, caller, Resource.CLUSTER, CLUSTER_NAME)
