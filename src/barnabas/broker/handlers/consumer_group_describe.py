"""ConsumerGroupDescribe (69): groups of the new protocol (KIP-848), which is not built; see ConsumerGroupHeartbeat.

Admin clients ask here first, and take the refusal for the word to ask with DescribeGroups.
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, each_of, once_each
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

API_KEY = ApiKey.CONSUMER_GROUP_DESCRIBE


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    group_ids = yield from once_each(request.group_ids)
    return ConsumerGroupDescribeResponse(groups=(yield from each_of(group_ids, _refused)))


def _refused(group_id: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
