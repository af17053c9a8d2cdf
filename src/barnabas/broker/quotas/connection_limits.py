"""Limits of connections, put into force once it is known which addresses the hosts have that they name."""

from __future__ import annotations

import asyncio

from barnabas.base.log_context import logger
from barnabas.broker.configs.part_options import server_limits
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.access_images import ClientQuotasImage
from barnabas.metadata.client_quotas import CONNECTION_CREATION_RATE, IP
from barnabas.net import Server
from barnabas.net.host_names import HostNames

_log = logger("barnabas.broker")


class ConnectionLimits:
    """By settings (`max.connections…`) and by quotas of addresses. Names are looked up when either changes; while that
    takes, the limits that do not depend on it hold already."""

    def __init__(self, server: Server, settings: BrokerSettings) -> None:
        self._server = server
        self._settings = settings
        self._rates: dict[str | None, float] = {}
        self._hosts = HostNames()
        self._looking: asyncio.Task[None] | None = None
        self._is_changed = False
        self._unknown: list[str] = []

    async def start(self) -> None:
        """Before anybody may connect."""
        await self._look_up()

    def set_settings(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._changed()

    def set_quotas(self, quotas: ClientQuotasImage) -> None:
        rates: dict[str | None, float] = {}
        if quotas.has_any(CONNECTION_CREATION_RATE):
            for entity, values in quotas.items():
                if entity.names[0][0] == IP and CONNECTION_CREATION_RATE in values:
                    rates[entity.names[0][1]] = values[CONNECTION_CREATION_RATE]
        if rates != self._rates:
            self._rates = rates
            self._changed()

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _changed(self) -> None:
        self._apply()
        if any(not self._hosts.is_known(name) for name in self._names()):
            self._is_changed = True
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(self._look_up_all(), name="look up hosts")

    async def _look_up_all(self) -> None:
        while self._is_changed:
            self._is_changed = False
            await self._look_up()

    async def _look_up(self) -> None:
        await self._hosts.look_up(self._names())
        self._apply()
        unknown = [name for name in self._names() if not self._hosts.is_known(name)]
        if unknown and unknown != self._unknown:
            _log.warning("Limits of connections name hosts whose address nobody knows: %s", ", ".join(unknown))
        self._unknown = unknown

    def _names(self) -> list[str]:
        return [*self._settings.connection_limits, *(name for name in self._rates if name is not None)]

    def _apply(self) -> None:
        self._server.set_limits(server_limits(self._settings, self._hosts.address))
        by_address = {
            address: rate
            for name, rate in self._rates.items()
            if name is not None and (address := self._hosts.address(name)) is not None
        }
        self._server.set_connection_rates(self._rates.get(None), by_address)
