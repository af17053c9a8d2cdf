"""This controller tells the active one where it listens and which levels it supports (ControllerRegistrationManager).

It does so once in a life: what counts is that the metadata log has its registration. Below metadata.version 15 nobody
takes note of controllers, so it waits until the level is raised.

Two processes with one id would both vote. The log tells them of each other: each puts its own registration in the place
of the other's. Who finds that the one it replaced lives and has come back is the second, and cannot go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.broker.controller.controller_channel import ControllerChannel, broker_caller
from barnabas.metadata.features import CONTROLLER_REGISTRATION, SUPPORTED
from barnabas.metadata.image import ClusterImage, ControllerImage
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

_log = logger("barnabas.controller")

_FIRST_BACKOFF_MS: Final = 100
_LONGEST_BACKOFF_MS: Final = 120_000


class ControllerRegistrationManager:
    """`start` begins once there is a way to the active controller; `on_metadata_update` is told of every image, and
    `on_failure` if another process has the id of this one."""

    def __init__(
        self,
        node_id: int,
        listeners: Sequence[Listener],
        randomness: Random,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._request = ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=Uuid.random(randomness),
            zk_migration_ready=False,
            listeners=list(listeners),
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
        )
        self._caller = broker_caller(node_id)
        self._on_failure = on_failure
        # Those who had our id before us. One that has stopped stays away.
        self._predecessors: set[Uuid] = set()
        self._was_registered = False
        self._image = ClusterImage()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_metadata_update(self, image: ClusterImage) -> None:
        self._image = image
        self._changed.set()
        known = image.controllers.get(self._request.controller_id)
        if known is None:
            return
        if known.incarnation_id == self._request.incarnation_id:
            self._was_registered = True
        elif not self._was_registered:
            self._predecessors.add(known.incarnation_id)
        elif known.incarnation_id in self._predecessors:
            self._on_failure(BarnabasError(self._told_of(known)))
        else:
            _log.error("%s", self._told_of(known))

    def _told_of(self, other: ControllerImage) -> str:
        own, its = (
            ", ".join(f"{each.host}:{each.port}" for each in listeners)
            for listeners in (self._request.listeners, other.endpoints)
        )
        return (
            f"two controllers have node.id = {self._request.controller_id}: this one at {own}, and one at {its} that "
            "has registered after it; give one of them another node.id, or stop it"
        )

    def start(self, channel: ControllerChannel) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(channel), name="register this controller")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _is_due(self) -> bool:
        known = self._image.controllers.get(self._request.controller_id)
        is_registered = known is not None and known.incarnation_id == self._request.incarnation_id
        return not is_registered and (self._image.features.metadata_version or 0) >= CONTROLLER_REGISTRATION

    async def _run(self, channel: ControllerChannel) -> None:
        backoff_ms = _FIRST_BACKOFF_MS
        while True:
            while not self._is_due:
                self._changed.clear()
                await self._changed.wait()
            try:
                if self._was_registered:
                    # Somebody else is in our place, and may do the same: not as fast as both can.
                    await asyncio.sleep(backoff_ms / 1000)
                    backoff_ms = min(2 * backoff_ms, _LONGEST_BACKOFF_MS)
                await self._register(channel)
                # It is answered when it is committed, and known here a moment later.
                self._changed.clear()
                await self._changed.wait()
            except BarnabasError as refusal:
                _log.info("Controller %d is not registered yet: %s", self._request.controller_id, refusal)
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, _LONGEST_BACKOFF_MS)

    async def _register(self, channel: ControllerChannel) -> None:
        version = api(ApiKey.CONTROLLER_REGISTRATION).served.high
        response = cast(ControllerRegistrationResponse, await channel.submit(self._request, version, self._caller))
        if response.error_code:
            raise BrokerError(ErrorCode.of(response.error_code), response.error_message)
