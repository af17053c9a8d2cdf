"""Apache Kafka's controllers and replicas of ours in one quorum: each votes for, follows and leads the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, SnapshotId
from barnabas.raft.voters import DEFAULT_LISTENER
from barnabas.storage.log import FlushJob
from tests.oracles import needs_kafka
from tests.ports import free_ports
from tests.raft.mixed import BUSY, FIRST_RECORDS, HOST, NO_OP, MixedQuorum, OurReplica, log_bytes

pytestmark = needs_kafka()


def play(story: Coroutine[Any, Any, None], limit_s: float = 300) -> None:
    asyncio.run(asyncio.wait_for(story, limit_s))


def is_same(one: bytes, other: bytes) -> bool:
    """Whether two logs end alike; the shorter may begin later, behind a snapshot."""
    return bool(one) and bool(other) and (one.endswith(other) or other.endswith(one))


def test_kafka_loads_our_snapshot_follows_us_leads_us_and_hands_over(tmp_path: Path) -> None:
    play(take_turns(MixedQuorum(tmp_path, kafkas=1, ours=2, patient=[3], late_kafkas=True)), 60)


@pytest.mark.slow
def test_the_same_where_the_voters_are_in_the_log(tmp_path: Path) -> None:
    play(take_turns(MixedQuorum(tmp_path, kafkas=1, ours=2, in_log=True, patient=[3], late_kafkas=True)))


async def take_turns(quorum: MixedQuorum) -> None:
    kafka, first, second = quorum.kafkas[1], quorum.ours[2], quorum.ours[3]
    async with quorum:
        # Two of three lead, commit and forget, before Kafka is there.
        await quorum.until(lambda: first.is_leader, "ours leads")
        await first.append(FIRST_RECORDS)
        for count in (1, 2, 3):
            await first.append([NO_OP] * count)
        await first.take_snapshot()
        await first.append([NO_OP])
        snapshot_id = await first.take_snapshot()
        await first.append([NO_OP])
        assert first.start_offset == snapshot_id.end_offset
        kafka.start()

        await quorum.until(lambda: log_of(kafka.metadata_log, snapshot_id), "Kafka loads our snapshot and follows")
        await quorum.until(
            lambda: is_same(log_bytes(kafka.metadata_log), log_bytes(second.metadata_log)), "Kafka's log is ours"
        )

        await quorum.until_kafka_answers(1)
        await quorum.until(
            lambda: first.acknowledged(1) == first.driver.log_end_offset, "Kafka has told that it has all"
        )
        epoch = first.epoch
        await first.stop()
        await quorum.until(lambda: second.leader_id == 1, "Kafka leads, with the vote of ours")
        assert second.epoch > epoch
        end_offset = second.driver.log_end_offset
        await quorum.until(lambda: second.driver.high_watermark > end_offset, "Kafka's records are committed by ours")

        await first.start()
        await quorum.until(lambda: first.driver.high_watermark == second.driver.high_watermark, "all three are there")
        assert first.leader_id == 1
        await asyncio.to_thread(kafka.stop)
        await quorum.until(lambda: first.is_leader or second.is_leader, "ours leads when Kafka has resigned")
        leader = first if first.is_leader else second
        await leader.append([NO_OP])
        await quorum.until(lambda: first.driver.high_watermark == second.driver.high_watermark, "both know")
        # Before they stop: whoever is left last may lead once more, alone, and write what the other never sees.
        assert is_same(log_bytes(first.metadata_log), log_bytes(second.metadata_log))
    assert log_bytes(second.metadata_log).count(log_bytes(kafka.metadata_log)) == 1
    assert first.told.values == second.told.values
    assert not quorum.complaints()


def log_of(folder: Path, snapshot_id: SnapshotId) -> bool:
    """Whether the log goes on behind a snapshot that is there."""
    return (folder / snapshot_id.file_name).exists() and (folder / f"{snapshot_id.end_offset:020d}.log").exists()


@pytest.mark.slow
@pytest.mark.parametrize("in_log", [False, True], ids=["static voters", "voters in the log"])
def test_two_kafkas_lead_by_turns_with_our_vote(tmp_path: Path, in_log: bool) -> None:
    # Records come by themselves here, so that the high watermark moves whenever there is a majority.
    play(move_between_kafkas(MixedQuorum(tmp_path, kafkas=2, ours=1, in_log=in_log, settings=BUSY)))


async def move_between_kafkas(quorum: MixedQuorum) -> None:
    ours = quorum.ours[3]
    async with quorum:
        await leave_it_to(quorum, ours, quorum.kafkas)
        await quorum.until(lambda: ours.driver.high_watermark > 10, "something is committed")
        for way in ("kill", "stop", "pause", "kill", "stop"):
            await replace_leader(quorum, ours, way)
    logs = [log_bytes(each) for each in (*(kafka.metadata_log for kafka in quorum.kafkas.values()), ours.metadata_log)]
    shortest = min(logs, key=len)
    assert len(shortest) > 5000
    assert all(each.startswith(shortest) for each in logs)
    assert not quorum.complaints()


@pytest.mark.slow
def test_a_history_that_was_not_committed_is_forgotten_by_both(tmp_path: Path) -> None:
    play(diverge(MixedQuorum(tmp_path, kafkas=1, ours=2, settings=BUSY)))


async def diverge(quorum: MixedQuorum) -> None:
    kafka, first, second = quorum.kafkas[1], quorum.ours[2], quorum.ours[3]
    async with quorum:
        await quorum.until_kafka_answers(1)
        await quorum.until(lambda: first.leader_id > 0, "somebody leads")
        for ours in (first, second):
            if ours.is_leader:
                await ours.append(FIRST_RECORDS)
            await leave_it_to(quorum, ours, [1])
        await quorum.until(lambda: first.driver.high_watermark > 10, "Kafka commits")
        # Kafka writes on alone, which is committed nowhere.
        await first.stop()
        await second.stop()
        common = max(log_bytes(each.metadata_log) for each in (first, second))
        await quorum.until(lambda: len(log_bytes(kafka.metadata_log)) > len(common), "Kafka writes alone")
        kafka.kill()
        lost = log_bytes(kafka.metadata_log)
        assert lost.startswith(common)
        await first.start()
        await second.start()
        await quorum.until(lambda: first.is_leader or second.is_leader, "ours lead without Kafka")
        leader, other = (first, second) if first.is_leader else (second, first)
        await leader.append([NO_OP] * 5)
        kafka.start()
        await quorum.until(lambda: leader.acknowledged(1) == leader.driver.log_end_offset, "Kafka follows")
        assert log_bytes(kafka.metadata_log) == log_bytes(leader.metadata_log)
        assert not log_bytes(kafka.metadata_log).startswith(lost)

        # Now ours does the same.
        await quorum.until_kafka_answers(1)
        kafka.pause()
        await other.stop()
        committed = leader.driver.high_watermark
        for _ in range(3):
            leader.driver.append([NO_OP], leader.epoch)
        await quorum.until(lambda: not leader.is_leader, "ours resigns when it hears from no majority")
        assert leader.driver.high_watermark == committed
        await leader.stop()
        lost = log_bytes(leader.metadata_log)
        kafka.go_on()
        await other.start()
        await leave_it_to(quorum, other, [1])
        await quorum.until(lambda: other.driver.high_watermark > committed + 3, "Kafka and the other go on")
        await leader.start()
        await quorum.until(lambda: leader.driver.high_watermark > committed + 5, "ours has forgotten, and follows")
        assert not log_bytes(leader.metadata_log).startswith(lost)
    shortest, longest = sorted((log_bytes(each.metadata_log) for each in (kafka, leader)), key=len)
    assert longest.startswith(shortest)
    assert not quorum.complaints()


@pytest.mark.slow
def test_kafka_leads_on_while_our_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, run = threading.Event(), FlushJob.run
    goes_on.set()

    def run_in_time(job: FlushJob) -> None:
        goes_on.wait(60)
        run(job)

    monkeypatch.setattr(FlushJob, "run", run_in_time)
    play(wait_for_the_disk(MixedQuorum(tmp_path, kafkas=1, ours=1, settings=BUSY), goes_on))


async def wait_for_the_disk(quorum: MixedQuorum, disk: threading.Event) -> None:
    """One of two voters: a Kafka that does not hear from it gives up after 3 s, and it would after 2 s."""
    ours = quorum.ours[2]
    async with quorum:
        await leave_it_to(quorum, ours, [1])
        await quorum.until(lambda: ours.driver.high_watermark > 10, "Kafka commits")
        epoch, committed = ours.epoch, ours.driver.high_watermark
        disk.clear()
        await asyncio.sleep(8)
        assert (ours.epoch, ours.leader_id, ours.role) == (epoch, 1, Role.FOLLOWER)
        assert ours.store is not None
        assert ours.driver.log_end_offset > ours.store.synced_offset
        assert ours.driver.high_watermark < committed + 10
        disk.set()
        await quorum.until(lambda: ours.driver.high_watermark > committed + 50, "what waited is committed")
        assert (ours.epoch, ours.leader_id) == (epoch, 1)
    assert not quorum.complaints()


@pytest.mark.slow
def test_a_voter_that_moved_says_so_to_the_leader(tmp_path: Path) -> None:
    play(move_house(MixedQuorum(tmp_path, kafkas=1, ours=2, in_log=True, patient=[3], late_kafkas=True)))


async def move_house(quorum: MixedQuorum) -> None:
    first, second = quorum.ours[2], quorum.ours[3]
    new = dict(zip((1, 2), free_ports(2), strict=True))

    def is_known(node_id: int) -> bool:
        """Whether a record of the voters with the new address is committed."""
        machine = second.driver.machine
        voter = machine.voters.get(node_id)
        is_there = voter is not None and voter.listeners == {DEFAULT_LISTENER: Address(HOST, new[node_id])}
        return is_there and machine.history.voter_sets.newest_offset < machine.high_watermark

    async with quorum:
        await quorum.until(lambda: first.is_leader, "ours leads")
        await first.append(FIRST_RECORDS)
        quorum.kafkas[1].start()
        await quorum.until_kafka_answers(1)
        await asyncio.to_thread(quorum.kafkas[1].stop)
        quorum.move_kafka(1, new[1])
        quorum.kafkas[1].start()
        await quorum.until(lambda: is_known(1), "Kafka has told us where it is")
        await quorum.until(lambda: first.acknowledged(1) == first.driver.log_end_offset, "Kafka has all")

        await quorum.until_kafka_answers(1)
        await first.stop()
        await quorum.until(lambda: second.leader_id == 1, "Kafka leads, from where it is now")
        first.address = Address(HOST, new[2])
        await first.start()
        await quorum.until(lambda: is_known(2), "ours has told Kafka where it is")
        await quorum.until(lambda: first.driver.machine.voters == second.driver.machine.voters, "both know")
    assert not quorum.complaints()


async def leave_it_to(quorum: MixedQuorum, ours: OurReplica, node_ids: Collection[int]) -> None:
    """Wait until one of these leads; if it happens to be one of ours, it resigns."""

    def leads() -> bool:
        for each in quorum.ours.values():
            if each.is_leader:
                each.driver.resign(each.epoch)
        return ours.leader_id in node_ids

    await quorum.until(leads, f"one of {sorted(node_ids)} leads")


async def replace_leader(quorum: MixedQuorum, ours: OurReplica, way: str) -> None:
    """The Kafka that leads goes in some way, and comes back when the other leads."""
    epoch, leader, other = ours.epoch, quorum.kafkas[ours.leader_id], quorum.kafkas[3 - ours.leader_id]
    await quorum.until_kafka_answers(other.node_id)
    await quorum.until(lambda: is_near(ours, other.metadata_log), "the other Kafka has caught up")
    await asyncio.to_thread(getattr(leader, way))
    await leave_it_to(quorum, ours, [other.node_id])
    assert ours.epoch > epoch
    end_offset = ours.driver.high_watermark
    await quorum.until(lambda: ours.driver.high_watermark > end_offset + 5, "our word makes the majority")
    if way == "pause":
        leader.go_on()
    else:
        leader.start()


def is_near(ours: OurReplica, folder: Path) -> bool:
    """Whether a log has all that was committed a moment ago, byte for byte."""
    one, other = log_bytes(folder), log_bytes(ours.metadata_log)
    return len(one) > len(other) - 1000 and (one.startswith(other) or other.startswith(one))
