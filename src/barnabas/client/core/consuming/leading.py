"""What the leader of a group looks at beside its members: the partitions, and whether the assignor kept the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.core.consuming.assignors import ASSIGNORS, Assignment, Assignor, MemberSubscription, TopicsView
from barnabas.client.errors import ClientError


def layout_of(view: TopicsView, topics: Iterable[str], rack: str | None) -> dict[str, object]:
    """What an assignment depends on, to be compared later: numbers of partitions, and racks if the member has one."""
    in_order = sorted(topics)
    if rack is None:
        return {topic: view.partition_count(topic) or 0 for topic in in_order}
    nodes = view.nodes
    return {
        topic: [
            frozenset(nodes[node_id].rack for node_id in info.replicas if node_id in nodes)
            for info in view.partitions(topic)
        ]
        for topic in in_order
    }


def check_nothing_is_taken(
    assignor: Assignor, members: Mapping[str, MemberSubscription], shares: Mapping[str, Assignment]
) -> None:
    """A cooperative assignor must not give away what somebody still has. Ours is known not to."""
    if type(assignor) is ASSIGNORS.get(assignor.name):
        return
    owner = {each: member_id for member_id, member in members.items() for each in member.owned}
    early = [
        str(each)
        for member_id, share in shares.items()
        for each in share.partitions
        if owner.get(each, member_id) != member_id
    ]
    if early:
        raise ClientError(
            f"the assignor {assignor.name} gave {', '.join(early)} to new owners while the old ones still have them; a "
            "cooperative assignor must leave them out until they are given up"
        )
