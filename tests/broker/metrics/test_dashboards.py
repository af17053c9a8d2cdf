"""The dashboards and alerts that are shipped ask for what there is; a real Prometheus answers each of their queries."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import known
from barnabas.broker.metrics.controller import EARLY, FROM_ELR, UNCLEAN
from barnabas.broker.metrics.node_metrics import FAMILIES
from barnabas.client.admin import NewTopic, QuotaEntity
from barnabas.client.admin.sync_admin import Admin
from barnabas.client.consumer.sync_consumer import Consumer
from barnabas.client.producer.sync_producer import Producer
from barnabas.testing import EmbeddedBroker
from tests.oracles import ROOT, other_process
from tests.ports import free_ports

DEPLOY = ROOT / "deploy"
DOCS = ROOT / "docs" / "metrics.md"
DASHBOARDS = sorted(DEPLOY.glob("grafana/*.json"))
ALERTS = DEPLOY / "prometheus" / "barnabas-alerts.yml"
_COMPARISON = re.compile(r" (?:>|<|!=|==) [0-9.]+$")
#: A node under test is younger.
_PAST = " offset 10m"
#: What the docs say of the lag of partitions elsewhere.
_LAG = re.compile(r"clamp_min\(.*?, 0\)", re.DOTALL)
_NAME = re.compile(r"\b(?:kafka|barnabas)_[a-z0-9_]+")


def queries() -> dict[str, str]:
    """By where each stands. Of an alert, what it compares: it has no answer while all is well."""
    found = {}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", "20s")
                found[f"{path.stem}: {panel['title']} {target['refId']}"] = expression
    for number, line in enumerate(ALERTS.read_text().splitlines(), 1):
        if line.strip().startswith("expr:"):
            found[f"{ALERTS.name}:{number}"] = _COMPARISON.sub("", line.partition("expr: ")[2]).replace(_PAST, "")
    found["docs/metrics.md: lag"] = known(_LAG.search(DOCS.read_text()), "the docs tell of it")[0]
    return found


def prometheus() -> Path | None:
    folder = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / "prometheus" / "usr" / "bin" / "prometheus"
    found = shutil.which("prometheus")
    return folder if folder.exists() else Path(found) if found else None


def test_queries_name_metrics_that_there_are() -> None:
    names = {each.name for each in FAMILIES}
    names |= {f"{each.name}_{end}" for each in FAMILIES for end in ("bucket", "sum", "count")}
    asked = {name: query for query in queries().values() for name in _NAME.findall(query)}
    assert len(asked) > 40
    assert sorted(set(asked) - names) == []


def test_elections_that_each_node_tells_of_are_not_added_up() -> None:
    """Early fencings are: the active controller alone counts them."""
    asked = " ".join(queries().values())
    assert f"max(increase({UNCLEAN.name}[5m]))" in asked
    assert f"sum(increase({EARLY.name}[5m]))" in asked
    for each in (UNCLEAN, FROM_ELR):
        assert not re.search(rf"sum[^)]*\b{each.name}", asked)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has scraped a node with work for a while."""
    program = prometheus()
    assert program is not None
    folder = tmp_path_factory.mktemp("prometheus")
    (port,) = free_ports(1)
    with EmbeddedBroker(folder / "node", overrides={"metrics.listener": "127.0.0.1:0"}) as broker:
        scraped = urllib.parse.urlsplit(broker.metrics_url).netloc
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\n"
            f"rule_files: [{ALERTS}]\n"
            f"scrape_configs: [{{job_name: barnabas, static_configs: [{{targets: ['{scraped}']}}]}}]\n"
        )
        command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*map(str, command), f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            _work(broker.bootstrap_servers, seconds=12)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _work(bootstrap: str, seconds: float) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("work", 2, 1)])
        quotas = {"producer_byte_rate": 500.0, "consumer_byte_rate": 1e6, "request_percentage": 90.0}
        admin.alter_client_quotas({QuotaEntity(client_id="bounded"): quotas})
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Producer(bootstrap_servers=bootstrap, transactional_id="work") as transactional,
        Producer(bootstrap_servers=bootstrap, client_id="bounded") as bounded,
        Consumer(
            "work", bootstrap_servers=bootstrap, group_id="work", client_id="bounded", auto_offset_reset="earliest"
        ) as consumer,
    ):
        transactional.init_transactions()
        sent = bounded.send("work", b"z" * 2000)
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            transactional.begin_transaction()
            transactional.send("work", b"x").result(10)
            transactional.commit_transaction()
            producer.send("work", b"y").result(10)
            if sent.done():  # else it waits for its quota
                sent = bounded.send("work", b"z" * 2000)
            consumer.poll(0.1)
            consumer.commit()
            time.sleep(0.1)


def answers(address: str, query: str) -> list[object]:
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = json.loads(answer.read())
    assert found["status"] == "success"
    result: list[object] = found["data"]["result"]
    return result


@pytest.mark.slow
@other_process(None if prometheus() else "Prometheus is not in .oracles: run 'make oracles'")
def test_no_query_comes_back_empty(address: str) -> None:
    asked = queries()
    assert len(asked) > 45
    assert [where for where, query in asked.items() if not answers(address, query)] == []


@pytest.mark.slow
@other_process(None if prometheus() else "Prometheus is not in .oracles: run 'make oracles'")
def test_the_rules_are_taken_and_nothing_is_wrong_with_a_healthy_node(address: str) -> None:
    with urllib.request.urlopen(f"{address}/api/v1/rules", timeout=10) as answer:
        groups = json.loads(answer.read())["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == ALERTS.read_text().count("- alert:")
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
    with urllib.request.urlopen(f"{address}/api/v1/targets", timeout=10) as answer:
        targets = json.loads(answer.read())["data"]["activeTargets"]
    assert [each["health"] for each in targets] == ["up"]
