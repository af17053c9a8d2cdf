"""How a broker joins its cluster and leaves it: register, be unfenced, hand over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.broker.controller.controller_channel import broker_caller
from barnabas.broker.quorum.formatting import NodeIdentity
from barnabas.broker.services import Services
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.features import SUPPORTED
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

_PLAINTEXT: Final = 0


class Registration:
    """This broker's membership, from registering to leaving. `epoch` is -1 until it is a member."""

    def __init__(self, services: Services, identity: NodeIdentity, settings: BrokerSettings) -> None:
        self._services = services
        self._caller = broker_caller(identity.node_id)
        self._identity = identity
        self._settings = settings
        self.epoch = -1

    async def join(self) -> None:
        """Register under a new epoch; from then on clients are sent here, and the partitions have a leader again."""
        request = BrokerRegistrationRequest(
            broker_id=self._identity.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=Uuid.random(self._services.runtime.randomness),
            listeners=advertised_listeners(self._settings, self._services.endpoints),
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
            rack=self._settings.broker_rack,
            log_dirs=[self._identity.directory_ids[path] for path in self._settings.data_dirs],
        )
        response = await self._services.controller.submit(
            request, api(ApiKey.BROKER_REGISTRATION).served.high, self._caller
        )
        registered = cast(BrokerRegistrationResponse, response)
        _check(registered.error_code, "registered")
        self.epoch = registered.broker_epoch
        await self._heartbeat(want_shut_down=False)

    async def leave(self) -> None:
        """Say that this broker stops, so that its partitions are led by others, or by nobody, before it is gone."""
        if self.epoch >= 0:
            await self._heartbeat(want_shut_down=True)

    async def _heartbeat(self, *, want_shut_down: bool) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._services.metadata.image.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
        )
        response = await self._services.controller.submit(
            request, api(ApiKey.BROKER_HEARTBEAT).served.high, self._caller
        )
        _check(cast(BrokerHeartbeatResponse, response).error_code, "heard")


def advertised_listeners(settings: BrokerSettings, bound: Mapping[str, tuple[str, int]]) -> list[Listener]:
    """Where clients are sent; where a port was left to the system, the one that it chose."""
    return [
        Listener(
            name=each.listener,
            host=each.host or bound[each.listener][0] or "localhost",
            port=each.port or bound[each.listener][1],
            security_protocol=_PLAINTEXT,
        )
        for each in settings.advertised_endpoints
    ]


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(ErrorCode.of(code), f"the controller has not {what} this broker")
