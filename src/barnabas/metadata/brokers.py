"""Brokers join, stay alive by heartbeats, are fenced and leave."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.elections import (
    changes_when_directories_fail,
    changes_when_fenced,
    changes_when_restarted,
    changes_when_unfenced,
    changes_when_unregistered,
    leads_anything,
)
from barnabas.metadata.features import DIRECTORY_ASSIGNMENT
from barnabas.metadata.image import BrokerImage, ClusterImage
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.partition_changes import Election
from barnabas.metadata.registrations import requested_end_points, requested_features
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.stored.cluster_metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

_log = logger("barnabas.controller")

_FENCE = 1
_UNFENCE = -1
_SHUTTING_DOWN = 1
#: Of BrokerRegistration.
_FIRST_WITH_PREVIOUS_EPOCH = 3


@dataclass(slots=True)
class _Session:
    epoch: int
    last_contact_ms: int
    metadata_offset: int = -1
    #: What the broker's registration or its shutdown must have reached before it goes on.
    registration_offset: int = -1
    shutdown_offset: int = -1
    #: Why the broker is probably gone, if it is and was not heard of since.
    shortened_since: str | None = None


class BrokerSessions:
    """Who has been heard of lately. Lives with the active controller only: a new one gives everybody a fresh start."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}

    def begin(self, image: ClusterImage, now_ms: int) -> None:
        """This controller has just become the active one."""
        self._sessions = {
            broker_id: _Session(broker.epoch, now_ms, registration_offset=broker.epoch)
            for broker_id, broker in image.brokers.items()
            if not broker.is_fenced
        }

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> _Session:
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch, now_ms, registration_offset=epoch)
        session.last_contact_ms = now_ms
        session.shortened_since = None
        return session

    def silent_ms(self, now_ms: int) -> dict[int, int]:
        """How long nothing was heard of each broker."""
        return {broker_id: now_ms - each.last_contact_ms for broker_id, each in self._sessions.items()}

    def registered(self, broker_id: int, epoch: int, offset: int) -> None:
        """The registration has this offset in the log; the broker may work once it has read so far."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.registration_offset = offset

    def forget(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def shorten(self, broker_id: int, now_ms: int, grace_ms: int, timeout_ms: int, reason: str) -> None:
        session = self._sessions.get(broker_id)
        if session is not None:
            session.last_contact_ms = min(session.last_contact_ms, now_ms + grace_ms - timeout_ms)
            session.shortened_since = reason

    def shortened_since(self, broker_id: int) -> str | None:
        """Why a session was made shorter, if it was."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.shortened_since

    def is_alive(self, broker: BrokerImage, now_ms: int, timeout_ms: int) -> bool:
        session = self._sessions.get(broker.broker_id)
        return session is not None and session.epoch == broker.epoch and now_ms < session.last_contact_ms + timeout_ms

    def lowest_active_offset(self, image: ClusterImage) -> int:
        """How far every broker that works has read the metadata."""
        active = (broker for broker in image.brokers.values() if not broker.is_fenced)
        offsets = [
            self._sessions[each.broker_id].metadata_offset for each in active if each.broker_id in self._sessions
        ]
        return min(offsets, default=2**63 - 1)


