"""franz-go, the client of the Go world, in transactions of both kinds. Its stories are in franz_go/stories.go."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.admin import FeatureUpdate, FeatureUpgrade
from barnabas.client.admin.sync_admin import Admin
from tests.compat.brokers import OVERRIDES, OurServer, unique
from tests.compat.confluent_client import Confluent
from tests.compat.samples import Sample
from tests.oracles import ROOT, other_process

STORIES: Final = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / "franz-go" / "stories"
_TIMEOUT_S: Final = 60
_DIED: Final = 3


def missing() -> str | None:
    return None if STORIES.exists() else "franz-go is not in .oracles: run 'make oracles', which needs Go"


pytestmark = other_process(missing())


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node with transactions of the one kind, then of the other."""
    with OurServer(tmp_path_factory.mktemp("node"), OVERRIDES) as server:
        if request.param < 2:
            with Admin(bootstrap_servers=server.bootstrap) as admin:
                lower = FeatureUpdate(request.param, FeatureUpgrade.SAFE_DOWNGRADE)
                admin.update_features({"transaction.version": lower})
        yield server.bootstrap


def play(story: str, *arguments: object, dies: bool = False) -> Any:
    """The facts that a story printed; None if it was to die."""
    done = subprocess.run(
        [str(STORIES), story, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    assert done.returncode == (_DIED if dies else 0), done.stderr[-4000:]
    return None if dies else json.loads(done.stdout)


def test_what_is_committed_is_read_and_the_older_of_two_is_fenced(node: str) -> None:
    topic = Confluent(node).topic(2)
    facts = play("transactions", node, topic, unique("id"))
    assert facts["fenced"] in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    seen = play("committed", node, topic, 7)
    assert seen == {"committed": [0, 1, 2, 6, 7, 10, 11], "everything": list(range(12))}


def test_a_session_that_dies_in_the_middle_writes_what_follows_from_each_record_once(node: str) -> None:
    client = Confluent(node)
    source, target, group, name = client.topic(2), client.topic(2), unique("group"), unique("loop")
    count = 300
    client.produce(source, [Sample(b"%d" % number, b"%d" % number) for number in range(count)])
    # It dies twice with records of an open transaction in the log.
    play("loop", node, source, target, group, name, count, 90, dies=True)
    play("loop", node, source, target, group, name, count, 130, dies=True)
    facts = play("loop", node, source, target, group, name, count, 0)
    assert facts["transactions"] >= 1
    seen = play("committed", node, target, count)
    assert seen["committed"] == list(range(count))
    again = Counter(seen["everything"]) - Counter(seen["committed"])
    assert again, "nothing was aborted, so that nothing could be seen twice"
