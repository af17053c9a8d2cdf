from typing_extensions import Buffer

class KeyMap:
    """The highest offset of every key, as far as `limit_bytes` of memory reach.

    While the table doubles, its old half is there too, beyond the limit. The first key always gets in, however large,
    so that whoever empties a log piece by piece gets on.
    """

    def __init__(self, limit_bytes: int) -> None: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """The memory that the map has taken."""
    @property
    def key_count(self) -> int: ...
    def __len__(self) -> int: ...
    def get(self, key: Buffer) -> int | None:
        """The offset of a key, or None."""
    def add(
        self, payload: Buffer, record_count: int, base_offset: int, last_offset_delta: int, from_offset: int
    ) -> int | None:
        """Take the keys of the records from `from_offset` on. Null keys do not count.

        Returns None, or the offset of the first record whose key found no room; nothing from there on was taken.
        """
