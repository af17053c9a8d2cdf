"""How a broker joins its cluster, stays in it, and leaves: register, be unfenced, be heard of, hand over.

Kafka's BrokerLifecycleManager. Heartbeats never wait for metadata to be applied, nor behind requests of clients: a
broker that is late with one is fenced.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.broker.controller.controller_channel import broker_caller
from barnabas.broker.quorum.formatting import NodeIdentity
from barnabas.broker.services import Services
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.features import SUPPORTED
from barnabas.metadata.image import ClusterImage
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

_log = logger("barnabas.broker")

#: How soon a broker asks again that waits to be unfenced, or to be let go.
_EAGER_MS: Final = 50
#: How long a broker waits at most before it asks again to be registered: a controller may log each refusal.
_PATIENT_MS: Final = 400
#: How long a broker that stops waits for an answer.
_LAST_WORD_S: Final = 2.0
#: As long as Kafka's brokers wait until others lead what they led.
_LONGEST_HAND_OVER_S: Final = 300.0
#: Refusals that time heals: the old session of this broker has not ended yet, or nobody leads.
_PASSING: Final = (
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)


class BrokerState(IntEnum):
    """Where a broker is between start and stop; the numbers are Kafka's."""

    NOT_RUNNING = 0
    STARTING = 1
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class BrokerLifecycle:
    """This broker's membership. `epoch` is -1 until it is a member. `on_failure` is told if it cannot stay one.

    `newest_image` is what is committed, which the broker may not act by yet.
    """

    def __init__(
        self,
        services: Services,
        identity: NodeIdentity,
        settings: BrokerSettings,
        newest_image: Callable[[], ClusterImage],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._services = services
        self._newest_image = newest_image
        self._caller = broker_caller(identity.node_id)
        self._identity = identity
        self._settings = settings
        self._on_failure = on_failure
        self._incarnation_id = Uuid.random(services.runtime.randomness)
        # Once for all: a directory that fails later says nothing about the last stop.
        self._previous_epoch = services.logs.previous_broker_epoch
        self._beating: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()
        self._has_left = False
        self.epoch = -1
        self.state = BrokerState.STARTING

    def nudge(self) -> None:
        """Say at once that this broker lives."""
        self._nudged.set()

    # Joining

    async def join(self) -> None:
        """Wait to be unfenced; from then on clients are sent here, and the partitions have a leader again."""
        while (await self._heartbeat()).is_fenced:  # noqa: ASYNC110
            await asyncio.sleep(_EAGER_MS / 1000)
        _log.info("Broker %d has been unfenced: it has caught up, and serves clients", self._identity.node_id)
        self.state = BrokerState.RUNNING
        self._beating = asyncio.get_running_loop().create_task(self._beat(), name="heartbeats of this broker")

    async def register(self) -> None:
        """Be a member under a new epoch, but a fenced one. The controller knows by this how the last life ended."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._settings.initial_broker_registration_timeout_ms / 1000
        told = False
        pause_ms = _EAGER_MS
        while True:
            try:
                self.epoch = await self._ask_for_registration()
                _log.info("Broker %d is registered in epoch %d, and fenced for now", self._identity.node_id, self.epoch)
                return
            except BrokerError as problem:
                refusal = self._explained(problem)
                if refusal.code not in _PASSING or loop.time() >= deadline_s:
                    raise refusal from None
                if not told:
                    told = True
                    _log.info("Broker %d waits to be registered: %s", self._identity.node_id, refusal)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, _PATIENT_MS)

    def _explained(self, refusal: BrokerError) -> BrokerError:
        """With both sides in it: the controller answers with a number."""
        node_id = self._identity.node_id
        if refusal.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
            why = f"broker {node_id} belongs to the cluster {self._identity.cluster_id}, and the controllers to another"
            return BrokerError(refusal.code, why)
        known = self._newest_image().brokers.get(node_id)
        if refusal.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION or known is None:
            return refusal
        own = advertised_listeners(self._settings, self._services.endpoints)[0]
        other = known.endpoint(own.name)
        where = "elsewhere" if other is None else f"at {other.host}:{other.port}"
        return BrokerError(
            refusal.code,
            f"node.id = {node_id}, and this node is at {own.host}:{own.port}, but a broker with this id is registered "
            f"and alive {where}; if it is not this one before it was started again, give one of them another node.id",
        )

    async def _ask_for_registration(self) -> int:
        request = BrokerRegistrationRequest(
            broker_id=self._identity.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=advertised_listeners(self._settings, self._services.endpoints),
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
            rack=self._settings.broker_rack,
            log_dirs=self._directories(online=True),
            previous_broker_epoch=self._previous_epoch,
        )
        response = await self._services.controller.submit(
            request, api(ApiKey.BROKER_REGISTRATION).served.high, self._caller
        )
        registered = cast(BrokerRegistrationResponse, response)
        _check(registered.error_code, "registered")
        return registered.broker_epoch

    def _directories(self, *, online: bool) -> list[Uuid]:
        """The ids of this broker's directories that are at work, or that have failed."""
        ids = self._identity.directory_ids
        return [ids[each.path] for each in self._services.logs.directories if each.is_online is online]

    # Staying

    async def _beat(self) -> None:
        interval_s = self._settings.broker_heartbeat_interval_ms / 1000
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._nudged.wait()
            self._nudged.clear()
            try:
                await self._heartbeat()
            except BrokerError as refusal:
                if refusal.code is ErrorCode.STALE_BROKER_EPOCH:
                    await self._register_again()
                else:
                    _log.warning("a heartbeat of broker %d was not taken: %s", self._identity.node_id, refusal)
            except BarnabasError as failure:
                _log.warning("a heartbeat of broker %d was not taken: %s", self._identity.node_id, failure)

    async def _register_again(self) -> None:
        """Somebody forgot this broker, or took its id: under its own name it comes back, under another's it ends."""
        _log.warning("the controller does not know broker %d any more; it registers again", self._identity.node_id)
        try:
            await self.register()
        except BarnabasError as failure:
            self._on_failure(failure)

    async def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._services.metadata.image.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
            offline_log_dirs=self._directories(online=False),
        )
        response = await self._services.controller.submit(
            request, api(ApiKey.BROKER_HEARTBEAT).served.high, self._caller
        )
        heard = cast(BrokerHeartbeatResponse, response)
        _check(heard.error_code, "heard")
        return heard

    # Leaving

    async def leave(self) -> None:
        """Say that this broker stops, and wait until its partitions are led by others, or by nobody. Once is enough."""
        has_left, self._has_left = self._has_left, True
        if self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        try:
            await self._hand_over(has_left)
        finally:
            self.state = BrokerState.SHUTTING_DOWN

    async def _hand_over(self, has_left: bool) -> None:
        await self.stop()
        if has_left or self.epoch < 0 or not self._settings.controlled_shutdown_enable:
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        deadline_s = began_s + _LONGEST_HAND_OVER_S
        try:
            while loop.time() < deadline_s:
                # When the whole cluster stops, nobody is left to answer the last ones.
                async with asyncio.timeout(_LAST_WORD_S):
                    heard = await self._heartbeat(want_shut_down=True)
                if heard.should_shut_down:
                    _log.info("Controlled shutdown succeeded after %.3f s", loop.time() - began_s)
                    return
                await asyncio.sleep(_EAGER_MS / 1000)
            _log.error("Timed out waiting for the controller to approve controlled shutdown")
        except (BarnabasError, TimeoutError) as failure:
            _log.warning(
                "the controller was not told that this broker stops: %s", str(failure) or "there was no answer"
            )

    async def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None


def advertised_listeners(settings: BrokerSettings, bound: Mapping[str, tuple[str, int]]) -> list[Listener]:
    """Where clients are sent; where a port was left to the system, the one that it chose."""
    return [
        Listener(
            name=each.listener,
            host=each.host or bound[each.listener][0] or "localhost",
            port=each.port or bound[each.listener][1],
            security_protocol=settings.security_protocol_id(each.listener),
        )
        for each in settings.advertised_endpoints
    ]


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(ErrorCode.of(code), f"the controller has not {what} this broker")
