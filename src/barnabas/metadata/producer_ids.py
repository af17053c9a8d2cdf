"""Producer ids, handed to brokers in blocks, so that no id is ever used twice."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.settings.units import LONG_MAX
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.image import ClusterImage
from barnabas.wire.stored.cluster_metadata import ProducerIdsRecord

BLOCK_SIZE: Final = 1000


def allocate_producer_ids(image: ClusterImage, broker_id: int, broker_epoch: int) -> ControllerResult[tuple[int, int]]:
    """The next block: its first id, and how many there are. A broker that stops wastes the rest of its block."""
    first = image.next_producer_id
    if first > LONG_MAX - BLOCK_SIZE:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been used")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return ControllerResult((first, BLOCK_SIZE), [record])
