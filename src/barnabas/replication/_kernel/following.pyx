"""What changes with every fetch, and a glance at those partitions in which nothing else does."""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from barnabas.storage._kernel.appending cimport LogTail


cdef class FetchPosition:
    cdef public tuple key
    cdef public int64_t fetch_offset
    cdef public int64_t follower_log_start_offset
    cdef public int64_t high_watermark
    cdef public int64_t log_start_offset
    cdef public int32_t last_fetched_epoch
    cdef public int32_t leader_epoch
    cdef public int32_t max_bytes


cdef class FollowerPosition:
    cdef public int64_t log_end_offset
    cdef public int64_t log_start_offset
    cdef public int64_t last_fetch_leader_log_end_offset
    cdef public int64_t last_fetch_ms
    cdef public int64_t last_caught_up_ms
    cdef public object broker_epoch

    cpdef fetched(
        self,
        int64_t log_end_offset,
        int64_t log_start_offset,
        int64_t leader_log_end_offset,
        object broker_epoch,
        int64_t now_ms,
    ):
        if log_end_offset >= leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif log_end_offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.last_fetch_leader_log_end_offset = max(self.last_fetch_leader_log_end_offset, leader_log_end_offset)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch


cdef class TopicMeter:
    """What was written to, and read from, the partitions of a topic that are on this node, since it started."""


cdef class RoleFields:
    """The fields of a role; they are declared where others can see them."""


cdef class Glance:
    cdef dict _index
    cdef type _leader_type

    def over(self, positions, bint is_first, int64_t now_ms, dict offsets, dict seen_bytes):
        cdef FetchPosition wanted
        cdef RoleFields role
        cdef PyObject* found
        cdef list rest = []
        for wanted in positions:
            found = PyDict_GetItem(self._index, wanted.key)
            role = None
            if found is not NULL:
                leader = (<object>found).role
                if type(leader) is self._leader_type:
                    role = <RoleFields>leader
            if role is None or not self._is_quiet(wanted, role, is_first, now_ms):
                rest.append(wanted)
                continue
            offsets[role] = wanted.fetch_offset
            if seen_bytes is not None:
                seen_bytes[role] = role.appended_bytes
        return rest

    cdef bint _is_quiet(self, FetchPosition wanted, RoleFields role, bint is_first, int64_t now_ms) except -1:
        raise NotImplementedError


cdef class FollowerGlance(Glance):
    cdef object _replica
    cdef object _broker_epoch

    def __init__(self, dict index, type leader_type, int replica, broker_epoch):
        self._index = index
        self._leader_type = leader_type
        self._replica = replica
        self._broker_epoch = broker_epoch

    cdef bint _is_quiet(self, FetchPosition wanted, RoleFields role, bint is_first, int64_t now_ms) except -1:
        cdef FollowerPosition follower
        cdef LogTail log = role.log
        cdef PyObject* found
        if (
            role.leader_epoch != wanted.leader_epoch
            or log.log_end_offset != wanted.fetch_offset
            or log.high_watermark != wanted.high_watermark
            or log.log_start_offset != wanted.log_start_offset
        ):
            return False
        if wanted.last_fetched_epoch >= 0 and log.epochs.latest_epoch != wanted.last_fetched_epoch:
            return False
        leader = <object>role
        found = PyDict_GetItem(leader.followers, self._replica)
        if found is NULL:
            return False
        if is_first:
            follower = <object>found
            if (
                follower.log_end_offset != wanted.fetch_offset
                or follower.log_start_offset != wanted.follower_log_start_offset
                or follower.broker_epoch != self._broker_epoch
                or self._replica not in leader.maximal_isr
            ):
                return False
            follower.fetched(
                wanted.fetch_offset, follower.log_start_offset, log.log_end_offset, self._broker_epoch, now_ms
            )
        return True


cdef class ConsumerGlance(Glance):
    cdef object _is_allowed
    cdef object _allowed_topic

    def __init__(self, dict index, type leader_type, is_allowed):
        self._index = index
        self._leader_type = leader_type
        self._is_allowed = is_allowed
        self._allowed_topic = None

    cdef bint _is_quiet(self, FetchPosition wanted, RoleFields role, bint is_first, int64_t now_ms) except -1:
        cdef LogTail log = role.log
        if (
            (wanted.leader_epoch >= 0 and role.leader_epoch != wanted.leader_epoch)
            or wanted.last_fetched_epoch >= 0
            or log.high_watermark != wanted.fetch_offset
            or log.high_watermark != wanted.high_watermark
            or log.log_start_offset != wanted.log_start_offset
        ):
            return False
        topic = wanted.key[0]
        if topic is not self._allowed_topic:
            if not self._is_allowed(role.partition):
                return False
            self._allowed_topic = topic
        return True


def watch_to_the_end(delayed, dict offsets, dict seen_bytes):
    cdef RoleFields role
    cdef dict own_seen_bytes = {}
    for role in offsets:
        own_seen_bytes[role] = role.appended_bytes if seen_bytes is None else seen_bytes[role]
        role.delayed[delayed] = None
    return own_seen_bytes


def unwatch(delayed, dict offsets):
    cdef RoleFields role
    for role in offsets:
        if delayed in role.delayed:
            del role.delayed[delayed]


def moved(dict seen_bytes):
    cdef RoleFields role
    return [role for role, seen in seen_bytes.items() if role.is_over or role.appended_bytes != seen]
