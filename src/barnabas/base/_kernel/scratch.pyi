def scratch(size_bytes: int) -> bytearray:
    """So many bytes of unknown content. Pages that are never written cost nothing, unlike those of `bytearray(n)`."""
