from collections.abc import Callable

from barnabas.base.ids import Uuid
from barnabas.replication.fetch_sessions import PartitionKey
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition

class OrdinaryProduce:
    """One request. `answer` has its whole answer once all is appended, `leaders` who took each batch."""

    @property
    def acks(self) -> int: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def leaders(self) -> list[LeaderState]: ...
    @property
    def failure(self) -> OSError | None:
        """Why the batch after those that were appended was not, nor what follows it; None if all was."""

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Of each batch that was appended, in the order of the request: its first offset, and the one after its last."""

    def uncommitted(self) -> list[tuple[LeaderState, int]]:
        """Of each batch whose leader has followers to wait for: the leader, and the offset after the batch's last."""

    def answer(self) -> bytes:
        """The whole answer, with its size in front."""

def append_ordinary(
    frame: bytearray,
    version: int,
    index: dict[PartitionKey, Partition],
    may_write: Callable[[str | Uuid], bool] | None,
    now_ms: int,
) -> OrdinaryProduce | None:
    """Append all batches of a Produce request if each is ordinary; None, and nothing was changed, if not.

    `index` has the partitions by topic (its name, or from v13 on its id) and number; `may_write` says whether the
    client may write to a topic, and is None where everybody may. If a write fails, what came before it is appended, and the rest is not.
    """
