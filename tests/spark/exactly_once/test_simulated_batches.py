"""A few hundred stories of batches; what must hold in them stands in `simulated_batches`."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.client.core.producing.transaction_states import TransactionHandle
from tests.coordinator.transactions.driver import Bench
from tests.spark.exactly_once.coordinator import Coordinator, Fenced
from tests.spark.exactly_once.planted import BUGS, find
from tests.spark.exactly_once.simulated_batches import VARIANTS, play


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_row_is_written_once(variant: str) -> None:
    assert sum(play(seed, variant).batches_done for seed in range(60)) > 300


def test_a_story_follows_from_its_seed() -> None:
    assert play(7, "two drivers").trace == play(7, "two drivers").trace


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_that_is_planted_is_found(name: str) -> None:
    with BUGS[name].plant(), pytest.raises(AssertionError):
        play(*BUGS[name].story)
    play(*BUGS[name].story)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_that_is_planted_is_found_from_any_seed(name: str) -> None:
    assert find(name) is not None


@pytest.mark.parametrize("version", [1, 2])
def test_the_coordinator_that_is_played_ends_transactions_as_the_real_one_does(version: int) -> None:
    """Both are asked the same, in any order, by producers of which all but one are zombies."""
    for seed in range(60):
        chance = Random(seed)
        real, played = Bench(transaction_version=version), Coordinator(is_v2=version == 2, lateness=lambda: 0)
        handles: list[tuple[tuple[int, int], TransactionHandle]] = []
        for _ in range(30):
            action = chance.choice(("init", "write", "write", "commit", "commit", "time passes"))
            if action == "init" or not handles:
                handles.append((_begun(real), played.init("x", 60_000, "somebody")))
            elif action == "time passes":
                real.advance(70_000 + 10_000)
                real.write_markers()
                played.tick(80_000)
            else:
                # The newest more often than a zombie.
                identity, handle = handles[-chance.choice((1, 1, 1, min(2, len(handles))))]
                if action == "write":
                    (error,) = real.add("x", *identity, 0)
                    assert (error is ErrorCode.NONE) == _writes(played, handle), f"seed {seed}"
                else:
                    error, *_ = real.end("x", *identity, version=5 if version == 2 else 4)
                    real.write_markers()
                    assert (error is ErrorCode.NONE) == bool(played.commit(handle)), f"seed {seed}: {error}"


def _begun(bench: Bench) -> tuple[int, int]:
    """A producer asks until what was open is aborted."""
    while True:
        error, producer_id, epoch = bench.init("x")
        if error is ErrorCode.NONE:
            return producer_id, epoch
        bench.write_markers()


def _writes(played: Coordinator, handle: TransactionHandle) -> bool:
    try:
        played.write(handle)
    except Fenced:
        return False
    return True
