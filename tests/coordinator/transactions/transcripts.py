"""Stories of transactional ids as text: what is asked stands after `>`, what comes of it follows.

set transaction_version=1             a setting, before anything else
at 3000                               time passes until then (ms)
> a init x producer=1000/0            InitProducerId by token `a`; the producer is left out by those who begin
> a add x 1000/0 t:0,t:1 version=4    AddPartitionsToTxn; `verify` the same, which only asks
> a offsets x 1000/0                  AddOffsetsToTxn
> a end x 1000/0 commit version=5     EndTxn; 5 is that of transactions v2, 4 that of v1
    markers x                             the markers of a transaction are written; `markers x again`: is told again
appends hold                          from now on appends are not committed (or: commit, or an error)
commit                                what was held is committed
reload                                another node takes over
epoch x 32766                         the epoch of a producer has come as far as that
ids none                              there are no producer ids left (or: some)
show x                                the state of an id

< a ...                               what token `a` was told
+ x Ongoing 1000/0 t-0                a record of the log
* x commit 1000/1 to t-0              markers that are to be written
= x ...                               what was asked for by `show`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.transactions.metadata import TransactionMetadata, metadata_of
from barnabas.coordinator.transactions.requests import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    OffsetsToTxn,
)
from barnabas.coordinator.transactions.states import TransactionState
from barnabas.records.reading import iter_entries
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.schema import Struct
from barnabas.wire.stored.transaction_state import TransactionKey, TransactionLogKey, TransactionValue
from tests.coordinator.transactions.driver import Bench
from tests.stories import StoryPlayer, options

GROUPS = TopicPartition("__consumer_offsets", 7)


def play(script: str) -> str:
    """The dialogue that the asking lines of a script lead to; comments and blank lines stay."""
    return Player().played(script)


class Player(StoryPlayer):
    OUTPUT = ("<", "+", "*", "=")

    def __init__(self) -> None:
        self.bench = Bench()
        self._told_bytes = 0
        self._sent: dict[str, TransactionMetadata] = {}

    def step(self, words: list[str]) -> Iterator[str]:
        yield from self._step(words)
        self.bench.settle()
        yield from self._news()

    def _news(self) -> Iterator[str]:
        bench = self.bench
        for line in _records(bytes(bench.log[self._told_bytes :])):
            yield f"+ {line}"
        self._told_bytes = len(bench.log)
        for token, response in bench.answers.items():
            yield f"< {token} {told(response)}"
        bench.answers.clear()
        for name, metadata in bench.markers.sent.items():
            if self._sent.get(name) is not metadata:
                self._sent[name] = metadata
                how = "commit" if metadata.state is TransactionState.PREPARE_COMMIT else "abort"
                where = _names(metadata.partitions) or "nobody"
                yield f"* {name} {how} {metadata.producer_id}/{metadata.producer_epoch} to {where}"

    def _step(self, words: list[str]) -> Iterator[str]:
        bench = self.bench
        match words:
            case ["set", *pairs]:
                self.bench = Bench(**{name: int(value) for name, value in options(pairs).items()})
            case ["at", moment]:
                bench.advance(int(moment) - bench.now_ms)
            case ["appends", how]:
                bench.appends = how if how in ("commit", "hold") else ErrorCode[how]
            case ["commit"]:
                bench.commit_held()
            case ["reload"]:
                bench.reload()
                self._sent.clear()
            case ["epoch", name, epoch]:
                bench.write(name, replace(bench.metadata(name), producer_epoch=int(epoch)))
            case ["ids", which]:
                bench.has_ids = which == "some"
            case ["markers", name]:
                bench.write_markers(name)
            case ["markers", name, "again"]:
                bench.run(bench.shard.complete(name, self._sent[name]))
            case ["show", name]:
                metadata = bench.shard.stored.get(name)
                yield f"= {name} " + ("is not known" if metadata is None else _shown(metadata))
            case [">", token, api, name, *rest]:
                getattr(self, f"_{api}")(token, name, rest)
            case _:
                raise ValueError(f"not understood: {' '.join(words)}")

    # Requests

    def _init(self, token: str, name: str, words: list[str]) -> None:
        given = options(words)
        producer_id, epoch = _producer(given.get("producer", "-1/-1"))
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=int(given.get("timeout", 60_000)),
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        self.bench.submit(INIT_PRODUCER_ID, request, int(given.get("version", 5)), token)

    def _add(self, token: str, name: str, words: list[str], *, verify_only: bool = False) -> None:
        producer_id, epoch = _producer(words[0])
        given = options(words[2:])
        topics: dict[str, list[int]] = {}
        for topic, partition in (each.split(":") for each in words[1].split(",")):
            topics.setdefault(topic, []).append(int(partition))
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in topics.items()],
        )
        self.bench.submit(ADD_PARTITIONS, transaction, int(given.get("version", 4)), token)

    def _verify(self, token: str, name: str, words: list[str]) -> None:
        self._add(token, name, words, verify_only=True)

    def _offsets(self, token: str, name: str, words: list[str]) -> None:
        producer_id, epoch = _producer(words[0])
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        self.bench.submit(ADD_OFFSETS, OffsetsToTxn(request, GROUPS), 4, token)

    def _end(self, token: str, name: str, words: list[str]) -> None:
        producer_id, epoch = _producer(words[0])
        given = options(words[1:])
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed="commit" in given
        )
        self.bench.submit(END_TXN, request, int(given.get("version", 5)), token)


def _producer(text: str) -> tuple[int, int]:
    producer_id, epoch = text.split("/")
    return int(producer_id), int(epoch)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(map(str, sorted(partitions)))


def _shown(metadata: TransactionMetadata) -> str:
    following = f" then {metadata.next_producer_id}/0" if metadata.next_producer_id >= 0 else ""
    who = f"{metadata.producer_id}/{metadata.producer_epoch}{following}"
    return f"{metadata.state.value} {who} {_names(metadata.partitions)}".rstrip()


def _records(data: bytes) -> Iterator[str]:
    for batch in iter_entries(data):
        for record in batch.records():
            key = TransactionKey.decode_key(record.key or b"")
            assert key is not None
            if record.value is None:
                yield f"{key.transactional_id} is deleted"
                continue
            metadata = metadata_of(TransactionValue.decode_value(TransactionLogKey.TYPE, record.value))
            assert metadata is not None
            yield f"{key.transactional_id} {_shown(metadata)}"


def told(response: Struct) -> str:
    """A response in one line."""
    match response:
        case InitProducerIdResponse() | EndTxnResponse() if not response.error_code:
            return f"NONE {response.producer_id}/{response.producer_epoch}"
        case AddPartitionsToTxnResult():
            return ", ".join(
                f"{topic.name}-{each.partition_index} {ErrorCode.of(each.partition_error_code).name}"
                for topic in response.topic_results
                for each in topic.results_by_partition
            )
    return ErrorCode.of(getattr(response, "error_code", 0)).name
