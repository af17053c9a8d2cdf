"""Keys and values of a coordinator of counters, for the tests of the runtime."""

from barnabas.wire.schema import Struct


class CounterName(Struct):
    name: str


class Count(Struct):
    count: str
