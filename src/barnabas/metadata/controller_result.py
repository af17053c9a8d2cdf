"""What the controller makes of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from barnabas.wire.stored.cluster_metadata import MetadataRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """The records that a request needs, all or none, and the answer that may be given once they are committed.

    Nothing has changed yet: state changes only when the records are replayed.
    """

    response: T
    records: list[MetadataRecord] = field(default_factory=list)
