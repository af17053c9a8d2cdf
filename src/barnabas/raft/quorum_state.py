"""The file `quorum-state`: the epoch, who leads in it, and whom this replica voted for. One line of JSON, as Kafka's.

Version 0 of it is for quorums whose voters stand in their settings (kraft.version 0) and names them; version 1 names
the directory of whom this replica voted for instead.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from barnabas.base.errors import BarnabasError, RemoteProtocolError
from barnabas.base.ids import Uuid
from barnabas.raft.types import NO_LEADER_ID, ElectionState, ReplicaKey
from barnabas.storage.files import FileSystem, join, read_file, replace_file
from barnabas.wire.json_form import from_json, to_json
from barnabas.wire.stored.quorum_state import QuorumStateData, Voter

QUORUM_STATE_FILE: Final = "quorum-state"

_VERSION_FIELD: Final = "data_version"
_NOBODY: Final = -1


def read_quorum_state(files: FileSystem, directory: str) -> ElectionState | None:
    """Whom this replica followed or voted for last; None before the first election."""
    path = join(directory, QUORUM_STATE_FILE)
    if not files.exists(path):
        return None
    try:
        data = _parse(read_file(files, path))
    except (ValueError, RecursionError, RemoteProtocolError) as problem:
        raise BarnabasError(
            f"{path} cannot be read: {problem}. Restore it from a backup; to remove it is safe only where this node is "
            "the only voter, since any other might vote twice in one epoch"
        ) from None
    voted = None if data.voted_id == _NOBODY else ReplicaKey(data.voted_id, data.voted_directory_id)
    return ElectionState(data.leader_epoch, data.leader_id, voted)


def _parse(text: bytes) -> QuorumStateData:
    content: Any = json.loads(text)
    if not isinstance(content, dict) or _VERSION_FIELD not in content:
        raise ValueError(f"it is no JSON object with {_VERSION_FIELD}")
    version = content[_VERSION_FIELD]
    if type(version) is not int or version not in QuorumStateData.VERSIONS:
        raise ValueError(f"version {version} is not known")
    data = from_json(QuorumStateData, content, version)
    if data.leader_epoch < 0 or data.leader_id < NO_LEADER_ID or data.voted_id < _NOBODY:
        raise ValueError(
            f"leader {data.leader_id}, epoch {data.leader_epoch} and vote {data.voted_id} cannot all be so"
        )
    return data


def write_quorum_state(
    files: FileSystem, directory: str, state: ElectionState, *, kraft_version: int, voter_ids: Sequence[int]
) -> None:
    """Replace the file. Once this returns, no crash takes it back. `voter_ids` are written at kraft.version 0 alone."""
    version = min(kraft_version, 1)
    voted = state.voted or ReplicaKey(_NOBODY)
    data = QuorumStateData(
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        voted_id=voted.node_id,
        voted_directory_id=voted.directory_id if version else Uuid.ZERO,
        current_voters=[] if version else [Voter(voter_id=each) for each in voter_ids],
    )
    content = to_json(data, version) | {_VERSION_FIELD: version}
    text = json.dumps(content, separators=(",", ":"))
    replace_file(files, join(directory, QUORUM_STATE_FILE), text.encode())
