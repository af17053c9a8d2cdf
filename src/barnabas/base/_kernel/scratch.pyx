"""Memory to write into that nobody has to clear first."""

from cpython.bytearray cimport PyByteArray_FromStringAndSize


def scratch(Py_ssize_t size_bytes) -> bytearray:
    """So many bytes of unknown content. Pages that are never written cost nothing, unlike those of `bytearray(n)`."""
    return PyByteArray_FromStringAndSize(NULL, size_bytes)
