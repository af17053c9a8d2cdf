"""From a frame to a handler and back: versions, decoding, errors, encoding.

Each connection has one request at a time here, so answers keep the order of the questions. A handler that knows its
answer at once returns it; one that must wait returns an awaitable, and the connection stays silent until it is done. A
handler whose work grows with what is asked is a generator, and yields after each item (`turns`): so are the decoding of
all but small requests, and the encoding of answers that took longer.

Handlers see values: who asks, and what. The few that wait for others, and are given up when their client is gone, name
a fourth parameter, `connection`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from struct import Struct
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, RemoteProtocolError, known
from barnabas.base.log_context import logger
from barnabas.broker._kernel.credits import Allowance
from barnabas.broker.context import NoQuotas, Quotas, RequestContext
from barnabas.broker.error_responses import error_response
from barnabas.broker.services import CommonServices
from barnabas.broker.told_errors import told_errors
from barnabas.broker.turns import CROWDS, Steps, Turns, driven, in_crowd, room_for
from barnabas.net import Connection
from barnabas.wire.apis import Api, ApiKey, api
from barnabas.wire.compiler import Buffer
from barnabas.wire.decoder_source import MAX_ELEMENTS
from barnabas.wire.frames import SIZE_BYTES, frame_parts
from barnabas.wire.headers import RequestHeader
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.source import ELEMENTS_PER_STEP

_log = logger("barnabas.broker")

Answer = Response | None
#: What a handler returns; in its place a generator may return all but another generator.
Handled = Answer | Awaitable[Answer] | Steps[Answer | Awaitable[Answer]]
#: Of services, context, request and connection.
Handler = Callable[[Any, RequestContext, Any, Connection], Handled]
#: Answers a request in its frame: the frame of the answer, empty if there is none; None if it takes a handler.
FrameHandler = Callable[[Any, Connection, int, bytearray], bytes | Awaitable[bytes] | None]
#: Sees each request before its handler; what it returns, unless that is None, takes the handler's place.
Interceptor = Callable[[RequestContext, Request], Answer | Awaitable[Answer]]

_CORRELATION_ID_BYTES: Final = 4
_FETCH: Final = int(ApiKey.FETCH)
#: Served before others when the loop is busy: a late answer makes others take their sender, or us, for dead.
URGENT_KEYS: Final = frozenset(
    {
        ApiKey.HEARTBEAT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.API_VERSIONS,
    }
)
#: librdkafka looks for Produce 0 before it compresses, so it is advertised though nobody may send it.
_ADVERTISED_LOWEST: Final = {ApiKey.PRODUCE: 0}

_KEY_AND_VERSION: Final = Struct(">hh")
#: Key, version and correlation id, which every header has.
_SHORTEST_BYTES: Final = 8
#: What is too short to ask for anything: no API has this key.
_NO_REQUEST: Final = (-1, -1)
#: Frames up to this size are decoded at once: they hold a few thousand elements at most.
_AT_ONCE_BYTES: Final = 8192
#: Larger ones are not answered without being decoded: their bytes alone take long.
_WHOLE_BYTES: Final = 1024 * 1024
#: And those up to this size hold too few to count.
_FEW_ELEMENTS_BYTES: Final = 2048
#: What an answer says of an element, beside what it repeats of the request: mostly why it was refused.
_ANSWER_BYTES_PER_ELEMENT: Final = 128
#: Answers that are expected to be smaller ask for no room.
_SMALL_ANSWER_BYTES: Final = 64 * 1024


def is_urgent(frame: Buffer) -> bool:
    # The first byte of a key is 0, so far.
    return len(frame) > 1 and frame[1] in URGENT_KEYS and not frame[0]


@dataclass(frozen=True, slots=True)
class Form:
    """What surrounds the body in one version of an API."""

    request_header_version: int
    #: What follows the correlation id in the header of a response.
    response_header_end: bytes


@dataclass(frozen=True, slots=True)
class Route:
    """One API that is served."""

    api: Api
    handle: Handler
    #: By version, of all that are served.
    forms: dict[int, Form]
    #: In the arrays of one request. Handlers that know that fewer make sense have a `MAX_ELEMENTS` of their own.
    max_elements: int
    #: How much room is asked for before the handler is called. Handlers that ask themselves, or whose answers do not
    #: grow with the request, have an `ANSWER_BYTES_PER_ELEMENT` of 0.
    answer_bytes_per_element: int
    #: Asked first, where a handler has it: `handle_frame`.
    handle_frame: FrameHandler | None = None

    @classmethod
    def of(cls, module: ModuleType) -> Route:
        served = api(module.API_KEY)
        forms = {
            version: Form(
                served.request_header_version(version), b"\0" if served.response_header_version(version) else b""
            )
            for version in served.served
        }
        return cls(
            served,
            _with_connection(module.handle),
            forms,
            getattr(module, "MAX_ELEMENTS", MAX_ELEMENTS),
            getattr(module, "ANSWER_BYTES_PER_ELEMENT", _ANSWER_BYTES_PER_ELEMENT),
            getattr(module, "handle_frame", None),
        )

    @property
    def advertised(self) -> ApiVersion:
        served = self.api.served
        lowest = _ADVERTISED_LOWEST.get(self.api.key, served.low)
        return ApiVersion(api_key=self.api.key, min_version=lowest, max_version=served.high)


def _with_connection(handle: Callable[..., Handled]) -> Handler:
    if "connection" in inspect.signature(handle).parameters:
        return handle
    return lambda services, context, request, _: handle(services, context, request)


class Router:
    """The APIs of one role of a node. Until it is opened, requests wait, each connection with its first one.

    `turns` is the node's: both roles share one loop.
    """

    def __init__(self, handlers: Iterable[ModuleType], turns: Turns) -> None:
        self._routes: dict[int, Route] = {module.API_KEY: Route.of(module) for module in handlers}
        self._services: CommonServices | None = None
        self._quotas: Quotas = NoQuotas()
        self._waiting: list[tuple[Connection, bytearray]] = []
        self.turns = turns
        self.interceptor: Interceptor | None = None

    def open(self, services: CommonServices) -> None:
        self._services, self._quotas = services, services.quotas
        waiting, self._waiting = self._waiting, []
        for connection, frame in waiting:
            self.dispatch(connection, frame)

    def advertised(self) -> list[ApiVersion]:
        """What ApiVersions tells, by key."""
        return [route.advertised for _, route in sorted(self._routes.items())]

    def dispatch(self, connection: Connection, frame: bytearray) -> None:
        """Take one request. The connection gets its answer, or is closed when the bytes make no sense."""
        if self._services is None:
            self._waiting.append((connection, frame))
            return
        key, version = _KEY_AND_VERSION.unpack_from(frame) if len(frame) >= _SHORTEST_BYTES else _NO_REQUEST
        route = self._routes.get(key)
        if route is None:
            connection.close(f"it asked for the API {key}, which is not served on {connection.listener}")
            return
        if connection.phase.apis is not None and not connection.phase.allows(key):
            connection.close(f"it asked for {route.api.key.camel_name} when it was {connection.phase.text}")
            return
        form = route.forms.get(version)
        if form is None:
            self._refuse_version(connection, route, version, frame)
            return
        handle_frame = route.handle_frame
        if handle_frame is not None and self._is_answered(handle_frame, key, connection, version, frame):
            return
        is_counted = len(frame) > _FEW_ELEMENTS_BYTES
        if is_counted and (len(frame) > _AT_ONCE_BYTES or not self.turns.has_place(CROWDS[0])):
            self._dispatch_large(route, form, version, connection, frame)
            return
        try:
            header, start = RequestHeader.decode_prefix(frame, form.request_header_version)
            # Bytes after the last field are passed over, as Kafka does: librdkafka's Metadata v13 has some.
            request, _ = route.api.request.decode_prefix(memoryview(frame), version, start)
        except RemoteProtocolError as error:
            connection.close(f"its {route.api.key.camel_name} request v{version} cannot be read: {error}")
            return
        context = _context(route, version, header, connection)
        self._handle(route, context, request, connection, is_long=False, is_counted=is_counted)

    def _is_answered(
        self, handle: FrameHandler, key: int, connection: Connection, version: int, frame: bytearray
    ) -> bool:
        """Whether a request was answered, or will be, without being decoded."""
        if len(frame) > _WHOLE_BYTES or self.interceptor is not None:
            return False
        if key == _FETCH:  # what it brings must be allowed before it is read
            allowance: Allowance | None = connection.allowance
            is_in_doubt = self._quotas.limits_frames if allowance is None else not allowance.has_room(connection)
            if is_in_doubt and not self._quotas.allowance(connection).has_room(connection):
                return False
        answer = handle(self._services, connection, version, frame)
        if answer is None:
            return False
        if isinstance(answer, bytes):
            self._respond_with_frame(connection, answer)
        else:
            connection.wait_begins()
            asyncio.ensure_future(answer).add_done_callback(lambda done: self._finish_frame(connection, done))
        return True

    def _finish_frame(self, connection: Connection, done: asyncio.Future[bytes]) -> None:
        connection.wait_ends()
        if done.cancelled():
            self._quotas.charge_given_up(connection)
            connection.close("the request was given up")
        elif (failure := done.exception()) is not None:
            self._quotas.charge_given_up(connection)
            _log.error("a request from %s failed", connection.peer, exc_info=failure)
            connection.close("its request failed")
        else:
            self._respond_with_frame(connection, done.result())

    def _respond_with_frame(self, connection: Connection, answer: bytes) -> None:
        allowance: Allowance | None = connection.allowance
        if self._quotas.limits_frames if allowance is None else not allowance.covers(connection, answer):
            answer = self._throttled_frame(connection, answer)
        if answer:
            connection.respond_with_frame(answer)
        else:
            connection.finish_without_response()

    def _throttled_frame(self, connection: Connection, answer: bytes) -> bytes:
        """By the rules: the answer, which tells how long its connection stays muted."""
        is_known = connection.allowance is not None and not connection.allowance.is_stale
        if not is_known and self._quotas.allowance(connection).covers(connection, answer):
            return answer
        throttle_ms = self._quotas.frame_throttle_ms(connection, len(answer))
        if not throttle_ms:
            return answer
        connection.throttle_time_ms = throttle_ms
        connection.mute_for(throttle_ms)
        if not answer:
            return answer
        route, version = self._routes[connection.api_key], connection.api_version
        start = SIZE_BYTES + _CORRELATION_ID_BYTES + len(route.forms[version].response_header_end)
        response: Any = route.api.response.decode(answer[start:], version)
        response.throttle_time_ms = throttle_ms
        parts: list[Buffer] = [answer[SIZE_BYTES:start], *response.encode_parts(version)]
        return b"".join(frame_parts(parts))

    async def call(self, context: RequestContext, request: Request) -> Response:
        """The answer to a request of this node itself, as it would come over the wire."""
        route = self._routes.get(request.API_KEY)
        if route is None or self._services is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"{context.api_key.camel_name} is not served here, yet")
        try:
            answer = self.interceptor(context, request) if self.interceptor is not None else None
            if answer is not None and not isinstance(answer, Response):
                answer = await answer
            handled: Handled = answer
            if handled is None:
                # None of those that look at their connection is asked in this way.
                handled = route.handle(self._services, context, request, cast(Connection, None))
            if isinstance(handled, Generator):
                handled = await driven(handled)
            if handled is not None and not isinstance(handled, Response):
                handled = await handled
        except BrokerError as failure:
            handled = await driven(error_response(context, request, failure.code, failure.message))
        return known(handled, "the node asks for nothing that is not answered")

    def _dispatch_large(self, route: Route, form: Form, version: int, connection: Connection, frame: bytearray) -> None:
        def handle(decoded: _Decoded, was_long: bool) -> None:
            header, request, elements = decoded
            context = _context(route, version, header, connection)
            room_bytes = elements * route.answer_bytes_per_element
            if room_bytes <= _SMALL_ANSWER_BYTES:
                self._handle(route, context, request, connection, is_long=was_long)
                return
            self.turns.start(
                connection,
                room_for(room_bytes),
                lambda _, __: self._handle(route, context, request, connection, is_long=True),
                lambda failure: self._fail(context, request, connection, failure),
                is_next=True,
            )

        def refuse(failure: Exception) -> None:
            if not isinstance(failure, RemoteProtocolError):
                _log.error("a %s request could not be decoded", route.api.key.camel_name, exc_info=failure)
            connection.close(f"its {route.api.key.camel_name} request v{version} cannot be read: {failure}")

        self.turns.start(connection, _decode(self.turns, route, form, version, frame), handle, refuse)

    def _handle(
        self,
        route: Route,
        context: RequestContext,
        request: Request,
        connection: Connection,
        *,
        is_long: bool,
        is_counted: bool = False,
    ) -> None:
        """Have a request answered. `is_counted`: it may hold many elements, and has no place among others like it."""
        answer: Handled
        try:
            intercepted = self.interceptor(context, request) if self.interceptor is not None else None
            if intercepted is None:
                answer = route.handle(self._services, context, request, connection)
            elif isinstance(intercepted, Response):
                answer = intercepted
            else:
                answer = self._handled_after(intercepted, route, context, request, connection)
                is_long = True  # of an answer made in slices, parts are encoded already
        except Exception as failure:
            self._fail(context, request, connection, failure)
            return
        if answer is None or isinstance(answer, Response):
            self._answer(context, request, connection, answer, is_long=is_long)
        elif isinstance(answer, Generator):
            self.turns.start(
                connection,
                in_crowd(CROWDS[0], answer) if is_counted else answer,
                lambda outcome, _: self._wait_for(context, request, connection, outcome, is_long=True),
                lambda failure: self._fail(context, request, connection, failure),
            )
        else:
            self._wait_for(context, request, connection, answer, is_long=is_long)

    def _wait_for(
        self,
        context: RequestContext,
        request: Request,
        connection: Connection,
        answer: Answer | Awaitable[Answer],
        *,
        is_long: bool,
    ) -> None:
        if answer is None or isinstance(answer, Response):
            self._answer(context, request, connection, answer, is_long=is_long)
            return
        if connection.is_parked:
            # Others decide when it goes on, and must not have to wait for its place meanwhile.
            self.turns.finished(connection)
        connection.wait_begins()
        waiting = asyncio.ensure_future(answer)
        waiting.add_done_callback(lambda done: self._finish(context, request, connection, done, is_long))

    def _finish(
        self,
        context: RequestContext,
        request: Request,
        connection: Connection,
        done: asyncio.Future[Answer],
        is_long: bool,
    ) -> None:
        connection.wait_ends()
        if done.cancelled():
            # What was done is charged, though nobody is there to be told.
            self._quotas.throttle_ms(context, request, None, connection)
            self._close(connection, "the request was given up")
            return
        failure = done.exception()
        if failure is None:
            self._answer(context, request, connection, done.result(), is_long=is_long)
        elif isinstance(failure, Exception):
            self._fail(context, request, connection, failure)
        else:
            self._close(connection, "the node is stopping")

    def _answer(
        self, context: RequestContext, request: Request, connection: Connection, response: Answer, *, is_long: bool
    ) -> None:
        """Send a response, or take note that there is none. `is_long`: it may have very many elements."""
        if response is None:
            self.turns.finished(connection)
            self._throttle(context, request, connection, None)
            connection.finish_without_response()
            return
        for code in told_errors(response):
            connection.count_error(code)
        try:
            self._throttle(context, request, connection, response)
            if not is_long:
                self._respond(connection, context, context.version, response.encode_parts(context.version))
                return
        except Exception as failure:
            self._fail(context, request, connection, failure)
            return
        self.turns.start(
            connection,
            response.encode_in_slices(context.version),
            lambda parts, _: self._respond(connection, context, context.version, parts),
            lambda failure: self._fail(context, request, connection, failure),
        )

    def _throttle(self, context: RequestContext, request: Request, connection: Connection, response: Answer) -> None:
        """Mute the connection of who has used too much, and tell it so."""
        throttle_ms = self._quotas.throttle_ms(context, request, response, connection)
        if throttle_ms:
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            connection.throttle_time_ms = throttle_ms
            connection.mute_for(throttle_ms)

    def _respond(self, connection: Connection, context: RequestContext, version: int, body: list[Buffer]) -> None:
        header_end = self._routes[context.api_key].forms[version].response_header_end
        header = context.correlation_id.to_bytes(4, "big", signed=True) + header_end
        if self.turns.placed:
            self.turns.finished(connection)
        if connection.is_charged:
            self._quotas.charge_rest(context, connection)
        connection.respond([header, *body])

    def _fail(self, context: RequestContext, request: Request, connection: Connection, failure: Exception) -> None:
        """An answer with an error wherever the response has room for one."""
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if isinstance(failure, BrokerError):
            code, message = failure.code, failure.message
        else:
            _log.error("a %s request v%d failed", context.api_key.camel_name, context.version, exc_info=failure)
        if isinstance(request, ProduceRequest) and not request.acks:
            # It gets no answer, so the end of the connection is the only way to tell.
            self._quotas.throttle_ms(context, request, None, connection)
            self._close(connection, "its request with acks=0 failed")
            return

        connection.count_error(code)

        def give_up(problem: Exception) -> None:
            name = context.api_key.camel_name
            _log.error("the failure of a %s request could not be told", name, exc_info=problem)
            self._close(connection, "its request failed")

        self.turns.start(
            connection,
            self._failed(context, request, connection, code, message),
            lambda body, _: self._respond(connection, context, context.version, body),
            give_up,
        )

    def _failed(
        self, context: RequestContext, request: Request, connection: Connection, code: ErrorCode, message: str | None
    ) -> Steps[list[Buffer]]:
        response = yield from error_response(context, request, code, message)
        self._throttle(context, request, connection, response)
        return (yield from response.encode_in_slices(context.version))

    def _close(self, connection: Connection, reason: str) -> None:
        self.turns.finished(connection)
        connection.close(reason)

    def _refuse_version(self, connection: Connection, route: Route, version: int, frame: bytearray) -> None:
        if route.api.key is not ApiKey.API_VERSIONS:
            connection.close(f"it asked for {route.api.key.camel_name} v{version}, which is not served")
            return
        # Whatever follows the correlation id is unknown. The client reads version 0 and asks again with what it says.
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[route.advertised])
        header = RequestHeader(request_api_key=route.api.key, request_api_version=0, correlation_id=correlation_id)
        self._respond(connection, _context(route, 0, header, connection), 0, refusal.encode_parts(0))

    async def _handled_after(
        self,
        intercepted: Awaitable[Answer],
        route: Route,
        context: RequestContext,
        request: Request,
        connection: Connection,
    ) -> Answer:
        """What an interceptor took its time for; the handler's answer if it came to nothing."""
        answer = await intercepted
        handled: Handled = answer
        if answer is None:
            handled = route.handle(self._services, context, request, connection)
        if isinstance(handled, Generator):
            handled = await self.turns.future(connection, handled)
        return handled if handled is None or isinstance(handled, Response) else await handled


