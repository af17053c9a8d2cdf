"""`storage accept-loss`: a node on real files loses some, refuses the partition, and goes on when told to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas import BarnabasError, Producer
from barnabas.testing import EmbeddedBroker
from tests.cli.test_storage import write_config
from tests.cli.tools import Tools

COUNT = 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a node with 20 records in clicks-0, which was stopped cleanly."""
    data = tmp_path / "data"
    with EmbeddedBroker(data) as broker:
        broker.create_topic("clicks")
        broker.create_topic("views")
        send(broker, COUNT)
    return data


@pytest.fixture
def config(tmp_path: Path, data: Path) -> str:
    return write_config(tmp_path, str(data))


def send(broker: EmbeddedBroker, count: int) -> list[int]:
    impatient = {"delivery.timeout.ms": 1000, "request.timeout.ms": 800, "linger.ms": 0}
    with Producer({"bootstrap.servers": broker.bootstrap_servers, **impatient}) as producer:
        sent = [producer.send("clicks", b"%d" % number) for number in range(count)]
        return [each.result(10).offset for each in sent]


def data_file(data: Path) -> Path:
    return data / "clicks-0" / f"{0:020d}.log"


def empty(data: Path) -> None:
    data_file(data).write_bytes(b"")


def remove(data: Path) -> None:
    shutil.rmtree(data / "clicks-0")


@pytest.fixture(params=[empty, remove], ids=["an emptied file", "no directory"])
def damaged(request: pytest.FixtureRequest, data: Path) -> Path:
    request.param(data)
    return data


def test_a_damaged_partition_is_refused_until_the_loss_is_accepted(
    barnabas: Tools, damaged: Path, config: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with EmbeddedBroker(damaged) as broker:
            with pytest.raises(BarnabasError):
                send(broker, 1)
            running = barnabas("storage", "accept-loss", "-c", config, "--all", "--yes")
            assert (running.code, running.err) == (1, f"barnabas: a node is running on {damaged}; stop it first\n")
    assert "clicks-0 cannot be used" in caplog.text
    told = barnabas("storage", "accept-loss", "-c", config)
    assert told.code == 1
    assert [line.split()[:3] for line in told.out.splitlines()[:2]] == [
        ["PARTITION", "FIRST-LOST", "LAST-LOST"],
        ["clicks-0", "0", "19"],
    ]
    told = barnabas("storage", "accept-loss", "-c", config, "clicks-0", "--yes")
    assert (told.code, told.out.splitlines()[-1]) == (0, "clicks-0 can be used again, without these records.")
    with EmbeddedBroker(damaged) as broker:
        assert send(broker, 3) == [20, 21, 22]
    assert barnabas("storage", "accept-loss", "-c", config).out == "No partition is damaged.\n"


def test_nothing_is_changed_unless_somebody_says_yes(
    barnabas: Tools, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty(data)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    monkeypatch.setattr("click.confirm", lambda text: False)
    told = barnabas("storage", "accept-loss", "--directory", str(data), "--all")
    assert (told.code, told.out.splitlines()[-1]) == (1, "Nothing was changed.")
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--all", "clicks-0"], 2, "name partitions or give --all, not both"),
        (["clicks"], 2, "clicks is not a partition"),
        (["clicks-7"], 1, "clicks-7 does not lie in"),
    ],
)
def test_wrong_calls_are_told(barnabas: Tools, config: str, arguments: list[str], code: int, said: str) -> None:
    told = barnabas("storage", "accept-loss", "-c", config, *arguments)
    assert told.code == code
    assert said in told.err


def test_where_the_node_is_must_be_given_once(barnabas: Tools, config: str) -> None:
    for arguments in ([], ["-c", config, "-d", "x"]):
        told = barnabas("storage", "accept-loss", *arguments)
        assert (told.code, "either --config FILE or --directory DIR" in told.err) == (2, True)


def test_partitions_that_are_well_are_left_alone(barnabas: Tools, config: str, data: Path) -> None:
    before = data_file(data).read_bytes()
    told = barnabas("storage", "accept-loss", "-c", config, "clicks-0", "views-0", "--yes")
    assert (told.code, told.out) == (0, "clicks-0 is not damaged.\nviews-0 is not damaged.\nNo partition is damaged.\n")
    assert data_file(data).read_bytes() == before


def test_directories_that_are_missing_are_named(barnabas: Tools, tmp_path: Path) -> None:
    told = barnabas("storage", "accept-loss", "-d", str(tmp_path / "nowhere"))
    assert (told.code, told.err) == (1, f"barnabas: {tmp_path}/nowhere does not exist\n")
    assert not (tmp_path / "nowhere").exists()
