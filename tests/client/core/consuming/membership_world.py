"""Members without sockets, in virtual time, with the broker's own group coordinator between them.

What a member sends is delivered when the world says so, or never; the same for answers. Each member has a program that
only notes what it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from barnabas.base.ids import TopicPartition
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.consuming.assignors import ASSIGNORS, RebalanceProtocol
from barnabas.client.core.consuming.membership import Membership
from barnabas.client.core.consuming.membership_policy import MembershipPolicy
from barnabas.client.core.consuming.membership_steps import (
    GiveUp,
    Heartbeat,
    Idle,
    Join,
    Lead,
    MemberState,
    Sync,
    Take,
    Wait,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest
from barnabas.wire.messages.sync_group import SyncGroupResponse
from barnabas.wire.schema import Struct
from tests.client.core.consuming.assignors.topics import view_of
from tests.coordinator.driver import Bench

GROUP = "g"

Message = Join | Sync | Heartbeat | LeaveGroupRequest


class Program:
    """What it was told, and so what it believes that it has."""

    def __init__(self) -> None:
        self.has: set[TopicPartition] = set()
        self.story: list[str] = []

    def tell(self, what: str, partitions: tuple[TopicPartition, ...]) -> None:
        self.story.append(f"{what} {','.join(map(str, partitions)) or '-'}")


class Player:
    """One member, and the program that it serves."""

    def __init__(
        self,
        world: World,
        name: str,
        topics: tuple[str, ...],
        assignors: tuple[str, ...] = ("cooperative-sticky",),
        instance_id: str | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.program = Program()
        policy = MembershipPolicy(GROUP, instance_id, session_timeout_ms=10_000, max_poll_interval_ms=30_000)
        self.membership = Membership(policy, [ASSIGNORS[each]() for each in assignors])
        self.is_alive = True

    def poll(self) -> None:
        """What a poll does that does not wait for anything."""
        membership, world = self.membership, self.world
        membership.polled(world.now_ms)
        membership.error = None
        while membership.failure is None:
            step = membership.next_step(self.topics, world.view, world.view.version, world.now_ms)
            match step:
                case GiveUp():
                    self.give_up(step)
                case Take():
                    self.take(step)
                case Lead():
                    membership.lead(step, world.view, world.view.version)
                case Join() | Sync():
                    world.send(self, step)
                    return
                case Wait() | Idle():
                    return

    def give_up(self, step: GiveUp) -> None:
        membership = self.membership
        if step.partitions:
            self.program.tell("lost" if step.is_lost else "revoked", step.partitions)
        assert {*step.partitions} <= self.program.has
        if membership.protocol is RebalanceProtocol.COOPERATIVE and not step.is_lost:
            if step.is_before_join:
                assert not any(each.topic in self.topics for each in step.partitions), "gave up what it may keep"
            else:
                assert not {*step.partitions} & {*membership._assignment.partitions}, "gave up what it keeps"
        self.program.has -= {*step.partitions}
        membership.gave_up(step)

    def take(self, step: Take) -> None:
        assert {*step.added} == {*step.partitions} - self.program.has
        assert self.program.has <= {*step.partitions}
        self.program.tell("assigned", step.added)
        self.program.has = {*step.partitions}
        self.world.check_taken(self, step)
        self.membership.took(step)

    def heartbeat(self) -> None:
        membership, world = self.membership, self.world
        leave = membership.overdue(world.now_ms)
        if leave is not None:
            world.send(self, leave)
        beat = membership.heartbeat(world.now_ms)
        if beat is not None:
            world.send(self, beat)
        membership.coordinator_lost = None

    def leave(self) -> None:
        request = self.membership.leave("closed")
        self.program.has = set()
        self.is_alive = False
        if request is not None:
            self.world.send(self, request)


class World:
    """Topics, a coordinator, members, and what is on its way between them."""

    def __init__(self, topics: Mapping[str, int], **limits: int) -> None:
        self.bench = Bench(**{"initial_rebalance_delay_ms": 0} | limits)
        self.topics = dict(topics)
        self.view: ClusterView = view_of(topics)
        self.players: list[Player] = []
        #: Requests on their way, in order.
        self.outbox: list[tuple[Player, Message]] = []
        self._tokens = count(1)
        self._askers: dict[object, tuple[Player, Join | Sync]] = {}
        self.taken: dict[tuple[int, TopicPartition], str] = {}

    @property
    def now_ms(self) -> int:
        return self.bench.now_ms

    def join(self, name: str, *topics: str, **settings: object) -> Player:
        player = Player(self, name, tuple(sorted(topics)), **settings)  # type: ignore[arg-type]
        self.players.append(player)
        return player

    def set_partitions(self, topic: str, count: int) -> None:
        self.topics[topic] = count
        self.view = view_of(self.topics, self.view.version + 1)

    # What travels

    def send(self, player: Player, what: Message) -> None:
        self.outbox.append((player, what))

    def deliver(self) -> None:
        """Let everything arrive that is on its way."""
        while self.outbox:
            self.deliver_next()

    def lose_next(self) -> None:
        """What is next to arrive does not; who waits for an answer finds out."""
        player, what = self.outbox.pop(0)
        match what:
            case Join() | Sync():
                player.membership.exchange_failed(what, "no answer", self.now_ms)
            case Heartbeat():
                player.membership.heartbeat_failed("no answer", self.now_ms)

    def deliver_next(self) -> None:
        player, what = self.outbox.pop(0)
        bench = self.bench
        match what:
            case Heartbeat():
                code = bench.heartbeat(what.request)
                player.membership.heartbeat_answered(what, code, self.now_ms)
            case LeaveGroupRequest():
                bench.leave(GROUP, what.members, self._ask(None))
            case Join():
                bench.join(what.request, 9, bench.client(player.name), self._ask((player, what)))
            case Sync():
                bench.sync(what.request, self._ask((player, what)))
        self.hear(self.bench.settle())

    def _ask(self, asker: tuple[Player, Join | Sync] | None) -> int:
        token = next(self._tokens)
        self.bench.asked[token] = None
        if asker is not None:
            self._askers[token] = asker
        return token

    def hear(self, news: list[tuple[object, Struct]]) -> None:
        for token, response in news:
            asker = self._askers.pop(token, None)
            if asker is None:
                continue
            player, step = asker
            match response, step:
                case JoinGroupResponse(), Join():
                    player.membership.join_answered(step, response, self.now_ms)
                case SyncGroupResponse(), Sync():
                    player.membership.sync_answered(step, response, self.now_ms)

    def lose_connection(self, player: Player) -> None:
        """What the member awaits will not come, whether or not the coordinator got the request."""
        waiting = [token for token, (asker, _) in self._askers.items() if asker is player]
        in_flight = player.membership._in_flight
        for token in waiting:
            del self._askers[token]
        if isinstance(in_flight, Join | Sync):
            player.membership.exchange_failed(in_flight, "the connection was lost", self.now_ms)

    def advance(self, by_ms: int) -> None:
        self.hear(self.bench.advance(self.now_ms + by_ms))

    def reload(self) -> None:
        before = {*self.bench.answers}
        self.bench.reload()
        # Generations that were not in the log yet are numbered again.
        self.taken = {}
        self.hear([(token, answer) for token, answer in self.bench.answers.items() if token not in before])

    def run(self, for_ms: int, step_ms: int = 500) -> None:
        """Let everybody poll and everything arrive."""
        for _ in range(for_ms // step_ms):
            for player in [each for each in self.players if each.is_alive]:
                player.poll()
                self.deliver()
                player.heartbeat()
                self.deliver()
            self.advance(step_ms)

    # What must hold

    def members(self) -> dict[str, object]:
        group = self.bench.groups.get(GROUP)
        return dict(group.members) if group is not None else {}

    def check_taken(self, player: Player, step: Take) -> None:
        members = self.members()
        # Who comes back under the name of an instance has what that had, in the same generation.
        name = player.membership.policy.instance_id or player.name
        for each in step.partitions:
            owner = self.taken.setdefault((step.generation, each), name)
            assert owner == name, f"{each} has two owners in generation {step.generation}"
        if player.membership.member_id not in members:
            return
        for other in self.players:
            if other is not player and other.is_alive and other.membership.member_id in members:
                shared = other.program.has & {*step.partitions}
                assert not shared, f"{player.name} was given {shared} before {other.name} gave them up"

    def check_quiet(self) -> None:
        """Everybody is in, and everything that somebody wants is read by one of them."""
        alive = [each for each in self.players if each.is_alive and each.membership.failure is None]
        if not alive:
            return
        group = self.bench.groups[GROUP]
        for each in alive:
            assert each.membership.state is MemberState.STABLE, (each.name, each.membership.state)
            assert each.membership.generation == group.generation
            assert each.program.has == {*each.membership.owned}
            assert all(partition.topic in each.topics for partition in each.program.has)
        owned = [partition for each in alive for partition in each.program.has]
        wanted = {topic for each in alive for topic in each.topics}
        everything = {TopicPartition(topic, number) for topic in wanted for number in range(self.topics.get(topic, 0))}
        assert len(owned) == len({*owned})
        assert {*owned} == everything