def register_broker(
    image: ClusterImage,
    options: ControllerOptions,
    sessions: BrokerSessions,
    request: BrokerRegistrationRequest,
    version: int,
    next_offset: int,
    now_ms: int,
) -> ControllerResult[BrokerRegistrationResponse]:
    """Take a broker in, fenced. Its epoch is the offset at which this is written, so each registration has a new one.

    A broker that asks twice within one life keeps its epoch. One that comes back after a restart first gives up what
    its former self led: that one is gone, also if nobody has noticed yet. It stopped cleanly if it names the epoch
    that its former self had: it found it in the files that are written last of all.
    """
    existing = image.brokers.get(request.broker_id)
    _check_registration(image, options, request)
    is_same_life = existing is not None and existing.incarnation_id == request.incarnation_id
    is_alive = existing is not None and sessions.is_alive(existing, now_ms, options.broker_session_timeout_ms)
    if existing is not None and is_alive and not is_same_life and not existing.in_controlled_shutdown:
        raise BrokerError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"a broker {request.broker_id} is registered and alive; if it has just been restarted, "
            f"it can register once its session has ended, after {options.broker_session_timeout_ms} ms",
        )
    epoch = existing.epoch if existing is not None and is_same_life else next_offset
    records: list[MetadataRecord] = []
    if not is_same_life:
        stored_epoch = None if existing is None else existing.epoch
        was_clean = version >= _FIRST_WITH_PREVIOUS_EPOCH and request.previous_broker_epoch == stored_epoch
        records = changes_when_restarted(image, options, request.broker_id, was_clean=was_clean)
        _tell_new_life(request, existing, records, was_clean=was_clean)
    records.append(
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=requested_end_points(BrokerEndpoint, request.listeners),
            features=requested_features(BrokerFeature, request.features),
            rack=request.rack,
            fenced=existing.is_fenced if existing is not None and is_same_life else True,
            in_controlled_shutdown=existing.in_controlled_shutdown if existing is not None and is_same_life else False,
            log_dirs=sorted(request.log_dirs),
        )
    )
    sessions.heard(request.broker_id, epoch, now_ms)
    return ControllerResult(BrokerRegistrationResponse(broker_epoch=epoch), records)


def _tell_new_life(
    request: BrokerRegistrationRequest, existing: BrokerImage | None, changes: list[MetadataRecord], *, was_clean: bool
) -> None:
    if existing is not None and changes and not was_clean:
        _log.info(
            "Broker %d was not stopped cleanly (it names epoch %d, and had %d); %d of its partitions change",
            request.broker_id, request.previous_broker_epoch, existing.epoch, len(changes),
        )  # fmt: skip


def _check_registration(image: ClusterImage, options: ControllerOptions, request: BrokerRegistrationRequest) -> None:
    who = f"broker {request.broker_id}"
    if request.cluster_id != options.cluster_id:
        raise BrokerError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"{who} belongs to the cluster {request.cluster_id}, but this is {options.cluster_id}",
        )
    if request.is_migrating_zk_broker:
        raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"{who} comes from ZooKeeper; that is not supported")
    supported = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    for feature, level in image.features.items():
        lowest, highest = supported.get(feature, (0, 0))
        if not lowest <= level <= highest:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{who} supports {feature} {lowest} to {highest}, but the cluster is at {level}",
            )
    if not request.log_dirs:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{who} names no log directories")
    if len(set(request.log_dirs)) < len(request.log_dirs) or any(each.is_reserved for each in request.log_dirs):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{who} names a log directory twice, or by a reserved id")
    for other in image.brokers.values():
        shared = set(other.log_dirs).intersection(request.log_dirs)
        if shared and other.broker_id != request.broker_id:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"{who} names the log directory {min(shared)}, which belongs to broker {other.broker_id}",
            )


