"""Who wants transactions, which are not built, is refused, and told of once."""

from __future__ import annotations

import pytest

from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.data_plane import DataPlane, batch, produce_request

_TRANSACTION = 1


def find(plane: DataPlane, *ids: str, client: str = "app") -> None:
    plane.ask(FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=list(ids)), client_id=client)


def test_each_client_and_id_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    plane = DataPlane()
    plane.create_topic("t")
    for _ in range(3):
        find(plane, "tx")
        plane.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1), client_id="app")
        plane.ask(produce_request({("t", 0): batch([b"x"])}, transactional_id="tx"), 12, client_id="app")
    assert caplog.messages == [
        "client 'app' wants to use the transactional id 'tx' and is refused: "
        "transactions are not served by this node: its transaction coordinator is not built"
    ]
    find(plane, "tx", client="another")
    find(plane, "other")
    assert len(caplog.messages) == 3


def test_what_is_told_and_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    plane = DataPlane()
    for number in range(30):
        find(plane, *(f"{number}-{each}-" + "x" * 1000 for each in range(10)))
    assert len(caplog.messages) == 201
    assert max(map(len, caplog.messages)) < 300
    assert "further ones are not told of" in caplog.messages[-1]


def test_the_reason_is_in_the_answer() -> None:
    plane = DataPlane()
    several = plane.ask(FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=["tx"])).coordinators[0]
    one = plane.ask(FindCoordinatorRequest(key_type=_TRANSACTION, key="tx"), 3)
    for answer in (several, one):
        assert "transaction coordinator is not built" in answer.error_message
