"""A connection that we open: what is asked of another node goes through here.

A channel connects when it is first needed and again when it was lost, after a wait that grows with each failure. It
asks the peer for its versions before anything else, shows it who we are where that is asked for, and sends each request
in the highest version that both know.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, cast

from barnabas.base.errors import LocalProtocolError
from barnabas.net.backoff import Backoff, grown
from barnabas.net.dialing import connect, negotiate
from barnabas.net.errors import (
    AuthenticationFailedError,
    ChannelError,
    ConnectError,
    DisconnectedError,
    NotSentError,
    RequestTimeoutError,
    UnsupportedRequestError,
    address_text,
)
from barnabas.net.limits import ChannelLimits
from barnabas.net.outgoing import (
    SESSION_ENDS,
    ChannelEvents,
    ClientRequest,
    OutgoingConnection,
    RequestForm,
    RequestResult,
)
from barnabas.net.sasl_client import authenticate
from barnabas.net.security import PLAINTEXT, ChannelSecurity
from barnabas.net.sockets import SocketBuffers
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.api_versions import ApiVersionsResponse

#: How long what was already written may take to leave when a channel is closed.
_FLUSH_TIMEOUT_S: Final = 1.0
#: After which share of a session the peer is shown again who we are; chance decides between the two, so that not all
#: connections do it at once.
_EARLIEST_RENEWAL: Final = 0.85
_LATEST_RENEWAL: Final = 0.95


__all__ = ["Channel", "ChannelEvents", "ChannelLimits"]


class Channel:
    """Requests to one node, and its answers.

    Guarantees: at most `max_in_flight_requests` are unanswered at a time, and they leave in the order in which they
    were asked; a request whose fate is unknown raises `DisconnectedError`; one that was never sent `ConnectError`. A
    node that asks to be left alone for a while (`throttle_time_ms` of any answer) is. Every request ends: it waits at
    most its timeout to be sent, and as long again for its answer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        randomness: Random,
        limits: ChannelLimits | None = None,
        node_id: int = -1,
        events: ChannelEvents | None = None,
        on_ready: Callable[[int], None] | None = None,
        check_peer: Callable[[Mapping[int, tuple[int, int]]], str | None] | None = None,
        security: ChannelSecurity = PLAINTEXT,
    ) -> None:
        """`on_ready` is called with `node_id` when the channel has become able to send again, or was lost; `check_peer`
        is shown what versions a peer offers, and may say why it is not to be talked to."""
        self._security = security
        #: Shows the peer again who we are.
        self._renewing: asyncio.Task[None] | None = None
        self._session_ends_s = math.inf
        self.address = address_text(host, port)
        self.host = host
        self.port = port
        self._client_id = client_id
        self._randomness = randomness
        self._limits = limits or ChannelLimits()
        self._max_in_flight = self._limits.max_in_flight_requests
        self.node_id = node_id
        self._events = events
        self._on_ready = on_ready
        self._check_peer = check_peer
        self._backoff = Backoff(self._limits.reconnect_backoff_ms, self._limits.reconnect_backoff_max_ms, randomness)
        self._waiting: deque[ClientRequest] = deque()
        self._connect_waiters: list[asyncio.Future[None]] = []
        self._opening: asyncio.Task[None] | None = None
        self._connection: OutgoingConnection | None = None
        self._forms: dict[tuple[type[Request], int | None], RequestForm] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf
        self._active_at_s = 0.0
        self._throttled_until_s = 0.0
        self._is_closed = False
        self._is_retiring = False
        #: What the peer offers: lowest and highest version by key. Empty before the first connection.
        self.offered: dict[int, tuple[int, int]] = {}
        #: The peer's whole answer, with its features.
        self.peer: ApiVersionsResponse | None = None
        #: Why the last attempt to connect failed, or the connection ended. None while all is well.
        self.last_failure: ChannelError | None = None

    # How it stands

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_connecting(self) -> bool:
        return self._opening is not None

    @property
    def in_flight_count(self) -> int:
        """Requests that were asked here and are not answered, sent or not."""
        return len(self._waiting) + (len(self._connection.in_flight) if self._connection is not None else 0)

    @property
    def backoff_ms(self) -> float:
        """How long until it may connect."""
        return self._backoff.wait_ms(asyncio.get_running_loop().time() * 1000)

    def delay_ms(self) -> float:
        """How long until a request would leave: 0 for at once, infinite if only an event can tell (`on_ready`)."""
        connection = self._connection
        if connection is None:
            return (self._opening is None and self.backoff_ms) or math.inf
        if connection.is_paused == SESSION_ENDS and self._renewing is None:
            return 0.0  # whoever asks next begins a new one
        if self._waiting or connection.is_paused or len(connection.in_flight) >= self._max_in_flight:
            return math.inf
        if not self._throttled_until_s:
            return 0.0
        return max(0.0, (self._throttled_until_s - asyncio.get_running_loop().time()) * 1000)

    def version_of(self, request: type[Request]) -> int:
        """The highest version that both sides know. Raises `UnsupportedRequestError`."""
        ours, offered = request.VERSIONS, self.offered.get(request.API_KEY)
        if offered is None:
            name = ApiKey(request.API_KEY).camel_name
            raise UnsupportedRequestError(self.address, f"it does not offer {name}")
        low, high = offered
        best = min(high, ours.high)
        if best < max(low, ours.low):
            name = ApiKey(request.API_KEY).camel_name
            raise UnsupportedRequestError(self.address, f"it offers {name} {low}-{high}, and we know {ours}")
        return best

    # What is asked of it

    async def connect(self) -> None:
        """Connect if that is not done already, after the wait that earlier failures ask for."""
        if self._connection is not None:
            return
        if self._is_closed:
            raise ConnectError(self.address, "the channel was closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connect_waiters.append(waiter)
        self.connect_soon()
        try:
            await waiter
        finally:
            with contextlib.suppress(ValueError):
                self._connect_waiters.remove(waiter)

    def connect_soon(self) -> None:
        """Begin to connect, if that is not done or under way, once earlier failures allow it. How it ends is told by
        `on_ready`."""
        if self._connection is not None or self._opening is not None or self._is_closed:
            return
        self._opening = asyncio.get_running_loop().create_task(self._open_and_tell())

    def request(
        self, message: Request, version: int | None = None, *, timeout_ms: float | None = None
    ) -> asyncio.Future[Any]:
        """The answer to `message`, of the response type that belongs to it. Not an error if it holds error codes.

        The highest version that both sides know is used unless one is given. An answer that does not come in time
        closes the connection.
        """
        future = asyncio.get_running_loop().create_future()
        timeout_ms = self._limits.request_timeout_ms if timeout_ms is None else timeout_ms
        self._ask(ClientRequest(message, version, timeout_ms, future=future))
        return future

    def request_soon(
        self,
        message: Request,
        on_answer: Callable[[Any], None],
        version: int | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """The same, for those who want to be called with the answer or the `ChannelError`, never from inside this."""
        timeout_ms = self._limits.request_timeout_ms if timeout_ms is None else timeout_ms
        self._ask(ClientRequest(message, version, timeout_ms, callback=on_answer))

    def send(self, message: Request, version: int | None = None) -> asyncio.Future[None]:
        """Send a request that gets no answer, as Produce with acks=0."""
        future = asyncio.get_running_loop().create_future()
        self._ask(ClientRequest(message, version, self._limits.request_timeout_ms, future=future, expects_answer=False))
        return future

    def send_soon(
        self, message: Request, on_sent: Callable[[Any], None] | None = None, version: int | None = None
    ) -> None:
        """The same, for those who want to be called: with None when it was sent, or the `ChannelError`."""
        self._ask(
            ClientRequest(message, version, self._limits.request_timeout_ms, callback=on_sent, expects_answer=False)
        )

    async def close(self) -> None:
        """Close; who waits for an answer gets `DisconnectedError`. A closed channel stays closed."""
        self._is_closed = True
        self._cancel_timer()
        for task in [each for each in (self._opening, self._renewing) if each is not None]:
            task.cancel()
            await asyncio.wait([task])
        connection = self._connection
        self._fail_waiting(ConnectError(self.address, "the channel was closed"))
        if connection is None:
            return
        connection.close(DisconnectedError(self.address, "the channel was closed"), by_us=True, flushes=True)
        done, _ = await asyncio.wait([connection.closed], timeout=_FLUSH_TIMEOUT_S)
        if not done:
            connection.abort()
            await connection.closed

    def disconnect(self, why: str) -> None:
        """Give the connection up, if there is one; what is in flight on it raises `DisconnectedError`."""
        if self._connection is not None:
            self._connection.close(DisconnectedError(self.address, why), by_us=True)

    def retire(self) -> bool:
        """Close once all that was asked is answered; whether that is so already."""
        self._is_retiring = True
        connection = self._connection
        if (
            self._waiting
            or self._opening is not None
            or self._connect_waiters
            or (connection is not None and connection.in_flight)
        ):
            return False
        self._is_closed = True
        self._cancel_timer()
        if connection is not None:
            connection.close(DisconnectedError(self.address, "the node is not at this address any more"), by_us=True)
        return True

    # Sending

    def _ask(self, asked: ClientRequest) -> None:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            self._settle_soon(asked, ConnectError(self.address, "the channel was closed"))
            return
        connection = self._connection
        now_s = loop.time()
        if (
            connection is not None
            and not self._waiting
            and len(connection.in_flight) < self._max_in_flight
            and not self._throttled_until_s
            and not connection.is_paused
        ):
            self._send(connection, asked, now_s)
        else:
            asked.deadline_s = now_s + asked.timeout_ms / 1000
            self._waiting.append(asked)
            self._send_waiting()
        if asked.deadline_s < self._timer_at_s:
            self._watch(asked.deadline_s)

    def _send(self, connection: OutgoingConnection, asked: ClientRequest, now_s: float) -> None:
        message = asked.message
        try:
            form = self._forms.get((type(message), asked.version)) or self._form(message, asked.version)
            size_bytes = connection.send(asked, form, now_s)
        except ChannelError as error:
            self._settle_soon(asked, error)
            return
        except LocalProtocolError as error:
            self._settle_soon(
                asked, UnsupportedRequestError(self.address, f"{asked.name} cannot be sent to it: {error}")
            )
            return
        self._active_at_s = now_s
        self._sent(size_bytes)
        if not asked.expects_answer:
            self._settle_soon(asked, None)

    def _sent(self, size_bytes: int) -> None:
        if self._events is not None:
            self._events.sent(self.node_id, size_bytes)

    def _send_waiting(self) -> None:
        """Send what waits, as far as it may be sent now."""
        if not self._waiting:
            return
        connection = self._connection
        if connection is None:
            self.connect_soon()
            return
        now_s = asyncio.get_running_loop().time()
        if self._throttled_until_s:
            if now_s < self._throttled_until_s:
                self._watch(self._throttled_until_s)
                return
            self._throttled_until_s = 0.0
        if connection.is_paused & SESSION_ENDS:
            self._renew_soon(connection)
            return
        waiting = self._waiting
        while waiting and len(connection.in_flight) < self._max_in_flight and not connection.is_paused:
            asked = waiting.popleft()
            if not asked.is_given_up:
                self._send(connection, asked, now_s)

    def _form(self, message: Request, version: int | None) -> RequestForm:
        kind = type(message)
        chosen = self.version_of(kind) if version is None else self._checked(message, version)
        form = self._forms[kind, version] = RequestForm(kind, chosen, self._client_id)
        return form

    def _checked(self, message: Request, version: int) -> int:
        low, high = self.offered.get(message.API_KEY, (0, -1))
        if not low <= version <= high:
            name = ApiKey(message.API_KEY).camel_name
            offer = f"{name} {low}-{high}" if high >= 0 else f"no {name}"
            raise UnsupportedRequestError(self.address, f"{name} {version} was to be sent, and it offers {offer}")
        return version

    # What the connection tells

    def answered(self, asked: ClientRequest, response: Response, size_bytes: int) -> None:
        now_s = asyncio.get_running_loop().time()
        self._active_at_s = now_s
        if self._events is not None:
            self._events.received(self.node_id, size_bytes, (now_s - asked.sent_at_s) * 1000)
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._throttled_until_s = max(self._throttled_until_s, now_s + throttle_ms / 1000)
            self._watch(self._throttled_until_s)
        connection = self._connection
        was_full = connection is not None and len(connection.in_flight) == self._max_in_flight - 1
        self._settle(asked, response)
        if self._waiting:
            self._send_waiting()
        elif self._is_retiring:
            self.retire()
        elif was_full:
            self._tell_ready()

    def lost(self, connection: OutgoingConnection, unanswered: deque[ClientRequest]) -> None:
        failure = cast(ChannelError, connection.failure)
        if connection is self._connection:
            self._connection = None
            self.last_failure = None if connection.was_closed_by_us else failure
            if self._events is not None:
                self._events.disconnected(self.node_id)
            if not connection.was_closed_by_us:
                self._backoff.failed(asyncio.get_running_loop().time() * 1000)
        for each in unanswered:
            self._settle(each, failure)
        if not self._is_closed:
            self._send_waiting()
            self._tell_ready()

    def writable(self) -> None:
        if self._waiting:
            self._send_waiting()
        else:
            self._tell_ready()

    def _tell_ready(self) -> None:
        if self._on_ready is not None:
            self._on_ready(self.node_id)

    def _settle(self, asked: ClientRequest, outcome: RequestResult) -> None:
        try:
            asked.settle(outcome)
        except Exception as error:
            # Whoever asked failed; those who asked beside it must not suffer.
            context = {"message": f"the answer to {asked.name} could not be handled", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _settle_soon(self, asked: ClientRequest, outcome: RequestResult) -> None:
        if asked.future is not None:
            asked.settle(outcome)
        elif asked.callback is not None:
            asyncio.get_running_loop().call_soon(self._settle, asked, outcome)

    def _fail_waiting(self, failure: ChannelError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self._settle(each, failure)
        waiters, self._connect_waiters = self._connect_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(type(failure)(failure.address, failure.reason))

    # Time: one timer for all that may be due, which is left alone when a request is answered

    def _watch(self, at_s: float) -> None:
        if at_s >= self._timer_at_s or self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._look_at_the_time)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at_s = None, math.inf

    def _look_at_the_time(self) -> None:
        # A timer may come a little early by the loop's own clock.
        now_s = max(asyncio.get_running_loop().time(), self._timer_at_s)
        self._timer, self._timer_at_s = None, math.inf
        self._expire_waiting(now_s)
        connection = self._connection
        if connection is not None and now_s >= self._session_ends_s:
            # Not before somebody asks: a connection that nobody uses may end.
            self._session_ends_s = math.inf
            connection.is_paused |= SESSION_ENDS
        if connection is not None:
            late = next((each for each in connection.in_flight if each.deadline_s <= now_s), None)
            if late is not None:
                text = f"{late.name} was not answered in {late.timeout_ms:.0f} ms"
                connection.close(RequestTimeoutError(self.address, text))
            elif self._is_idle(now_s):
                connection.close(DisconnectedError(self.address, "it was not used for long"), by_us=True)
        if self._throttled_until_s and now_s >= self._throttled_until_s:
            self._throttled_until_s = 0.0
            self.writable()
        self._watch(self._next_due_s())

    def _expire_waiting(self, now_s: float) -> None:
        late = [each for each in self._waiting if each.deadline_s <= now_s]
        if not late:
            return
        self._waiting = deque(each for each in self._waiting if each.deadline_s > now_s)
        for each in late:
            why = f"{each.name} waited {each.timeout_ms:.0f} ms for its turn and was not sent"
            self._settle(each, NotSentError(self.address, why))

    def _is_idle(self, now_s: float) -> bool:
        idle_ms = self._limits.connections_max_idle_ms
        is_used = self._waiting or (self._connection is not None and self._connection.in_flight)
        return idle_ms >= 0 and not is_used and now_s - self._active_at_s >= idle_ms / 1000

    def _next_due_s(self) -> float:
        connection, idle_ms = self._connection, self._limits.connections_max_idle_ms
        due_s = min((each.deadline_s for each in self._waiting), default=math.inf)
        if self._throttled_until_s:
            due_s = min(due_s, self._throttled_until_s)
        if connection is not None:
            due_s = min(due_s, min((each.deadline_s for each in connection.in_flight), default=math.inf))
            due_s = min(due_s, self._session_ends_s)
            if idle_ms >= 0 and not connection.in_flight:
                due_s = min(due_s, self._active_at_s + idle_ms / 1000)
        return due_s

    # Connecting

    async def _open_and_tell(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            wait_ms = self._backoff.wait_ms(loop.time() * 1000)
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
            connection = await self._open()
        except ChannelError as failure:
            self._backoff.failed(loop.time() * 1000)
            self._opening = None
            self.last_failure = failure
            self._fail_waiting(failure)
            self._settle_down()
            return
        except BaseException as failure:
            self._opening = None
            why = "the channel was closed" if self._is_closed else f"the attempt to connect was broken off: {failure!r}"
            self._fail_waiting(ConnectError(self.address, why))
            raise
        self._opening = None
        self._become_connected(connection)

    def _become_connected(self, connection: OutgoingConnection) -> None:
        if self._is_closed:
            connection.close(DisconnectedError(self.address, "the channel was closed"), by_us=True)
            return
        now_s = asyncio.get_running_loop().time()
        self._backoff.succeeded()
        self._connection = connection
        self._forms = {}
        self._active_at_s = now_s
        self.last_failure = None
        if self._events is not None:
            self._events.connected(self.node_id)
        waiters, self._connect_waiters = self._connect_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._limits.connections_max_idle_ms >= 0:
            self._watch(now_s + self._limits.connections_max_idle_ms / 1000)
        self._watch(self._session_ends_s)
        if self._waiting:
            self._send_waiting()
        self._settle_down()

    def _settle_down(self) -> None:
        """An attempt to connect has ended, and who waited for it knows."""
        if not (self._is_retiring and self.retire()):
            self._tell_ready()

    async def _open(self) -> OutgoingConnection:
        limits = self._limits
        timeout_ms = grown(
            limits.socket_connection_setup_timeout_ms,
            limits.socket_connection_setup_timeout_max_ms,
            self._backoff.failure_count,
            self._randomness,
        )
        make = partial(OutgoingConnection, self, self.address, limits.max_response_bytes, limits.trusted_response_bytes)
        buffers = SocketBuffers(limits.send_buffer_bytes, limits.receive_buffer_bytes)
        tls = self._security.tls
        connection = await connect(make, self.host, self.port, self.address, timeout_ms, buffers, tls)
        timeout_ms = limits.request_timeout_ms
        answer = await negotiate(
            connection, self.address, self._client_id, timeout_ms, self._sent, is_plain=tls is None
        )
        offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        complaint = self._check_peer(offered) if self._check_peer is not None else None
        if complaint is not None:
            refusal = UnsupportedRequestError(self.address, complaint)
            connection.close(refusal, by_us=True)
            raise refusal
        await self._authenticate(connection, offered)
        self.peer, self.offered = answer, offered
        return connection

    # Who we are

    async def _authenticate(self, connection: OutgoingConnection, offered: Mapping[int, tuple[int, int]]) -> None:
        """Show the peer who we are, if it is to be shown. If that fails the connection is closed."""
        login = self._security.login
        if login is None:
            return
        timeout_ms = self._limits.request_timeout_ms
        try:
            lifetime_ms = await authenticate(
                connection, self.address, self._client_id, offered, login, timeout_ms, self._sent
            )
            if connection.failure is not None:
                raise connection.failure  # since its last answer
        except BaseException as failure:
            connection.close(DisconnectedError(self.address, "it was not shown who we are"), by_us=True)
            if isinstance(failure, DisconnectedError):
                raise ConnectError(self.address, f"it was not shown who we are: {failure.reason}") from failure
            raise
        self._session_ends_s = math.inf
        if lifetime_ms > 0:
            share = _EARLIEST_RENEWAL + (_LATEST_RENEWAL - _EARLIEST_RENEWAL) * self._randomness.random()
            self._session_ends_s = asyncio.get_running_loop().time() + share * lifetime_ms / 1000

    def _renew_soon(self, connection: OutgoingConnection) -> None:
        """What waits is sent when the peer knows again who we are. What it answers meanwhile is answered as ever."""
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew(connection))

    async def _renew(self, connection: OutgoingConnection) -> None:
        try:
            await self._authenticate(connection, self.offered)
        except ChannelError as failure:
            self._renewing = None
            self._backoff.failed(asyncio.get_running_loop().time() * 1000)
            self.last_failure = failure
            if isinstance(failure, AuthenticationFailedError):
                self._fail_waiting(failure)
            self._tell_ready()
            return
        finally:
            self._renewing = None
        connection.is_paused &= ~SESSION_ENDS
        self._watch(self._session_ends_s)
        self.writable()
