"""The example project: written whole, sound, and right about a few rows."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.pipelines.project import ProjectError, load_project
from barnabas.spark.pipelines.templates import ProjectExistsError, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def transforms(tmp_path: Path) -> Iterator[ModuleType]:
    """The project's own module of transforms, as its definition files import it."""
    write_project(tmp_path / "shop")
    spec = importlib.util.spec_from_file_location("clickstream", tmp_path / "shop" / "clickstream.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("clickstream", None)


def test_a_project_is_written_and_sound(tmp_path: Path) -> None:
    written = write_project(tmp_path / "shop", bootstrap_servers="broker:9092")
    assert all(path.is_file() for path in written)
    assert not any("{{" in path.read_text(encoding="utf-8") for path in written)
    project = load_project(tmp_path / "shop")
    assert project.name == "shop"
    assert project.configuration["spark.clickstream.bootstrap.servers"] == "broker:9092"
    names = [file.name for file in project.definitions]
    assert names == ["clicks.py", "page_views.sql", "sessions.py", "timed_clicks.sql", "users.sql"]
    for file in project.definitions:
        if file.suffix == ".py":
            compile(file.read_text(encoding="utf-8"), str(file), "exec")


@pytest.mark.parametrize(
    "name", ["2024", "my: shop", "no", "a 'quoted' \"name\"", "Gerstäcker 😀", "# {{ bootstrap_servers }}"]
)
def test_whatever_a_project_is_called_it_can_be_read(tmp_path: Path, name: str) -> None:
    write_project(tmp_path, name=name)
    project = load_project(tmp_path)
    assert project.name == name
    assert project.configuration["spark.clickstream.bootstrap.servers"] == "127.0.0.1:9092"


def test_it_tells_how_to_begin_anew_with_other_topics(tmp_path: Path) -> None:
    write_project(tmp_path / "shop", bootstrap_servers="127.0.0.1:40123,127.0.0.1:40124")
    text = (tmp_path / "shop" / "README.md").read_text(encoding="utf-8")
    assert "barnabas up --listen 127.0.0.1:40123 " in text
    assert "barnabas demo --clicks-only 127.0.0.1:40123 " in text
    assert "barnabas pipeline run . --full-refresh-all" in text


def test_a_folder_that_has_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ProjectExistsError, match="is not empty"):
        write_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("folder", "options"),
    [("caf\udce9", {}), ("caf\udce9", {"name": "cafe"}), ("cafe", {"name": "caf\udce9"})],
)
def test_names_that_are_no_text_are_refused_before_anything_is_written(
    tmp_path: Path, folder: str, options: dict[str, str]
) -> None:
    with pytest.raises(ProjectError, match=r"caf\\udce9.* is not UTF-8 text"):
        write_project(tmp_path / folder, **options)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_java_would_split_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"run-14.00: a project cannot lie below a folder"):
        write_project(tmp_path / f"run-14{os.pathsep}00")
    assert not list(tmp_path.iterdir())


def test_transforms_do_what_they_say(spark: SparkSession, transforms: ModuleType) -> None:
    seen = [("u1", 0, "/"), ("u1", 4, "/cart"), ("u1", 8, "/thanks"), ("u1", 20, "/"), ("u2", 1, "/")]
    clicks = spark.createDataFrame(
        [(user, NOON + timedelta(minutes=minute), page, 1000) for user, minute, page in seen],
        "user string, at timestamp, page string, stay_ms long",
    )
    users = spark.createDataFrame(
        [("u1", "Frieda", "plus", "CZ")], "user string, name string, plan string, country string"
    )
    rows = transforms.with_users(transforms.sessions(clicks), users)
    found = {
        (row.user, row.name, row.clicks, row.has_bought, row.stay_ms, row.ended_at - row.began_at)
        for row in rows.collect()
    }
    assert found == {
        ("u1", "Frieda", 3, True, 3000, timedelta(minutes=8)),
        ("u1", "Frieda", 1, False, 1000, timedelta(0)),
        ("u2", None, 1, False, 1000, timedelta(0)),
    }
    records = transforms.as_records(users, key="user").collect()
    assert [(row.key, json.loads(row.value)["name"]) for row in records] == [("u1", "Frieda")]
