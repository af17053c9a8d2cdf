"""From a frame to a handler and back: versions, decoding, errors, encoding.

Each connection has one request at a time here, so answers keep the order of the questions. A handler that knows its
answer at once returns it; one that must wait returns an awaitable, and the connection stays silent until it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from types import ModuleType
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, RemoteProtocolError
from barnabas.broker.context import RequestContext
from barnabas.broker.error_responses import error_response
from barnabas.broker.services import Services
from barnabas.net import Connection
from barnabas.wire.apis import Api, ApiKey, api
from barnabas.wire.compiler import Buffer
from barnabas.wire.headers import RequestHeader
from barnabas.wire.message import Listeners, Request, Response
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.produce import ProduceRequest

_log = logging.getLogger("barnabas.broker")

Answer = Response | None
Handler = Callable[[Services, RequestContext, Any], Answer | Awaitable[Answer]]
#: Sees each request before its handler; what it returns, unless that is None, takes the handler's place.
Interceptor = Callable[[RequestContext, Request], Answer | Awaitable[Answer]]

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
#: On the controllers' listener this asks for the metadata log, which a quorum of one sends to nobody.
_NOT_FOR_CONTROLLERS: Final = frozenset({ApiKey.FETCH})

_KEY_AND_VERSION: Final = Struct(">hh")
#: Key, version and correlation id, which every header has.
_SHORTEST_BYTES: Final = 8
#: What is too short to ask for anything: no API has this key.
_NO_REQUEST: Final = (-1, -1)


def is_urgent(frame: Buffer) -> bool:
    return int.from_bytes(frame[:2], "big", signed=True) in URGENT_KEYS


@dataclass(frozen=True, slots=True)
class Form:
    """What surrounds the body in one version of an API."""

    request_header_version: int
    #: What follows the correlation id in the header of a response.
    response_header_end: bytes


@dataclass(frozen=True, slots=True)
class Route:
    """One API that this node serves."""

    api: Api
    handle: Handler
    #: By version, of all that are served.
    forms: dict[int, Form]

    @classmethod
    def of(cls, module: ModuleType) -> Route:
        served = api(module.API_KEY)
        forms = {
            version: Form(
                served.request_header_version(version), b"\0" if served.response_header_version(version) else b""
            )
            for version in served.served
        }
        return cls(served, module.handle, forms)

    @property
    def advertised(self) -> ApiVersion:
        served = self.api.served
        lowest = _ADVERTISED_LOWEST.get(self.api.key, served.low)
        return ApiVersion(api_key=self.api.key, min_version=lowest, max_version=served.high)


class Router:
    """The APIs of a node. Until it is opened, requests wait, each connection with its first one."""

    def __init__(self, handlers: Iterable[ModuleType], controller_listeners: Iterable[str]) -> None:
        self._routes: dict[int, Route] = {}
        for module in handlers:
            self._routes[module.API_KEY] = Route.of(module)
        self._controller_listeners = frozenset(controller_listeners)
        # By listener, the routes that are served there: looked up for every request.
        self._served: dict[str, dict[int, Route]] = {}
        self._services: Services | None = None
        self._waiting: list[tuple[Connection, bytearray]] = []
        self.interceptor: Interceptor | None = None

    def open(self, services: Services) -> None:
        self._services = services
        waiting, self._waiting = self._waiting, []
        for connection, frame in waiting:
            self.dispatch(connection, frame)

    def advertised(self, listener: str) -> list[ApiVersion]:
        """What ApiVersions tells on a listener, by key."""
        return [route.advertised for _, route in sorted(self._routes_on(listener).items())]

    def _routes_on(self, listener: str) -> dict[int, Route]:
        served = self._served.get(listener)
        if served is None:
            served = {key: route for key, route in self._routes.items() if self._is_served_on(route.api, listener)}
            self._served[listener] = served
        return served

    def _is_served_on(self, wanted: Api, listener: str) -> bool:
        if listener in self._controller_listeners:
            return bool(wanted.listeners & Listeners.CONTROLLER) and wanted.key not in _NOT_FOR_CONTROLLERS
        return bool(wanted.listeners & Listeners.BROKER)

    def dispatch(self, connection: Connection, frame: bytearray) -> None:
        """Take one request. The connection gets its answer, or is closed when the bytes make no sense."""
        services = self._services
        if services is None:
            self._waiting.append((connection, frame))
            return
        key, version = _KEY_AND_VERSION.unpack_from(frame) if len(frame) >= _SHORTEST_BYTES else _NO_REQUEST
        route = self._routes_on(connection.listener).get(key)
        if route is None:
            connection.close(f"it asked for the API {key}, which is not served on {connection.listener}")
            return
        form = route.forms.get(version)
        if form is None:
            self._refuse_version(connection, route, version, frame)
            return
        try:
            header, start = RequestHeader.decode_prefix(frame, form.request_header_version)
            # Bytes after the last field are passed over, as Kafka does: librdkafka's Metadata v13 has some.
            request, _ = route.api.request.decode_prefix(memoryview(frame), version, start)
        except RemoteProtocolError as error:
            connection.close(f"its {route.api.key.camel_name} request v{version} cannot be read: {error}")
            return
        context = RequestContext(route.api.key, version, header.correlation_id, header.client_id, connection)
        self._handle(services, route, context, request)

    def _handle(self, services: Services, route: Route, context: RequestContext, request: Request) -> None:
        try:
            answer = self.interceptor(context, request) if self.interceptor is not None else None
            if answer is None:
                answer = route.handle(services, context, request)
            elif not isinstance(answer, Response):
                answer = _handled_after(answer, services, route, context, request)
            if answer is None or isinstance(answer, Response):
                self._answer(services, context, request, answer)
                return
        except Exception as failure:
            self._fail(services, context, request, failure)
            return
        waiting = asyncio.ensure_future(answer)
        waiting.add_done_callback(lambda done: self._finish(services, context, request, done))

    def _finish(
        self, services: Services, context: RequestContext, request: Request, done: asyncio.Future[Answer]
    ) -> None:
        if done.cancelled():
            context.connection.close("the request was given up")
            return
        failure = done.exception()
        try:
            if failure is None:
                self._answer(services, context, request, done.result())
                return
        except Exception as error:
            failure = error
        if isinstance(failure, Exception):
            self._fail(services, context, request, failure)
        else:
            context.connection.close("the node is stopping")

    def _answer(self, services: Services, context: RequestContext, request: Request, response: Answer) -> None:
        connection = context.connection
        if response is None:
            connection.finish_without_response()
            return
        throttle_ms = services.quotas.throttle_ms(context, request, response)
        if throttle_ms:
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
            connection.mute_for(throttle_ms)
        self._send(context, response)

    def _send(self, context: RequestContext, response: Response, version: int | None = None) -> None:
        version = context.version if version is None else version
        header_end = self._routes[context.api_key].forms[version].response_header_end
        header = context.correlation_id.to_bytes(4, "big", signed=True) + header_end
        context.connection.respond([header, *response.encode_parts(version)])

    def _fail(self, services: Services, context: RequestContext, request: Request, failure: Exception) -> None:
        """An answer with an error wherever the response has room for one."""
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if isinstance(failure, BrokerError):
            code, message = failure.code, failure.message
        else:
            _log.error("a %s request v%d failed", context.api_key.camel_name, context.version, exc_info=failure)
        if isinstance(request, ProduceRequest) and not request.acks:
            # It gets no answer, so the end of the connection is the only way to tell.
            context.connection.close("its request with acks=0 failed")
            return
        try:
            self._answer(services, context, request, error_response(context, request, code, message))
        except Exception:
            _log.exception("the failure of a %s request could not be told", context.api_key.camel_name)
            context.connection.close("its request failed")

    def _refuse_version(self, connection: Connection, route: Route, version: int, frame: bytearray) -> None:
        if route.api.key is not ApiKey.API_VERSIONS:
            connection.close(f"it asked for {route.api.key.camel_name} v{version}, which is not served")
            return
        # Whatever follows the correlation id is unknown. The client reads version 0 and asks again with what it says.
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[route.advertised])
        context = RequestContext(route.api.key, 0, correlation_id, None, connection)
        self._send(context, refusal, version=0)


async def _handled_after(
    intercepted: Awaitable[Answer], services: Services, route: Route, context: RequestContext, request: Request
) -> Answer:
    """What an interceptor took its time for; the handler's answer if it came to nothing."""
    answer = await intercepted
    handled = route.handle(services, context, request) if answer is None else answer
    return handled if handled is None or isinstance(handled, Response) else await handled
