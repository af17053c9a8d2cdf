from typing_extensions import Buffer

from barnabas.records._kernel.keymap import KeyMap

class Retained:
    """What is left of a batch's records."""

    @property
    def record_count(self) -> int: ...
    @property
    def tombstone_count(self) -> int:
        """Of those that are left, how many have no value."""
    @property
    def keyless_count(self) -> int:
        """How many went because they had no key."""
    @property
    def max_timestamp_ms(self) -> int:
        """As the producer wrote it; -1 if nothing is left."""
    @property
    def records(self) -> bytearray | None:
        """The bytes of what is left, behind the room asked for; None if all or nothing is left."""

def retain(
    keys: KeyMap,
    payload: Buffer,
    record_count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    *,
    end_offset: int,
    keep_tombstones: bool,
    head_bytes: int,
) -> Retained:
    """Leave out the records below `end_offset` that have no key, that `keys` knows a higher offset for, or that are
    tombstones unless those are kept.

    The records that are left come as they were, behind `head_bytes` of room; only if some went and some stayed.
    """

def rebase_timestamps(
    payload: Buffer, record_count: int, base_timestamp_ms: int, new_base_timestamp_ms: int, *, head_bytes: int
) -> bytearray:
    """The same records with their timestamps counted from another base, behind `head_bytes` of room."""
