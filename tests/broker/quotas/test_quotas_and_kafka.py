"""Who must wait how long: Kafka's own managers of quotas and ours, through the same random stories."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from barnabas.base.errors import BrokerError
from barnabas.base.quotas import DEFAULT_WINDOW, QuotaWindow
from barnabas.broker.controller.controller_channel import BrokerCaller
from barnabas.broker.quotas.client_quota_manager import ClientQuotaManager
from barnabas.metadata.access_images import ClientQuotaEntity, ClientQuotasImage
from barnabas.metadata.client_quotas import CLIENT_ID, CONTROLLER_MUTATION_RATE, USER
from barnabas.metadata.mutation_quotas import ControllerMutationQuotas
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from tests.oracles import needs_kafka, run_java

STORIES = 300
STEPS = 40
USERS = ("ann", "bob")
CLIENTS = ("shop", "till", "empty")
_NO_BOUND = "9.223372036854776E18"
_NO_MOST = "1.7976931348623157E308"


class Caller(BrokerCaller):
    """A client."""

    __slots__ = ()

    @property
    def is_own(self) -> bool:
        return False


class Story:
    """What happens, as lines for Kafka, and what we make of the same."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kind = self.chance.choice(("bytes", "bytes", "time", "changes"))
        self.window = self.chance.choice((DEFAULT_WINDOW, QuotaWindow(2, 1000), QuotaWindow(5, 3000)))
        cap = {"max_throttle_ms": self.window.sample_ms} if self.kind == "time" else {}
        self.key = CONTROLLER_MUTATION_RATE if self.kind == "changes" else "quota"
        self.manager = ClientQuotaManager(self.key, self.window, **cap)
        self.mutations = ControllerMutationQuotas()
        self.quotas = ClientQuotasImage()
        self.now_ms = 1_700_000_000_000

    def lines(self) -> Iterator[tuple[str, str | None]]:
        """Each with what we answer to it."""
        yield f"new {self.kind} {self.window.samples} {self.window.sample_ms // 1000}", None
        # First of all one that is nobody's: Kafka measures nobody before there is a quota.
        yield self.set("nobody", "nothing", 1.0)
        for _ in range(self.chance.randint(0, 6)):
            yield self.set_some()
        # Kafka then also measures those who have none, so what they did counts once they get one. Here it does not;
        # so whoever may get one later has one from the beginning.
        may_change = self.chance.random() < 0.5
        if may_change:
            yield self.set("*", "-", 500.0)
        for _ in range(STEPS):
            if may_change and self.chance.random() < 0.15:
                yield self.set_some()
            else:
                self.now_ms += self.chance.choice((0, 1, 50, 700, 1000, 4000, self.chance.randint(0, 20_000)))
                yield self.happens(self.chance.choice(USERS), self.chance.choice(CLIENTS))

    def set_some(self) -> tuple[str, None]:
        user = self.chance.choice((*USERS, "*", "-"))
        client = self.chance.choice(("shop", "till", "*") if user == "-" else ("shop", "*", "-"))
        may_go = (user, client) != ("*", "-")
        value = None if may_go and self.chance.random() < 0.2 else float(self.chance.randint(1, 2000))
        return self.set(user, client, value)

    def set(self, user: str, client: str, value: float | None) -> tuple[str, None]:
        parts = tuple(
            (kind, None if name == "*" else name) for kind, name in ((USER, user), (CLIENT_ID, client)) if name != "-"
        )
        entity = ClientQuotaEntity(parts)
        self.quotas = self.quotas.delete(entity) if value is None else self.quotas.set(entity, {self.key: value})
        self.manager.set_quotas(self.quotas)
        return f"set {user} {client} {'-' if value is None else value}", None

    def happens(self, user: str, client: str) -> tuple[str, str]:
        client_id = "" if client == "empty" else client
        value = float(self.chance.randint(1, 20_000))
        if self.kind == "changes":
            value = float(self.chance.randint(1, 4000))
            how = self.chance.choice(("strict", "permissive"))
            return f"{how} {user} {client} {value} {self.now_ms}", self.change(how, user, client_id, value)
        if self.chance.random() < 0.1:
            most = self.manager.most_at_once(user, client_id)
            return f"most {user} {client} 0 {self.now_ms}", str(
                float("1.7976931348623157E308") if most is None else most
            )
        limit = self.manager.limit_of(user, client_id)
        throttle_ms = self.manager.record(user, client_id, value, self.now_ms)
        owner = f"{limit.owner[0]} {limit.owner[1]} {limit.bound}" if limit else _NO_BOUND
        return f"record {user} {client} {value} {self.now_ms}", f"{owner} {throttle_ms}"

    def change(self, how: str, user: str, client_id: str, value: float) -> str:
        version = 7 if how == "strict" else 5
        caller = Caller(f"User:{user}", "127.0.0.1", client_id)
        request = CreateTopicsRequest(topics=[])
        quota = self.mutations.of(self.quotas, self.window, request, version, caller, self.now_ms)
        if quota is None:
            return "done 0"
        try:
            quota.take(int(value))
        except BrokerError:
            return f"refused {quota.throttle_ms}"
        return f"done {quota.throttle_ms}"


@pytest.mark.slow
@needs_kafka()
def test_we_and_kafka_find_the_same_quota_and_the_same_time_to_wait() -> None:
    told = [line for seed in range(STORIES) for line in Story(seed).lines()]
    answers = run_java("Quotas.java", "\n".join(line for line, _ in told)).splitlines()
    ours = [(line, answer) for line, answer in told if answer is not None]
    assert len(answers) == len(ours)
    wrong = [
        (line, answer, theirs)
        for (line, answer), theirs in zip(ours, answers, strict=True)
        if not _same(answer, theirs)
    ]
    assert wrong == []
    throttled = [line for line, answer in ours if not answer.endswith(" 0")]
    assert len(throttled) > len(ours) / 10, "stories in which nobody waits show nothing"


def _same(ours: str, theirs: str) -> bool:
    if ours.startswith(_NO_BOUND):
        # Whom Kafka measures without a bound makes no difference.
        return theirs.split()[-2:] == ours.split()
    if theirs.startswith("1.797") or " " not in theirs:
        return float(ours) == float(theirs)
    return [_number(part) for part in ours.split(" ")] == [_number(part) for part in theirs.split(" ")]


def _number(part: str) -> float | str:
    try:
        return float(part)
    except ValueError:
        return part
