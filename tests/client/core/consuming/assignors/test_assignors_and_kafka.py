"""Random groups, shared out by Kafka's own assignors and by ours: the results are the same.

Where Java goes through a hash map of members, ours goes by their ids. For ids of one letter the two orders agree, so
that results can be compared; nothing else depends on it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors import ASSIGNORS, Assignment, MemberSubscription, StickyAssignor
from barnabas.client.core.consuming.assignors.protocol import encode_subscription
from tests.client.core.consuming.assignors.topics import view_of
from tests.oracles import needs_kafka, run_java

LETTERS = "abcdefghijkl"
Group = dict[str, MemberSubscription]
Topics = dict[str, list[tuple[str, ...]]]


def random_topics(chance: random.Random, *, with_racks: bool) -> Topics:
    topics: Topics = {}
    for name in LETTERS[: chance.randint(1, 5)]:
        size = chance.choice([1, 2, 3, 4, 5, 7, 10])
        racks: list[tuple[str, ...]] = [()] * size
        if with_racks:
            racks = [tuple(chance.sample("xyz", chance.randint(1, 2))) for _ in range(size)]
        topics[name] = racks
    return topics


def random_group(chance: random.Random, topics: Topics, name: str, *, with_racks: bool, is_even: bool) -> Group:
    """Members as they would join: with what an earlier, random sharing-out gave them."""
    members = chance.sample(LETTERS, chance.randint(1, len(LETTERS)))
    everything = [TopicPartition(topic, number) for topic, racks in topics.items() for number in range(len(racks))]
    owner = {each: chance.choice([*members, None]) for each in everything}
    # A few missed the last generation: they still claim what they had before, which others may have by now.
    late = {*members[: chance.choice([0, 0, 1])]}
    keeps = chance.random()
    group: Group = {}
    for member_id in members:
        wanted = [*topics] if is_even else [topic for topic in topics if chance.random() < 0.7] or [next(iter(topics))]
        is_late = member_id in late
        owned = tuple(
            each
            for each in everything
            if chance.random() < keeps
            and (owner[each] == member_id or (is_late and chance.random() < 0.2))
            # Kafka moves partitions back to who claims them from long ago, also if it does not want them any more.
            and not (is_late and each.topic not in wanted)
        )
        generation = 4 if is_late else 5
        group[member_id] = MemberSubscription(
            topics=tuple(wanted),
            user_data=user_data(owned, generation) if name == "sticky" else None,
            owned=owned if name == "cooperative-sticky" else (),
            generation=generation,
            rack=chance.choice([*"xyz", None]) if with_racks else None,
            instance_id=f"i{member_id}" if chance.random() < 0.3 else None,
        )
    return group


def user_data(owned: tuple[TopicPartition, ...], generation: int) -> bytes | None:
    assignor = StickyAssignor()
    assignor.on_assignment(Assignment(owned), generation)
    return assignor.subscription_user_data(())


def as_line(name: str, topics: Topics, group: Group) -> str:
    places = ";".join(f"{topic}={'/'.join('.'.join(each) or '-' for each in racks)}" for topic, racks in topics.items())
    members = ";".join(
        f"{member_id}!{each.instance_id or '-'}!{encode_subscription(each).hex()}" for member_id, each in group.items()
    )
    return f"{name} {places} {members}"


def read(line: str) -> dict[str, set[str]]:
    assert not line.startswith("!"), line
    shares = (share.split("=") for share in line.split(";"))
    return {member_id: {*partitions.split(",")} - {""} for member_id, partitions in shares}


def ours(name: str, topics: Topics, group: Group) -> dict[str, set[str]]:
    shares: Mapping[str, Assignment] = ASSIGNORS[name]().assign(view_of(topics), group)
    return {
        member_id: {f"{topic}:{partition}" for topic, partition in share.partitions}
        for member_id, share in shares.items()
    }


@needs_kafka()
def test_ours_share_out_as_kafkas_do() -> None:
    chance = random.Random(20)
    cases = []
    for number in range(800):
        name = [*ASSIGNORS][number % 4]
        with_racks = chance.random() < 0.4
        topics = random_topics(chance, with_racks=with_racks)
        group = random_group(chance, topics, name, with_racks=with_racks, is_even=chance.random() < 0.5)
        cases.append((name, topics, group))
    answers = run_java("Assignors.java", "".join(as_line(*case) + "\n" for case in cases)).splitlines()
    assert len(answers) == len(cases)
    others = [(case, read(answer)) for case, answer in zip(cases, answers, strict=True) if ours(*case) != read(answer)]
    wrong = [case for case, theirs in others if per_topic(ours(*case)) != per_topic(theirs)]
    assert not wrong, f"{len(wrong)} of {len(cases)} differ, the first is {as_line(*wrong[0])}"
    # Which of several partitions of a topic moves back, where it makes no difference, a hash decides in Java.
    assert len(others) <= 2, as_line(*others[0][0])


def per_topic(shares: dict[str, set[str]]) -> dict[str, Counter[str]]:
    return {member_id: Counter(each.split(":")[0] for each in share) for member_id, share in shares.items()}
