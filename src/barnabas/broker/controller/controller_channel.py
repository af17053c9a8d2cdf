"""How a broker asks the active controller: by message, wherever that is.

In this process it is asked by a call; elsewhere the same request goes over the wire: a broker's own as it is, a
client's in an Envelope that says whose it is. Who leads may change at any moment, so a request that found no active
controller looks for it again as long as it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from random import Random
from typing import Final, NamedTuple, Protocol, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, RemoteProtocolError
from barnabas.base.log_context import logger
from barnabas.broker.controller.quorum_controller import QuorumController
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.loader import MetadataUpdate
from barnabas.net.channel import Channel, ChannelLimits
from barnabas.net.errors import ChannelError, DisconnectedError
from barnabas.net.security import PLAINTEXT, ChannelSecurity
from barnabas.raft.types import Address, LeaderAndEpoch
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.embedded.principal import DefaultPrincipalData
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

_log = logger("barnabas.broker")

#: How long a request without a timeout of its own looks for the active controller, and how often.
_DEFAULT_TIMEOUT_MS: Final = 30_000
_RETRY_MS: Final = 50
_SLOWEST_ANSWER_S: Final = 1.5
_PRINCIPAL_VERSION: Final = 0
#: Errors that say that nobody has decided.
_NOBODY_DECIDED: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE)


class BrokerCaller(NamedTuple):
    """A broker that asks for itself, not for a client."""

    principal: str
    client_host: str
    client_id: str | None

    @property
    def is_token_authenticated(self) -> bool:
        return False

    @property
    def is_own(self) -> bool:
        """In this process it is not asked who it is; elsewhere it is, by its connection."""
        return True


def broker_caller(node_id: int) -> BrokerCaller:
    return BrokerCaller("User:ANONYMOUS", "127.0.0.1", f"broker-{node_id}")


class ControllerChannel(Protocol):
    """Takes a request to the active controller and brings its answer back."""

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        """Raises `BrokerError` where no answer came, or one with nothing but an error."""
        ...


class ActiveController(Protocol):
    """What a replica of the metadata log knows of its leader."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def leader_address(self) -> Address | None: ...

    @property
    def high_watermark(self) -> int: ...


