"""A broker that starts acts by nothing that the metadata log says of its last life."""

from __future__ import annotations

import pytest

from barnabas.broker.broker_server import BrokerServer
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.testing.sim.world import World


def test_its_registration_is_in_the_first_image_that_it_acts_by(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[tuple[int, int]] = []
    apply = BrokerServer._apply

    async def noted(self: BrokerServer, image: ClusterImage, delta: ClusterDelta) -> None:
        applied.append((self.broker_epoch, image.brokers[1].epoch if 1 in image.brokers else -1))
        await apply(self, image, delta)

    monkeypatch.setattr(BrokerServer, "_apply", noted)
    with World(1) as world:

        async def story() -> None:
            node = await world.start_node()
            first = applied[0]
            node.power_off()
            applied.clear()
            await node.start()
            assert min(first) >= 0
            assert applied[0][0] == applied[0][1] > first[0]

        world.run(story())
