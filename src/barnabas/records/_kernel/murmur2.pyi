from typing_extensions import Buffer

def murmur2(key: Buffer) -> int:
    """The signed 32-bit hash of `key`. Partitioners use it as `(murmur2(key) & 0x7FFFFFFF) % partitions`."""
