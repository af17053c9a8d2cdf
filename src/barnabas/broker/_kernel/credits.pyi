from barnabas.net._kernel.metering import RequestFields

class Credit:
    """What one owner of a quota may use, for certain. `is_gone`: nobody will grant it anything any more."""

    @property
    def is_gone(self) -> bool: ...
    def grant(self, left: float, until_ms: int) -> None:
        """So much more may be used until then, by the meter's clock."""
    def take(self) -> tuple[float, int] | None:
        """What was used since the last time, and when the last of it was; None if nothing was. Then there is nothing."""
    def end(self) -> None: ...

class Allowance:
    """What one client may use: a credit for each quota that it has."""

    def __init__(self, produce: Credit | None, fetch: Credit | None, request: Credit | None) -> None: ...
    @property
    def is_stale(self) -> bool:
        """Whether another one has to be asked for."""
    def forget(self) -> None:
        """Other quotas hold."""
    def has_room(self, request: RequestFields) -> bool:
        """Whether all is covered that a fetch may bring that is answered in its frame."""
    def covers(self, request: RequestFields, answer: bytes) -> bool:
        """Whether what the request in process has used with this answer is covered; then it is noted. Otherwise nothing
        is."""