def _context(route: Route, version: int, header: RequestHeader, connection: Connection) -> RequestContext:
    return RequestContext(
        route.api.key,
        version,
        header.correlation_id,
        header.client_id,
        connection.listener,
        connection.principal,
        connection.peer_host,
        connection.is_token_authenticated,
    )


class _Decoded(NamedTuple):
    header: RequestHeader
    request: Request
    #: About how many.
    elements: int


def _decode(turns: Turns, route: Route, form: Form, version: int, frame: bytearray) -> Steps[_Decoded]:
    """Decode a request, with a place in the crowd that it turns out to belong to."""
    crowd = 0
    while True:
        decoding = _decode_in_slices(route, form, version, frame)
        elements = 0
        while crowd == len(CROWDS) or elements <= CROWDS[crowd].more_than or turns.has_place(CROWDS[crowd]):
            if crowd < len(CROWDS) and elements > CROWDS[crowd].more_than:
                yield CROWDS[crowd]
                crowd += 1
            try:
                next(decoding)
            except StopIteration as end:
                header, request = end.value
                return _Decoded(header, request, elements)
            elements += ELEMENTS_PER_STEP
            yield None
        # Who waits keeps nothing but its frame. What was decoded is decoded again then.
        decoding.close()
        yield CROWDS[crowd]
        crowd += 1


def _decode_in_slices(
    route: Route, form: Form, version: int, frame: bytearray
) -> Generator[None, None, tuple[RequestHeader, Request]]:
    view = memoryview(frame)
    header, start = yield from RequestHeader.decode_in_slices(view, form.request_header_version, 0, route.max_elements)
    request, _ = yield from route.api.request.decode_in_slices(view, version, start, route.max_elements)
    return header, request
