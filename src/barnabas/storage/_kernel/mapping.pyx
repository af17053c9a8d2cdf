# cython: boundscheck=False, wraparound=False
"""Parts of files as memory that the kernel sends from, without a copy of them in the process.

Only the kernel should look at it: where another cuts the file meanwhile, a system call fails with EFAULT, but a look of
our own would end the process.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <unistd.h>
    static int holds(int descriptor, long long end) {
        struct stat found;
        return fstat(descriptor, &found) == 0 && found.st_size >= end;
    }
    #ifdef __linux__
    static int resident(void *start, size_t size, unsigned char *pages) { return mincore(start, size, pages); }
    #else
    static int resident(void *start, size_t size, unsigned char *pages) { return -1; }
    #endif
    """
    void *mmap(void *address, size_t size, int protection, int flags, int descriptor, long long position) nogil
    int munmap(void *address, size_t size) nogil
    bint holds(int descriptor, long long end) nogil
    int resident(void *start, size_t size, unsigned char *pages) nogil
    int getpagesize() nogil
    const int PROT_READ, MAP_SHARED
    void *MAP_FAILED


cdef class FileMapping:
    """Holds the mapping for as long as anybody has a view of it."""

    cdef void *_start
    cdef size_t _mapped_bytes
    cdef Py_ssize_t _skipped_bytes, _size_bytes

    def __dealloc__(self):
        if self._start != NULL:
            munmap(self._start, self._mapped_bytes)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <char *> self._start + self._skipped_bytes, self._size_bytes, 1, flags)


def map_resident(int descriptor, long long position, Py_ssize_t size_bytes):
    """A view of part of a file if all of it is there and in memory; else None, also where nobody can tell."""
    if not holds(descriptor, position + size_bytes):
        return None  # what a page holds behind the end of its file are zeros
    cdef Py_ssize_t page_bytes = getpagesize(), skipped_bytes = position % page_bytes
    cdef size_t mapped_bytes = skipped_bytes + size_bytes
    cdef size_t page_count = (mapped_bytes + page_bytes - 1) // page_bytes, at = 0
    cdef void *start = mmap(NULL, mapped_bytes, PROT_READ, MAP_SHARED, descriptor, position - skipped_bytes)
    if start == MAP_FAILED:
        return None
    cdef FileMapping mapping = FileMapping.__new__(FileMapping)
    mapping._start, mapping._mapped_bytes = start, mapped_bytes
    mapping._skipped_bytes, mapping._size_bytes = skipped_bytes, size_bytes
    cdef unsigned char *pages = <unsigned char *> malloc(page_count)
    if pages == NULL:
        return None
    cdef bint is_resident = resident(start, mapped_bytes, pages) == 0
    while is_resident and at < page_count:
        is_resident = pages[at] & 1
        at += 1
    free(pages)
    return memoryview(mapping) if is_resident else None
