"""The walk over entries, for those who read the usual ones of them without making an object of each."""


cdef class EntryWalk:
    cdef memoryview view
    cdef object make
    cdef object make_old
    cdef readonly Py_ssize_t position
