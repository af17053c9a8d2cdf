from collections.abc import Callable
from typing import Any

class RequestMeter:
    """Counts the requests of a server by API, with bytes and the parts of their times.

    Guarantee: every request that was answered, or that wanted no answer and was dealt with, is counted and told once,
    when its last byte has left. One whose connection ended before is not.
    """

    #: Without it nothing is counted, and nobody told.
    is_recording: bool
    #: When the clock was read last.
    @property
    def last_ns(self) -> int: ...
    #: What the turns of the request channel took, all together.
    @property
    def busy_ns(self) -> int: ...
    @property
    def longest_turn_ns(self) -> int: ...
    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock` tells seconds; without one the clock of the machine is read, without a call."""
    # The turns of a request channel
    def turn_begins(self, budget_ns: int) -> int:
        """When the turn is to end."""
    def has_time(self, end_ns: int) -> bool:
        """Whether the turn goes on, asked after each request."""
    def turn_ends(self) -> None: ...
    def take_longest_turn_ns(self) -> int:
        """The longest since this was asked last."""
    # One request
    def arrived(self, request: RequestFields) -> None:
        """A whole frame is there."""
    def begins(self, request: RequestFields, frame: bytearray) -> None:
        """It has left the queue."""
    @property
    def errors(self) -> dict[tuple[int, int], int]:
        """How often each error was told, by API and the error's code."""
    # For those who want to know
    def observe(self, observer: Callable[[Any], object], slower_than_ns: int = 0) -> Callable[[], None]:
        """Have `observer(connection)` called, on the loop, for each request that is done and took so long in all; what
        is returned ends this. The connection's fields below tell of it, until it takes up its next request."""
    @property
    def keys(self) -> list[int]:
        """The APIs that were asked for, and other names under which requests are counted."""
    def counts_of(
        self, slot: int
    ) -> tuple[int, int, int, int, dict[int, int], list[tuple[int, int, list[int]]]] | None:
        """Requests; their bytes, and those of the largest; bytes of answers; requests by version; of each part of the
        time (queue, local, remote, throttle, response queue, response send, total) the sum, the longest, and how many
        fell into each bucket: up to 1.024 µs × 2ⁿ, the last one without a bound."""

class RequestFields:
    """The request in process of a connection, or the one that was answered last: what it is, and its times."""

    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def request_bytes(self) -> int:
        """Of its frame, without the size in front."""
    @property
    def response_bytes(self) -> int:
        """With the size in front; 0 if there is no answer."""
    throttle_time_ms: int
    allowance: Any
    """What those who look at quotas remember of its sender; forgotten when the client's id changes."""
    @property
    def queue_time_ns(self) -> int:
        """From the arrival of its last byte until it was dispatched."""
    @property
    def local_time_ns(self) -> int:
        """From then until the answer was made, without the remote time."""
    @property
    def remote_time_ns(self) -> int:
        """While it waited for others: followers, records, members, the controller."""
    @property
    def response_queue_time_ns(self) -> int:
        """From then until the answer was given to the socket."""
    @property
    def response_send_time_ns(self) -> int:
        """Until the socket took its last byte."""
    @property
    def total_time_ns(self) -> int: ...
    def charge_ns(self) -> int:
        """What the request in process has taken of the loop until now, no queue and no waiting for others, as far as
        this was not asked before: to be charged to its sender."""
    @property
    def is_charged(self) -> bool:
        """Whether `charge_ns` was asked for the request in process."""
    def count_error(self, code: int) -> None:
        """The answer to the request in process tells of an error."""
    def count_also_as(self, slot: int) -> None:
        """Count the request in process under another name, too."""
    def wait_begins(self) -> None:
        """Its answer takes what others do."""
    def wait_ends(self) -> None: ...
    def response_is_ready(self, size_bytes: int) -> None: ...
    def response_is_leaving(self) -> None: ...
    def response_has_left(self) -> None: ...
