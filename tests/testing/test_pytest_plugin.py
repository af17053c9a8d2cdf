"""The pytest plug-in, in a pytest run of its own, as a user has it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

PLUGIN = "barnabas.testing.pytest_plugin"

USERS_TESTS = """
from barnabas.testing import EmbeddedBroker
import asyncio
import pytest
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.wire.messages.metadata import MetadataRequest

seen = set()

async def topics(bootstrap):
    client = await ScriptedClient.connect(bootstrap)
    answer = await client.ask(MetadataRequest(topics=None))
    await client.close()
    return {topic.name: len(topic.partitions) for topic in answer.topics}

@pytest.mark.parametrize("way", ["a/b c", "d"])
def test_topics_are_fresh(barnabas_bootstrap, barnabas_topic, way):
    assert barnabas_topic not in seen
    seen.add(barnabas_topic)
    assert asyncio.run(topics(barnabas_bootstrap))[barnabas_topic] == 1

def test_the_broker_is_one_for_all(barnabas_broker, barnabas_bootstrap):
    assert isinstance(barnabas_broker, EmbeddedBroker)
    assert barnabas_broker.bootstrap_servers == barnabas_bootstrap
    assert seen <= set(asyncio.run(topics(barnabas_bootstrap)))

def test_another_asks_who_is_there(barnabas_secured_broker):
    from barnabas import Admin
    own = barnabas_secured_broker.security.client_settings
    with Admin(barnabas_secured_broker.bootstrap_servers, **own("admin")) as admin:
        admin.create_topics(["orders"])
        assert "orders" in admin.list_topics()
    with Admin(barnabas_secured_broker.bootstrap_servers, **own("ann", "OAUTHBEARER")) as admin:
        assert list(admin.list_topics()) == []
"""

CLUSTER_TESTS = """
import pytest

@pytest.fixture
def barnabas_cluster_nodes():
    return 2

@pytest.fixture
def barnabas_cluster_settings():
    return {"num.partitions": 4}

@pytest.mark.parametrize("time", [1, 2])
def test_each_has_a_cluster_of_its_own(barnabas_cluster, time):
    assert barnabas_cluster.running == [1, 2]
    barnabas_cluster.create_topic("orders", partitions=-1)
    assert barnabas_cluster.leader("orders", 3) in (1, 2)
    barnabas_cluster.kill(time)
"""

SETTINGS = """
import pytest

@pytest.fixture(scope="session")
def barnabas_settings():
    return {"listeners": "nonsense"}
"""

UNCONCERNED = """
import sys

def test_nothing_of_ours_was_imported():
    ours = {name for name in sys.modules if name.startswith("barnabas")}
    assert ours <= {"barnabas", "barnabas._version", "barnabas.testing", "barnabas.testing.pytest_plugin"}
"""


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if PLUGIN not in {each.value for each in entry_points(group="pytest11")}:
        command += ["-p", PLUGIN]  # not installed, only on the path; pytest refuses to load it twice
    return subprocess.run(
        [*command, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_fixtures_serve_a_users_tests(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USERS_TESTS)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_a_cluster_serves_one_test(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(CLUSTER_TESTS)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_settings_of_the_broker_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USERS_TESTS)
    (tmp_path / "conftest.py").write_text(SETTINGS)
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "listeners = nonsense" in done.stdout


def test_who_does_not_use_it_does_not_pay_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(UNCONCERNED)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
