"""InitProducerId: ids that nobody has had, from blocks of the controller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.data.producer_ids import ProducerIdPool
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.data_plane import DataPlane, code_of


@pytest.fixture
def plane() -> DataPlane:
    return DataPlane()


def init(plane: DataPlane, version: int = 5, **how: Any) -> Any:
    given: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000, **how}
    return plane.ask(InitProducerIdRequest(**given), version)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(plane: DataPlane, version: int) -> None:
    answers = [init(plane, version) for _ in range(3)]
    assert [(code_of(each), each.producer_id, each.producer_epoch) for each in answers] == [
        ("NONE", 0, 0),
        ("NONE", 1, 0),
        ("NONE", 2, 0),
    ]


def test_what_it_was_before_makes_no_difference(plane: DataPlane) -> None:
    assert init(plane, producer_id=77, producer_epoch=5).producer_id == 0


def test_the_next_block_comes_before_it_is_needed(plane: DataPlane) -> None:
    ids = [init(plane).producer_id for _ in range(2500)]
    assert ids == list(range(2500))
    assert plane.blocks == 3
    # Nobody had to wait but the very first.
    answers = [plane.begin(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)) for _ in range(1500)]
    assert not any(isinstance(each, asyncio.Future) for each in answers)


def test_without_a_block_clients_ask_again(plane: DataPlane) -> None:
    is_available = False

    class Controller:
        async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
            if not is_available:
                raise BrokerError(ErrorCode.NOT_CONTROLLER, "no controller")
            return AllocateProducerIdsResponse(producer_id_start=5000, producer_id_len=1000)

    plane.services.producer_ids = ProducerIdPool(Controller(), 1, lambda: 7)
    assert code_of(init(plane)) == "COORDINATOR_LOAD_IN_PROGRESS"
    is_available = True
    assert init(plane).producer_id == 5000


def test_many_that_wait_for_one_block_get_different_ids(plane: DataPlane) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    waiting = [plane.begin(request) for _ in range(5)]
    ids = [(plane.run(each) if isinstance(each, asyncio.Future) else each).producer_id for each in waiting]
    assert sorted(ids) == [0, 1, 2, 3, 4]
    assert plane.blocks == 1
