"""ConsumerGroupHeartbeat (68): a member of a group of the new protocol (KIP-848), which is not built.

It is advertised and refused, as by a Kafka whose group.version is 0: a client that finds it missing waits for ever
(librdkafka), one that is refused says so.
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    # No words of ours with it: clients have their own for this code, which tell what to change.
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, member_epoch=0, heartbeat_interval_ms=0
    )
