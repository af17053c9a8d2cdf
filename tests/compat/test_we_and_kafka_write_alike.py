"""Apache Kafka's `UnifiedLog` writes logs that we open, and the same story makes both of us write the same files."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.compat.players import (
    ABANDON,
    CLOSE,
    SMALL,
    STATE,
    Command,
    KafkaPlayer,
    OurPlayer,
    content,
    opened,
    questions,
)
from tests.compat.stories import everything, random_story, start_within_a_transaction, with_our_bytes

ROOMY = SMALL | {"internal.segment.bytes": "1000000", "segment.index.bytes": "65536"}
APPEND_TIME = SMALL | {"message.timestamp.type": "LogAppendTime"}
STORIES: dict[str, tuple[dict[str, str], list[Command]]] = {
    "everything": (SMALL, everything()),
    "append time": (APPEND_TIME, everything()),
    "truncated, with a start within a transaction": (SMALL, start_within_a_transaction()),
    **{f"chance {seed}": (SMALL, random_story(Random(seed), 150, with_refusals=False)) for seed in range(4)},
    **{f"refusals {seed}": (ROOMY, random_story(Random(seed), 150, with_refusals=True)) for seed in range(6)},
}


def fresh(root: Path, *names: str) -> Path:
    directory = root.joinpath(*names, "clicks-3")
    directory.mkdir(parents=True)
    return directory


class Played(NamedTuple):
    """What the players answered, and the files that they left: ours and Kafka's."""

    answers: tuple[list[Any], list[Any]]
    files: tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaPlayer) -> dict[str, Played]:
    """Each story, played by both with the same bytes."""
    root = tmp_path_factory.mktemp("alike")
    result = {}
    for name, (settings, story) in STORIES.items():
        same = list(with_our_bytes(story))
        ours, kafkas = fresh(root, "ours", name), fresh(root, "kafkas", name)
        player = OurPlayer()
        our_answers = player.play([opened(ours, settings), *same])
        rest = [*questions(player.log), CLOSE]
        our_answers += player.play(rest)
        kafkas_answers = kafka.play([opened(kafkas, settings), *same, *rest])
        result[name] = Played((our_answers, kafkas_answers), (content(ours), content(kafkas)))
    return result


@pytest.mark.parametrize("name", STORIES)
def test_we_answer_as_kafka_does(played: dict[str, Played], name: str) -> None:
    ours, kafkas = played[name].answers
    assert ours == kafkas


@pytest.mark.parametrize("name", STORIES)
def test_our_files_are_kafkas_byte_for_byte(played: dict[str, Played], name: str) -> None:
    ours, kafkas = played[name].files
    if name.startswith(("refusals", "truncated")):
        # Kafka takes a snapshot where it truncates.
        kafkas = {file: kept for file, kept in kafkas.items() if not file.endswith(".snapshot") or file in ours}
    assert ours == kafkas


def check_same_view(kafka: KafkaPlayer, written: Path, root: Path, how: dict[str, Any]) -> list[Any]:
    """Open copies of a log in both, ask the same, close, and compare answers and files; our answers."""
    ours, kafkas = (shutil.copytree(written, root / who / "clicks-3") for who in ("ours", "kafkas"))
    player = OurPlayer()
    player.play([opened(ours, SMALL, **how)])
    asked = [*questions(player.log), CLOSE]
    answers = player.play(asked)
    assert answers == kafka.play([opened(kafkas, SMALL, **how), *asked])[1:]
    assert content(ours) == content(kafkas)
    return answers


@pytest.mark.parametrize("ending", ["close", "abandon"])
def test_we_open_what_kafka_wrote(tmp_path: Path, kafka: KafkaPlayer, ending: str) -> None:
    """With batches of Kafka's own making; closed as it should be, or abandoned with indexes that are not trimmed."""
    written = fresh(tmp_path, "written")
    answers = kafka.play([opened(written, SMALL), *everything(), STATE, {"do": ending}])
    assert not [answer for answer in answers if "error" in str(answer)]
    told = answers[-2]
    starts: list[dict[str, Any]] = [
        {"was_clean": False},
        {"was_clean": False, "recovery_point": told["segments"][2][0]},
    ]
    if ending == "close":
        starts.append({"was_clean": True, "recovery_point": told["next_offset"]})
    for number, how in enumerate(starts):
        seen = check_same_view(kafka, written, tmp_path / str(number), how)[0]
        assert {key: seen[key] for key in ("next_offset", "producers", "epochs")} == {
            key: told[key] for key in ("next_offset", "producers", "epochs")
        }


def torn(directory: Path, how: str) -> None:
    """Damage the end of a log as a crash does."""
    last = max(directory.glob("*.log"))
    data = last.read_bytes()
    if how == "cut within a batch":
        last.write_bytes(data[:-7])
    elif how == "zeros behind the end":
        last.write_bytes(data + bytes(300))
    elif how == "cut within a header":
        last.write_bytes(data + data[:20])
    elif how == "a bit flipped":
        last.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    elif how == "a segment in the middle cut":
        middle = sorted(directory.glob("*.log"))[2]
        middle.write_bytes(middle.read_bytes()[:-100])


@pytest.mark.parametrize(
    "how",
    [
        "cut within a batch",
        "zeros behind the end",
        "cut within a header",
        "a bit flipped",
        "a segment in the middle cut",
    ],
)
def test_a_torn_log_is_cut_where_kafka_cuts_it(tmp_path: Path, kafka: KafkaPlayer, how: str) -> None:
    directory = tmp_path / "written" / "clicks-3"
    # Flushed once: epochs are saved with the flush, and Kafka learns of them from their file alone.
    OurPlayer().play([opened(directory, SMALL), *everything(), {"do": "flush"}, ABANDON])
    torn(directory, how)
    check_same_view(kafka, directory, tmp_path, {"was_clean": False})
