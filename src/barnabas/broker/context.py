"""Who asks, and whether they may: what every handler gets with its request.

The hooks for authorization and quotas are called from the first day and allow everything, so that the day they are
built no handler must change.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response

if TYPE_CHECKING:
    from barnabas.net import Connection

CLUSTER_NAME: Final = "kafka-cluster"
#: What a response says when operations were not asked for.
NOT_ASKED: Final = -2147483648
#: With SECURITY_DISABLED, as Kafka puts it: tools show it, and some look for it.
NO_AUTHORIZER: Final = "No Authorizer is configured."


class Operation(IntEnum):
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


class Resource(IntEnum):
    """What they want to do it to; the numbers are the protocol's."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


#: What can be done to each kind of resource at all.
OPERATIONS: Final = {
    Resource.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


class RequestContext(NamedTuple):
    """One request's circumstances. A tuple, since one is made for every request."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    connection: Connection

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def client_host(self) -> str:
        return self.connection.peer_host


class Authorizer(Protocol):
    """Decides who may do what."""

    def is_allowed(
        self, context: RequestContext, operation: Operation, resource_type: Resource, resource_name: str
    ) -> bool: ...


class AllowEverything:
    """The authorizer of a node that has none."""

    def is_allowed(
        self, context: RequestContext, operation: Operation, resource_type: Resource, resource_name: str
    ) -> bool:
        return True


def authorized_operations(
    authorizer: Authorizer, context: RequestContext, resource_type: Resource, resource_name: str
) -> int:
    """All that the principal may do to a resource, as the bits that responses carry."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource_type]
        if authorizer.is_allowed(context, operation, resource_type, resource_name)
    )


class Quotas(Protocol):
    """Decides who must slow down."""

    def throttle_ms(self, context: RequestContext, request: Request, response: Response) -> int:
        """How long the connection stays unread after this answer; told to the client in the answer."""
        ...


class NoQuotas:
    """The quotas of a node that has none."""

    def throttle_ms(self, context: RequestContext, request: Request, response: Response) -> int:
        return 0