def heartbeat(
    image: ClusterImage,
    options: ControllerOptions,
    sessions: BrokerSessions,
    request: BrokerHeartbeatRequest,
    next_offset: int,
    now_ms: int,
) -> ControllerResult[BrokerHeartbeatResponse]:
    """A broker lives, and wants to work, to be fenced, or to shut down."""
    broker = registered_broker(image, request.broker_id, request.broker_epoch)
    session = sessions.heard(broker.broker_id, broker.epoch, now_ms)
    session.metadata_offset = max(session.metadata_offset, request.current_metadata_offset)
    is_caught_up = request.current_metadata_offset >= session.registration_offset
    response = BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=broker.is_fenced, should_shut_down=False)
    failed = frozenset(broker.log_dirs).intersection(request.offline_log_dirs)
    if failed and (image.features.metadata_version or 0) >= DIRECTORY_ASSIGNMENT:
        # First of all, and alone: what else the broker wants depends on what it has left, and it asks again.
        return ControllerResult(response, _offline_records(image, options, broker, failed))
    if broker.is_fenced:
        if request.want_shut_down:
            response.should_shut_down = True
        elif not request.want_fence and is_caught_up:
            response.is_fenced = False
            return ControllerResult(response, unfence_records(image, options, broker))
        return ControllerResult(response)
    if request.want_fence or (request.want_shut_down and not broker.in_controlled_shutdown):
        return _leave(image, options, broker, session, request, response, next_offset)
    # Everybody must know the new leaders before the old one goes.
    all_know = sessions.lowest_active_offset(image) >= session.shutdown_offset
    if broker.in_controlled_shutdown and all_know and not leads_anything(image, broker.broker_id):
        response.is_fenced = response.should_shut_down = True
        return ControllerResult(response, fence_records(image, options, broker))
    return ControllerResult(response)


def _offline_records(
    image: ClusterImage, options: ControllerOptions, broker: BrokerImage, failed: Collection[Uuid]
) -> list[MetadataRecord]:
    left = [each for each in broker.log_dirs if each not in failed]
    _log.warning(
        "Directories %s of broker %d have failed; it has %s left",
        ", ".join(sorted(map(str, failed))),
        broker.broker_id,
        ", ".join(map(str, left)) or "none",
    )
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left)
    return [*changes_when_directories_fail(image, options, broker.broker_id, failed), change]


def _leave(
    image: ClusterImage,
    options: ControllerOptions,
    broker: BrokerImage,
    session: _Session,
    request: BrokerHeartbeatRequest,
    response: BrokerHeartbeatResponse,
    next_offset: int,
) -> ControllerResult[BrokerHeartbeatResponse]:
    if request.want_fence or not leads_anything(image, broker.broker_id):
        response.is_fenced = True
        response.should_shut_down = request.want_shut_down
        return ControllerResult(response, fence_records(image, options, broker))
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=_SHUTTING_DOWN
    )
    records = [change, *changes_when_fenced(image, options, broker.broker_id)]
    session.shutdown_offset = next_offset + len(records) - 1
    return ControllerResult(response, records)


def fence_expired_brokers(
    image: ClusterImage, options: ControllerOptions, sessions: BrokerSessions, now_ms: int
) -> ControllerResult[int | None]:
    """Fence one broker that has been silent for too long: its id, or None. Only one, since each changes partitions.

    That a broker is gone may be a mistake before its session has ended, and data must not be lost by mistake.
    """
    for broker in image.brokers.values():
        if not broker.is_fenced and not sessions.is_alive(broker, now_ms, options.broker_session_timeout_ms):
            is_early = sessions.shortened_since(broker.broker_id) is not None
            election = Election.ONLINE if is_early else None
            return ControllerResult(broker.broker_id, fence_records(image, options, broker, election))
    return ControllerResult(None)


def unregister_broker(image: ClusterImage, options: ControllerOptions, broker_id: int) -> ControllerResult[None]:
    """Forget a broker for good."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
    gone = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    return ControllerResult(None, [*changes_when_unregistered(image, options, broker_id), gone])


def fence_records(
    image: ClusterImage, options: ControllerOptions, broker: BrokerImage, election: Election | None = None
) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_FENCE)
    return [*changes_when_fenced(image, options, broker.broker_id, election), change]


def unfence_records(image: ClusterImage, options: ControllerOptions, broker: BrokerImage) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    return [change, *changes_when_unfenced(image, options, broker.broker_id)]


def registered_broker(image: ClusterImage, broker_id: int, epoch: int) -> BrokerImage:
    """The broker, if this is its current life; a request from a former one must change nothing."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        now = "is not registered" if broker is None else f"is in epoch {broker.epoch}"
        raise BrokerError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} speaks of epoch {epoch}, but {now}")
    return broker
