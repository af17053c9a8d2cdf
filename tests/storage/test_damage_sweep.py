"""Every file of a log and of its log directory, damaged in every simple way: never is less served without a word.

`BARNABAS_SWEEP=full` flips a bit of every byte.
"""

from __future__ import annotations

import pytest

from barnabas.storage import inspection
from tests.storage.damaged_logs import DIRECTORY, Outcome, contents, disk_of, filled, mutations, start
from tests.sweeps import IS_FULL

#: After a kill, where `filled` has flushed up to.
FLUSHED = 12


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("is_small", [True, False], ids=["small", "large"])
def test_whatever_happens_to_a_file_nothing_is_silently_less(
    is_clean: bool, policy: str, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_small:
        monkeypatch.setattr(inspection, "_SMALL_BYTES", 0)
    disk = filled(is_clean=is_clean, cleanup_policy=(policy,))
    assert start(disk_of(disk), cleanup_policy=(policy,)) == Outcome("right", 15, [])
    kinds = set()
    for path, what, mutate in mutations(disk, flip_every=1 if IS_FULL else 37):
        if policy == "compact" and what.startswith("flip") and path.endswith(".log"):
            continue  # offsets are under no CRC, and gaps between them are usual there
        damaged = dict(disk)
        mutate(damaged)
        files = disk_of(damaged)
        outcome = start(files, is_stopped=True, cleanup_policy=(policy,))
        kinds.add(outcome.kind)
        is_cut = not is_clean and outcome.end_offset >= FLUSHED and outcome.warnings
        assert outcome.kind != "less" or is_cut, f"{path}: {what}: {outcome}"
        if outcome.kind == "refused":
            assert outcome.warnings, f"{path}: {what}: nobody was told"
            after = contents(files)
            changed = [each for each in damaged if each.startswith(DIRECTORY) and after.get(each) != damaged[each]]
            assert not changed, f"{path}: {what}: the evidence was changed"
            assert start(files, cleanup_policy=(policy,)).kind == "refused", f"{path}: {what}: it was not kept"
    assert kinds >= ({"right", "refused", "failed"} if policy == "delete" else {"right", "refused"})
