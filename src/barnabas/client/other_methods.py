"""What other clients call their methods, and what to write here instead: for whoever moves over and types by habit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NoReturn

_START: Final = "leave it out: the first use starts it"

PRODUCER_METHODS: Final[Mapping[str, str]] = {
    "produce": "send(topic, value, key=…, on_delivery=fn(metadata, error))",
    "send_and_wait": "send(…).result(), with asyncio: await (await send(…))",
    "poll": "leave it out: callbacks run by themselves",
    "start": _START,
    "stop": "close()",
    "list_topics": "Admin(…).list_topics()",
    "partitions_for_topic": "partitions_for(topic)",
    "create_batch": "leave it out: records are put into batches by themselves",
    "send_batch": "send(…), or send_arrow(…) for many rows at once",
    "produce_batch": "send_arrow(topic, table), or send(…) in a loop",
}
CONSUMER_METHODS: Final[Mapping[str, str]] = {
    "consume": "poll(timeout, max_records=n), in seconds",
    "getmany": "poll(timeout, max_records=n), in seconds: one list of records",
    "getone": "poll(max_records=1)",
    "start": _START,
    "stop": "close()",
    "topics": "list_topics()",
    "partitions_for_topic": "partitions_for(topic)",
    "get_watermark_offsets": "beginning_offsets([partition]) and end_offsets([partition])",
    "highwater": "end_offsets([partition]), or current_lag(partition)",
    "store_offsets": "commit({partition: offset}), with enable_auto_commit=False",
    "seek_to_committed": "seek(partition, committed([partition])[partition])",
    "unassign": "unsubscribe()",
    "incremental_assign": "assign([…]): partitions that were assigned already go on where they were",
    "incremental_unassign": "assign([…]) with those that stay",
    "consumer_group_metadata": "group_metadata()",
    "memberid": "group_metadata().member_id",
}
ADMIN_METHODS: Final[Mapping[str, str]] = {
    "start": _START,
    "list_consumer_groups": "list_groups()",
    "describe_consumer_groups": "describe_groups([…])",
    "delete_consumer_groups": "delete_groups([…])",
    "list_consumer_group_offsets": "list_group_offsets(group)",
    "alter_consumer_group_offsets": "alter_group_offsets(group, {…})",
    "incremental_alter_configs": "alter_configs({resource: [AlterConfig(name, value)]})",
    "list_partition_offsets": "list_offsets({partition: OffsetSpec.latest()})",
    "poll": "leave it out: calls return when they are done",
}


class _Elsewhere:
    """Stands where other clients have a method, and says so; for `hasattr` it is not there."""

    __slots__ = ("_hint", "_name")

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint

    def __repr__(self) -> str:
        return f"<not here: {self._hint}>"

    def __get__(self, instance: object, owner: type) -> NoReturn:
        text = f"{owner.__name__!r} object has no attribute {self._name!r}"
        hint = f"; in place of other clients' {self._name}: {self._hint}"
        raise AttributeError(text + hint, name=self._name, obj=instance)


class ExplainsOtherMethods:
    """A method that other clients have and these have not is an error that says what to write.

    Not by `__getattr__`: with it Python looks up every attribute the slow way, and `send` is called for every record.
    """

    _other_methods: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, hint in vars(cls).get("_other_methods", {}).items():
            if not hasattr(cls, name):
                setattr(cls, name, _Elsewhere(name, hint))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in self._other_methods or hasattr(self, name)]
