def map_resident(descriptor: int, position: int, size_bytes: int) -> memoryview | None:
    """A view of part of a file if all of it is there and in memory; else None, also where nobody can tell."""