class NodeToControllerChannel:
    """A `ControllerChannel`. `local` is the controller in this process, if there is one.

    The answer to a client waits until this broker has applied what was decided: whoever hears that a topic exists can
    use it here. What was decided elsewhere is applied a moment later, and nobody says at which offset it is; so the
    answer waits for all that is committed by then, as far as this replica hears of it.

    A connection is served in order, so heartbeats have one of their own: they must not wait behind ten thousand
    partitions that a client asked for. It follows the loader: whoever waits for a controller that another has replaced
    asks the new one, and does not wait until the old one, which may be cut off, has timed out.
    """

    def __init__(
        self,
        quorum: ActiveController,
        local: QuorumController | None,
        until_applied: Callable[[int], Awaitable[bool]],
        *,
        is_visible: Callable[[Request, Response], bool],
        randomness: Random,
        limits: ChannelLimits,
        own_limits: ChannelLimits,
        is_alone: bool,
        security: ChannelSecurity = PLAINTEXT,
    ) -> None:
        self._security = security
        self._quorum = quorum
        self._local = local
        self._until_applied = until_applied
        self._is_visible = is_visible
        self._randomness = randomness
        self._limits = {True: own_limits, False: limits}
        self._is_alone = is_alone
        #: By whether they carry what this broker asks for itself.
        self._channels: dict[bool, Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        #: Told when the connection to the active controller was lost.
        self.on_lost: Callable[[], None] = lambda: None

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        is_own = isinstance(caller, BrokerCaller)
        loop = asyncio.get_running_loop()
        timeout_ms = getattr(request, "timeout_ms", None) or _DEFAULT_TIMEOUT_MS
        deadline_s = loop.time() + timeout_ms / 1000
        while True:
            try:
                # The controller says itself when it took too long; one that is cut off says nothing.
                async with asyncio.timeout_at(deadline_s + _SLOWEST_ANSWER_S):
                    response = await self._ask(request, version, caller, is_own=is_own)
            except TimeoutError:
                late = f"the active controller has not answered within {timeout_ms} ms; what was asked may still happen"
                raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, late) from None
            except ChannelError as failure:
                problem = BrokerError(ErrorCode.NOT_CONTROLLER, f"the active controller cannot be reached: {failure}")
            except BrokerError as refusal:
                if refusal.code not in _NOBODY_DECIDED:
                    raise
                problem = refusal
            else:
                if not is_own:
                    await self._until_seen(request, response)
                return response
            if self._is_alone or self._is_closed or loop.time() >= deadline_s:
                raise problem
            await asyncio.sleep(_RETRY_MS / 1000)

    @property
    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """What the active controller understands, if that is another node and was asked; the one here is as we are."""
        leader_id = self._quorum.leader.leader_id
        if leader_id != self._quorum.node_id:
            for channel in self._channels.values():
                if channel.node_id == leader_id and channel.offered:
                    return channel.offered
        return None

    async def _ask(
        self, request: Request, version: int, caller: AuthorizableRequestContext, *, is_own: bool
    ) -> Response:
        leader_id = self._quorum.leader.leader_id
        if self._local is not None and (leader_id == self._quorum.node_id or self._is_alone):
            return await self._local.submit(request, version, caller)
        address = self._quorum.leader_address
        if leader_id < 0 or address is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "nobody leads the quorum of the controllers at the moment")
        channel = self._channel_to(leader_id, address, is_own=is_own)
        if is_own:
            return cast(Response, await channel.request(request))
        return await self._forward(channel, request, version, caller)

    def _channel_to(self, leader_id: int, address: Address, *, is_own: bool) -> Channel:
        channel = self._channels.get(is_own)
        if channel is not None and (channel.host, channel.port, channel.node_id) == (*address, leader_id):
            return channel
        self._drop(is_own)
        channel = self._channels[is_own] = Channel(
            address.host,
            address.port,
            client_id=f"broker-{self._quorum.node_id}-to-controller",
            randomness=self._randomness,
            limits=self._limits[is_own],
            security=self._security,
            node_id=leader_id,
            on_ready=self._look if is_own else None,
        )
        return channel

    def _drop(self, is_own: bool) -> None:
        """Who waits there hears that the connection is closed, and asks again."""
        channel = self._channels.pop(is_own, None)
        if channel is not None:
            task = asyncio.get_running_loop().create_task(channel.close(), name="close the way to a controller")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _look(self, _: int) -> None:
        """A broker whose connection was closed says at once that it lives: it may be thought dead by now."""
        channel = self._channels.get(True)
        if channel is not None and isinstance(channel.last_failure, DisconnectedError) and not self._is_closed:
            self.on_lost()

    # What the loader calls

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Nothing: who leads is no record."""

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id < 0 or self._is_closed:
            return
        for is_own in [each for each, channel in self._channels.items() if channel.node_id != leader.leader_id]:
            self._drop(is_own)
        # The new one knows by a connection sooner than by a timeout that a broker is gone.
        self.on_lost()

    @staticmethod
    async def _forward(
        channel: Channel, request: Request, version: int, caller: AuthorizableRequestContext
    ) -> Response:
        kind, _, name = caller.principal.partition(":")
        principal = DefaultPrincipalData(type=kind, name=name, token_authenticated=caller.is_token_authenticated)
        envelope = EnvelopeRequest(
            request_data=b"".join(map(bytes, encode_request(request, version, 0, caller.client_id))),
            request_principal=_PRINCIPAL_VERSION.to_bytes(2, "big") + principal.encode(_PRINCIPAL_VERSION),
            client_host_address=ip_address(caller.client_host).packed,
        )
        enveloped = cast(EnvelopeResponse, await channel.request(envelope))
        if enveloped.error_code:
            raise BrokerError(ErrorCode.of(enveloped.error_code), "the controller did not take the forwarded request")
        try:
            return decode_response(api(request.API_KEY).response, version, enveloped.response_data or b"")[1]
        except RemoteProtocolError as problem:
            name = ApiKey(request.API_KEY).camel_name
            raise BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer to {name} cannot be read: {problem}"
            ) from None

    async def _until_seen(self, request: Request, response: Response) -> None:
        """Wait until this broker acts by what was decided; not for long if it was decided elsewhere."""
        if not await self._until_applied(self._quorum.high_watermark - 1):
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "the node is stopping")
        if self._quorum.leader.leader_id == self._quorum.node_id:
            return
        for _ in range(_LOOKS):
            if self._is_visible(request, response):
                return
            await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.gather(*(each.close() for each in self._channels.values()), *self._closing)


#: How long an answer waits for its broker to see what another node decided: so often, for so long.
_LOOKS: Final = 100
_LOOK_S: Final = 0.01
