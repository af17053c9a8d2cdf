"""What leaves for the brokers, and what becomes of it: the send side of a producer, without sockets or a clock.

`step` says what to send now and when to ask again; `answered` and `failed` take in what came of a request. What a
caller owes: each request of a step is sent, in the order of the list, and ends in exactly one `answered` or `failed`.

What holds, whatever fails:

1. Each batch has one outcome. An answer that comes after it was given up only tells `Sequences` what the broker has.
2. A batch is acknowledged only if a broker said so (or, with acks=0, nobody was to say anything).
3. With idempotence, acknowledged records of a partition lie in the log in the order of `send`, and once; see
   `sequences`. Without it, order is kept if at most one request is in flight: a partition is mute until its answer.
4. After delivery.timeout.ms a batch is given up, also one that is on its way. Its memory comes back with the answer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, RemoteProtocolError, check
from barnabas.base.log_context import logger
from barnabas.client.core.cluster_view import Node
from barnabas.client.core.producing.accumulator import NEVER_MS
from barnabas.client.core.producing.produce_requests import (
    NodeRequest,
    build_request,
    check_version,
    matched,
    transactional_version,
)
from barnabas.client.core.producing.producer_id import ProducerIdSearch
from barnabas.client.core.producing.sender_ports import SenderMetrics, SenderNetwork, SenderSettings, Step
from barnabas.client.core.producing.sequences import NO_OFFSET, Sequences
from barnabas.client.errors import (
    ClientError,
    DeliveryTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
)
from barnabas.net.errors import ChannelError, RefusedError, address_text
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from barnabas.base.ids import TopicPartition
    from barnabas.client.core.metadata import Metadata
    from barnabas.client.core.producing.accumulator import Accumulator
    from barnabas.client.core.producing.batch import ProducerBatch
    from barnabas.client.core.producing.transaction_manager import TransactionManager
    from barnabas.client.core.producing.transaction_requests import TransactionRequest

_log = logger(__name__)

#: Where something is ready and may not leave yet, others of the same node that get ready are not told by `ready`.
_RECHECK_MS: Final = 10.0
_NO_TIME: Final = -1

#: After these the view of the cluster is not to be trusted.
_STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
#: These the broker sends for the numbers of a batch. It is not written, and is tried again, perhaps with others.
_UNEXPECTED_NUMBERS: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
#: After these an idempotent producer cannot go on.
_FATAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Sender:
    """The policy of sending. Everything here runs on one thread; only the accumulator is shared with others."""

    def __init__(
        self,
        settings: SenderSettings,
        metadata: Metadata,
        accumulator: Accumulator,
        nodes: SenderNetwork,
        *,
        randomness: Random,
        metrics: SenderMetrics,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._accumulator = accumulator
        self._nodes = nodes
        self._randomness = randomness
        self._metrics = metrics
        self._transactions = transactions
        self._sequences = None
        if settings.is_idempotent:
            self._sequences = Sequences(settings.max_in_flight, is_transactional=transactions is not None)
        if transactions is not None:
            check(self._sequences is not None, "transactions without idempotence")
            transactions.assign = self._sequences.begin_anew  # type: ignore[union-attr]
            transactions.on_change = self._transaction_changed
            self._transaction_changed()
        self._mutes = not settings.is_idempotent and settings.max_in_flight == 1
        self._in_network: dict[NodeRequest, None] = {}
        # No batch reaches its delivery timeout before this.
        self._next_expiry_ms = 0
        # Why the last attempt of a batch failed, to be told if there is no time for another.
        self._last_errors: dict[ProducerBatch, Exception] = {}
        self._id_search = ProducerIdSearch(settings.retry_backoff_ms, settings.retry_backoff_max_ms, randomness)
        #: Why the producer cannot go on; None as long as it can.
        self.fatal_error: Exception | None = None

    @property
    def producer_id(self) -> int:
        """-1 if there is none."""
        return self._sequences.producer_id if self._sequences is not None else -1

    @property
    def in_network_count(self) -> int:
        return len(self._in_network)

    # What to send

    def step(self, now_ms: int) -> Step:
        """What to do now. Ask again at once if there were requests: there may be more for the same nodes."""
        transaction = None if self._transactions is None else self._transact(self._transactions, now_ms)
        if self.fatal_error is not None:
            self._abort(self.fatal_error)
            return Step([], math.inf)
        wait_ms = self._expire(now_ms)
        wants_id = False
        if self._transactions is not None:
            wait_ms = min(wait_ms, self._transactions.wait_ms(now_ms))
        elif self._sequences is not None:
            self._sequences.restart_where_due()
            if not self._sequences.has_id:
                id_wait_ms = self._id_search.wait_ms(now_ms, self._accumulator.has_incomplete)
                wants_id = id_wait_ms <= 0
                wait_ms = min(wait_ms, id_wait_ms or math.inf)
        view = self._metadata.view
        asked_nodes = {request.node_id for request in self._in_network}
        ready = self._accumulator.ready(view, now_ms, asked_nodes)
        if ready.next_check_ms < NEVER_MS:
            wait_ms = min(wait_ms, ready.next_check_ms)
        if ready.unknown_leader_topics:
            for topic in ready.unknown_leader_topics:
                self._metadata.want(topic, now_ms)
            self._metadata.request_update()
        usable = []
        for node_id in ready.nodes:
            delay_ms = self._nodes.delay_ms(node_id, now_ms)
            self._accumulator.note_node(node_id, now_ms, delay_ms <= 0)
            if delay_ms > 0:
                wait_ms = min(wait_ms, delay_ms)
                self._nodes.connect_soon(node_id)
            else:
                usable.append(node_id)
        requests = self._requests(usable, now_ms) if usable else []
        if len(requests) < len(usable):
            wait_ms = min(wait_ms, _RECHECK_MS)
        return Step(requests, max(wait_ms, 0.0), wants_id, transaction)

    def _transact(self, manager: TransactionManager, now_ms: int) -> TransactionRequest | None:
        """What to ask of a coordinator now."""
        if manager.is_fatal:
            self.fatal_error = self.fatal_error or manager.error
            return None
        if manager.drops_records and self._accumulator.has_queued:
            error = manager.error or TransactionAbortedError("not sent: the transaction was aborted")
            for batch in self._accumulator.abort_undrained(error):
                self._last_errors.pop(batch, None)
                self._metrics.records_failed(batch.partition.topic, batch.record_count)
        else:
            manager.add_partitions(self._accumulator.busy_partitions)
        return manager.next_request(now_ms, bool(self._in_network) or self._accumulator.has_incomplete)

    def _transaction_changed(self) -> None:
        """Records are taken only within a transaction."""
        manager = self._transactions
        assert manager is not None
        self._accumulator.is_completing = manager.is_completing
        self._accumulator.set_gate(None if manager.accepts_records else manager.check_accepts)

    def _requests(self, node_ids: list[int], now_ms: int) -> list[NodeRequest]:
        requests = []
        drained = self._accumulator.drain(
            self._metadata.view, node_ids, self._settings.max_request_bytes, now_ms, self._may_send
        )
        for node_id, batches in drained.items():
            whole = [batch for batch in batches if self._leaves(batch, now_ms)]
            request = self._request(node_id, whole, now_ms) if whole else None
            if request is not None:
                requests.append(request)
        return requests

    def _may_send(self, batch: ProducerBatch) -> bool:
        if self._transactions is not None and not self._transactions.may_send(batch.partition):
            return False
        return self._sequences is None or self._sequences.may_send(batch)

    def _leaves(self, batch: ProducerBatch, now_ms: int) -> bool:
        """Number a batch and bring it into the form in which it travels; whether that could be done."""
        if self._sequences is not None:
            self._sequences.sent(batch)
        elif self._mutes:
            self._accumulator.mute(batch.partition)
        try:
            batch.encoded()
        except Exception as cause:
            error = ClientError(f"{batch.partition}: {batch.record_count} records could not be encoded: {cause!r}")
            error.__cause__ = cause
            self._came_back(batch, error, False, now_ms)
            return False
        return True

    def _request(self, node_id: int, batches: list[ProducerBatch], now_ms: int) -> NodeRequest | None:
        settings, view = self._settings, self._metadata.view
        try:
            version = self._nodes.version_of(node_id, ProduceRequest)
            if version is None:
                raise ChannelError(self._address(node_id), "the connection was lost before the request left")
            check_version(version, self._address(node_id), settings.uses_zstd)
            if self._transactions is not None:
                version = transactional_version(version, self._address(node_id), self._transactions.is_v2)
            request = build_request(
                node_id,
                batches,
                version,
                view,
                acks=settings.acks,
                timeout_ms=settings.request_timeout_ms,
                now_ms=now_ms,
                transactional_id=None if self._transactions is None else self._transactions.transactional_id,
            )
        except ChannelError as error:
            for batch in batches:
                self._came_back(batch, error, not isinstance(error, RefusedError), now_ms)
            return None
        self._in_network[request] = None
        record_count = 0
        for batch in batches:
            count = batch.record_count
            record_count += count
            self._metrics.batch_drained(
                batch.partition.topic,
                count,
                batch.size_bytes,
                batch.uncompressed_bytes,
                now_ms - batch.created_ms,
                batch.largest_record_bytes,
            )
        self._metrics.request_sent(record_count)
        return request

    def _expire(self, now_ms: int) -> float:
        """Give up what is too old; how long until something else may be."""
        if now_ms >= self._next_expiry_ms:
            timeout_ms = self._settings.delivery_timeout_ms
            for batch in self._accumulator.expired(now_ms):
                self._give_up(batch, self._too_late(batch, now_ms))
            # What comes from now on is younger than anything that is here.
            next_ms = now_ms + min(timeout_ms, self._accumulator.next_expiry_ms(now_ms))
            for request in self._in_network:
                for batch in request.batches:
                    if not batch.is_done:
                        due_ms = batch.created_ms + timeout_ms
                        if due_ms <= now_ms:
                            self._give_up(batch, self._too_late(batch, now_ms, request.node_id), keep_memory=True)
                        else:
                            next_ms = min(next_ms, due_ms)
            self._next_expiry_ms = next_ms
        return self._next_expiry_ms - now_ms if self._accumulator.has_incomplete else math.inf

    # What came of it

    def answered(self, request: NodeRequest, response: ProduceResponse | None, now_ms: int) -> None:
        """The node answered; or, with acks=0, the request has left and no answer will come (None)."""
        del self._in_network[request]
        if response is None:
            for batch in request.batches:
                self._returned(batch)
                self._acknowledge(batch, NO_OFFSET, _NO_TIME)
                self._may_go_on(batch)
            return
        self._metrics.request_latency(request.node_id, now_ms - request.sent_at_ms)
        self._metrics.throttled(request.node_id, response.throttle_time_ms)
        answers = list(matched(request, response))
        self._take_leader_hints(answers, response)
        for batch, answer in answers:
            self._accumulator.answered(batch, now_ms - request.sent_at_ms)
            self._returned(batch)
            if answer is None:
                missing = ChannelError(self._address(request.node_id), f"its answer says nothing of {batch.partition}")
                self._fail_or_retry(batch, missing, True, now_ms)
            else:
                self._take_answer(batch, answer, now_ms)
            self._may_go_on(batch)

    def failed(self, request: NodeRequest, error: Exception, now_ms: int) -> None:
        """No answer will come. Whether the request was carried out is not known."""
        del self._in_network[request]
        self._metadata.request_update()
        for batch in request.batches:
            self._accumulator.unanswered(batch)
            # Also a version that is not offered any more: the broker may have been replaced since we looked.
            self._came_back(batch, error, True, now_ms)

    def _came_back(self, batch: ProducerBatch, error: Exception, is_retriable: bool, now_ms: int) -> None:
        self._returned(batch)
        self._fail_or_retry(batch, error, is_retriable, now_ms)
        self._may_go_on(batch)

    def _returned(self, batch: ProducerBatch) -> None:
        if self._sequences is not None:
            self._sequences.returned(batch)

    def _may_go_on(self, batch: ProducerBatch) -> None:
        if self._mutes:
            self._accumulator.unmute(batch.partition)

    def _take_answer(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: int) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE:
            self._acknowledge(batch, answer.base_offset, answer.log_append_time_ms)
            return
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # It is in the log; so long ago that the broker does not remember where.
            self._acknowledge(batch, NO_OFFSET, _NO_TIME)
            return
        if code in _STALE_METADATA:
            self._metadata.request_update()
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.is_done:
            self._split(batch, now_ms)
            return
        error = BrokerError(code, f"{batch.partition}: {answer.error_message or code.text}")
        if code in _FATAL and self._sequences is not None:
            self._stop(code, error)
        is_retriable = code.retriable
        if code in _UNEXPECTED_NUMBERS and self._sequences is not None:
            is_retriable = True
            if self._transactions is not None:
                is_retriable = self._sequences.may_retry(batch, code, answer.log_start_offset)
            elif not batch.is_done:
                self._sequences.refused(batch, code, answer.log_start_offset)
        self._fail_or_retry(batch, error, is_retriable, now_ms, answer)

    def _fail_or_retry(
        self,
        batch: ProducerBatch,
        error: Exception,
        is_retriable: bool,
        now_ms: int,
        answer: PartitionProduceResponse | None = None,
    ) -> None:
        if batch.is_done:
            self._accumulator.release(batch)
        elif not is_retriable or batch.attempts >= self._settings.retries or self.fatal_error is not None:
            self._give_up(batch, error, _record_errors(batch, error, answer))
        elif batch.has_timed_out(self._settings.delivery_timeout_ms, now_ms):
            self._last_errors[batch] = error
            self._give_up(batch, self._too_late(batch, now_ms))
        else:
            _log.debug("%r is sent again: %s", batch, error)
            self._last_errors[batch] = error
            self._metrics.records_retried(batch.partition.topic, batch.record_count)
            self._accumulator.reenqueue(batch, now_ms)

    def _split(self, batch: ProducerBatch, now_ms: int) -> None:
        _log.info("%s: %r is too large for the broker and is split", batch.partition, batch)
        parts = self._accumulator.split_and_reenqueue(batch, now_ms)
        if self._sequences is not None:
            self._sequences.split(batch, parts)
        self._accumulator.release(batch)
        self._last_errors.pop(batch, None)
        self._metrics.batch_split()

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        if self._sequences is not None:
            last_offset = base_offset + batch.record_count - 1 if base_offset >= 0 else NO_OFFSET
            self._sequences.acked(batch, last_offset)
        self._last_errors.pop(batch, None)
        try:
            batch.delivery.succeed(base_offset, log_append_time_ms)
        finally:
            self._accumulator.release(batch)

    def _give_up(
        self,
        batch: ProducerBatch,
        error: Exception,
        per_record: Mapping[int, Exception] | None = None,
        *,
        keep_memory: bool = False,
    ) -> None:
        if self._sequences is not None:
            self._sequences.given_up(batch)
        if self._transactions is not None:
            self._transactions.batch_failed(error, batch.has_sequence)
        self._last_errors.pop(batch, None)
        self._metrics.records_failed(batch.partition.topic, batch.record_count)
        try:
            batch.delivery.fail(error, per_record)
        finally:
            if not keep_memory:
                self._accumulator.release(batch)

    def _take_leader_hints(
        self, answers: list[tuple[ProducerBatch, PartitionProduceResponse | None]], response: ProduceResponse
    ) -> None:
        """A broker that is not the leader any more may tell who is (KIP-951): then nobody needs to be asked."""
        hints = [
            (batch.partition, answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            for batch, answer in answers
            if answer is not None and answer.error_code and answer.current_leader is not None
        ]
        if hints:
            endpoints = [Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
            self._metadata.leader_hints(hints, endpoints)

    # Producer id

    def producer_id_request(self) -> InitProducerIdRequest:
        """What to ask any node; ends in `producer_id_answered` or `producer_id_failed`."""
        return self._id_search.request()

    def producer_id_answered(self, response: InitProducerIdResponse, now_ms: int) -> None:
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self.producer_id_failed(BrokerError(code, f"no producer id: {code.text}"), now_ms)
            return
        if response.producer_id < 0 or response.producer_epoch < 0:
            wrong = f"producer id {response.producer_id} with epoch {response.producer_epoch} is none"
            self.producer_id_failed(RemoteProtocolError(wrong), now_ms)
            return
        self._id_search.succeeded()
        if self._sequences is not None:
            self._sequences.assign(response.producer_id, response.producer_epoch)

    def producer_id_failed(self, error: Exception, now_ms: int) -> None:
        """What can pass is asked again; what cannot fails all that waits, and is asked again for what comes then."""
        if self._id_search.failed(error, now_ms):
            self._abort(error)

    def authentication_failed(self, error: Exception) -> None:
        """A broker does not believe who we are: what was not sent yet never will be, and a transaction is over."""
        if self._transactions is not None:
            self._transactions.fail(error)
            return  # the next step fails the rest
        for batch in self._accumulator.abort_undrained(error):
            self._last_errors.pop(batch, None)
            self._metrics.records_failed(batch.partition.topic, batch.record_count)

    # The end

    def close(self, error: Exception | None = None) -> None:
        """Take no more records. With an error, fail at once all that is not acknowledged; else it is still sent."""
        self._accumulator.close()
        if error is not None:
            self._abort(error)

    @property
    def is_drained(self) -> bool:
        """Whether every record has its outcome, and no answer is awaited that concerns one."""
        return not self._in_network and not self._accumulator.has_incomplete

    def break_down(self, error: Exception) -> None:
        """The sender itself failed: nothing is sent any more, and nobody waits for what will not come."""
        if self.fatal_error is None:
            self.fatal_error = error
        if self._transactions is not None:
            self._transactions.fail(error)
        self._accumulator.close()
        self._abort(self.fatal_error)

    def _stop(self, code: ErrorCode, error: Exception) -> None:
        if self.fatal_error is None:
            fatal: Exception = error
            if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                fatal = ProducerFencedError(f"the producer cannot go on: {error}; close it and make a new one")
            _log.error("The producer stops: %s", fatal)
            self.fatal_error = fatal
        if self._transactions is not None:
            self._transactions.fail(error)
            self.fatal_error = self._transactions.error

    def _abort(self, error: Exception) -> None:
        """Fail everything that has no outcome, also what is on its way."""
        for request in self._in_network:
            for batch in request.batches:
                if not batch.is_done:
                    self._give_up(batch, error, keep_memory=True)
        if self._sequences is not None:
            self._sequences.abandon_all()
        self._accumulator.abort(error)
        self._last_errors.clear()

    # Words

    def _address(self, node_id: int) -> str:
        node = self._metadata.view.nodes.get(node_id)
        return f"node {node_id}" if node is None else address_text(node.host, node.port)

    def _too_late(self, batch: ProducerBatch, now_ms: int, node_id: int | None = None) -> DeliveryTimeoutError:
        cause = self._last_errors.get(batch)
        if cause is not None:
            why = f"the last of {batch.attempts + 1} attempts: {cause}"
        elif node_id is not None:
            why = f"{self._address(node_id)} has not answered yet; it may have been written all the same"
        else:
            why, cause = self._why_unsent(batch.partition)
        error = DeliveryTimeoutError(
            f"{batch.partition}: a batch of {batch.record_count} records was not acknowledged in the "
            f"{now_ms - batch.created_ms} ms since it was begun (delivery.timeout.ms is "
            f"{self._settings.delivery_timeout_ms}): {why}"
        )
        error.__cause__ = cause
        return error

    def _why_unsent(self, partition: TopicPartition) -> tuple[str, Exception | None]:
        view = self._metadata.view
        if self._sequences is not None and not self._sequences.has_id and self._id_search.error is not None:
            error = self._id_search.error
            return f"it was never sent, for want of a producer id: {error}", error
        leader = view.leader_of(partition)
        if leader is None:
            code = view.topic_error(partition.topic)
            last = self._metadata.last_error
            reason = f" ({code.name})" if code is not None else f" ({last})" if last is not None else ""
            return f"it was never sent, as no leader of the partition is known{reason}", last
        return (
            f"it was never sent; its leader {self._address(leader.node_id)} could not be reached, or was too slow",
            None,
        )


def _record_errors(
    batch: ProducerBatch, error: Exception, answer: PartitionProduceResponse | None
) -> dict[int, Exception] | None:
    """An error for each record, where a broker says which ones it refused: the others are only in bad company."""
    if answer is None or not answer.record_errors or not isinstance(error, BrokerError):
        return None
    refused: dict[int, Exception] = {
        each.batch_index: BrokerError(
            error.code,
            f"{batch.partition}: {each.batch_index_error_message or answer.error_message or error.code.text}",
        )
        for each in answer.record_errors
    }
    if batch.record_count == len(refused):
        return refused
    numbers = ", ".join(map(str, sorted(refused)[:5]))
    others = BrokerError(
        error.code,
        f"{batch.partition}: not written, because other records of its batch (number {numbers}) were refused; "
        "it can be sent again",
    )
    return {number: refused.get(number, others) for number in range(batch.record_count)}
