"""A produce request that is dealt with in its frame, because all in it is ordinary.

The kernel appends and answers; here is what it is told, and what is left: waiting until the records are committed, and
going on by the rules where the disk refused a batch.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.broker._kernel.produce import OrdinaryProduce, append_ordinary
from barnabas.broker.context import RequestContext, context_of_frame
from barnabas.broker.data.producing import OrdinaryAppend, Produce
from barnabas.broker.data.waiting_produce import WaitingProduce
from barnabas.broker.services import Services
from barnabas.metadata.authorizer import AclOperation, AllowEverything, Resource
from barnabas.net import Connection
from barnabas.replication.leader_state import LeaderState
from barnabas.storage.log import NO_TIMESTAMP_MS, Appended
from barnabas.wire.apis import ApiKey
from barnabas.wire.compiler import Buffer
from barnabas.wire.frames import SIZE_BYTES, frame_parts
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.produce import ProduceRequest, ProduceResponse

_ALL: Final = -1
_CORRELATION_ID_END: Final = SIZE_BYTES + 4
_FIRST_FLEXIBLE: Final = 9
#: The answer to those who want none.
NO_ANSWER: Final = b""


def answer_ordinary(
    services: Services, connection: Connection, version: int, frame: bytearray
) -> bytes | Awaitable[bytes] | None:
    """The frame of the answer, or `NO_ANSWER`; None, and nothing has happened, if anything in it is not ordinary."""

    def may_write(topic_key: str | Uuid) -> bool:
        name = topic_key
        if isinstance(name, Uuid):
            name = services.metadata.image.topic_names.get(name, "")
        if not name:
            return False
        context = context_of_frame(ApiKey.PRODUCE, version, connection, frame)
        # Who may not is told, and written of, by the rules.
        return services.authorizer.is_allowed(context, AclOperation.WRITE, Resource.TOPIC, name, log_if_denied=False)

    now_ms = services.runtime.clock.now_ms()
    asked = None if type(services.authorizer) is AllowEverything else may_write
    ordinary = append_ordinary(frame, version, services.replica_manager.index, asked, now_ms)
    if ordinary is None:
        return None
    if ordinary.failure is not None:
        context = context_of_frame(ApiKey.PRODUCE, version, connection, frame)
        return _go_on(services, context, connection, frame, ordinary, ordinary.failure)
    if not ordinary.acks:
        return NO_ANSWER
    answer = ordinary.answer()
    if ordinary.acks == _ALL:
        uncommitted = ordinary.uncommitted()
        if uncommitted:
            context = context_of_frame(ApiKey.PRODUCE, version, connection, frame)
            finish = partial(_committed, services, context, connection, answer, ordinary.leaders)
            return WaitingProduce(services, connection, finish).start(uncommitted, ordinary.timeout_ms)
    return answer


def _committed(
    services: Services,
    context: RequestContext,
    connection: Connection,
    answer: bytes,
    leaders: list[LeaderState],
    outcomes: dict[LeaderState, ErrorCode],
) -> bytes:
    """The answer as it was made, unless some of it could not be committed."""
    if not any(outcomes.values()):
        return answer
    start = _CORRELATION_ID_END + (context.version >= _FIRST_FLEXIBLE)
    response = ProduceResponse.decode(answer[start:], context.version)
    produce = Produce(services, context, ProduceRequest(acks=_ALL, timeout_ms=0, topic_data=[]), connection)
    return _framed(context, produce.told(response, leaders, outcomes))


def _go_on(
    services: Services,
    context: RequestContext,
    connection: Connection,
    frame: bytearray,
    ordinary: OrdinaryProduce,
    failure: OSError,
) -> bytes | Awaitable[bytes]:
    """The answer to a request of which the disk refused a batch: what follows it is dealt with by the rules."""
    view = memoryview(frame)
    header_version = 2 if context.version >= _FIRST_FLEXIBLE else 1
    _, start = RequestHeader.decode_prefix(view, header_version)
    request, _ = ProduceRequest.decode_prefix(view, context.version, start)
    appended = [
        OrdinaryAppend(leader, Appended(first_offset, end_offset - 1, NO_TIMESTAMP_MS, leader.log.log_start_offset))
        for leader, (first_offset, end_offset) in zip(ordinary.leaders, ordinary.offsets, strict=False)
    ]
    appended.append(OrdinaryAppend(ordinary.leaders[len(appended)], failure))
    outcome = Produce(services, context, request, connection).run_on(appended)
    if outcome is None or isinstance(outcome, ProduceResponse):
        return _framed(context, outcome)
    return _framed_later(context, outcome)


async def _framed_later(context: RequestContext, outcome: Awaitable[ProduceResponse | None]) -> bytes:
    return _framed(context, await outcome)


def _framed(context: RequestContext, response: ProduceResponse | None) -> bytes:
    if response is None:
        return NO_ANSWER
    header = context.correlation_id.to_bytes(4, "big", signed=True) + b"\0" * (context.version >= _FIRST_FLEXIBLE)
    parts: list[Buffer] = [header, *response.encode_parts(context.version)]
    return b"".join(frame_parts(parts))
