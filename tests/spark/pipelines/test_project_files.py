"""What is wrong with a project is told in words, before Spark is started."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from barnabas.spark.pipelines.project import ProjectError, folder_of, load_project

SOUND = """
name: toy
storage: storage
libraries:
  - glob: {include: transformations/**}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "transformations" / "deep").mkdir(parents=True)
    for name in ("b.sql", "a.py", "deep/c.py"):
        (tmp_path / "transformations" / name).write_text("")
    return tmp_path


def written(folder: Path, text: str, name: str = "spark-pipeline.yml") -> Path:
    (folder / name).write_text(text)
    return folder


def problem(folder: Path, text: str) -> str:
    with pytest.raises(ProjectError) as caught:
        load_project(written(folder, text))
    told = str(caught.value)
    assert "\n" not in told
    return told.replace(str(folder), "DIR")


def test_a_sound_project_is_read(folder: Path) -> None:
    # What Python and editors leave beside the files is not the project's.
    for name in ("__pycache__/a.pyc", ".ipynb_checkpoints/a-checkpoint.py", ".a.py.swp"):
        (folder / "transformations" / name).parent.mkdir(exist_ok=True)
        (folder / "transformations" / name).write_text("")
    text = SOUND + 'database: shop\nconfiguration: {spark.sql.ansi.enabled: "true"}\n'
    project = load_project(written(folder, text))
    assert (project.name, project.database, project.catalog) == ("toy", "shop", None)
    assert project.configuration == {"spark.sql.ansi.enabled": "true"}
    assert [str(file.relative_to(folder)) for file in project.definitions] == [
        "transformations/a.py",
        "transformations/b.sql",
        "transformations/deep/c.py",
    ]


def test_the_specification_itself_may_be_named(folder: Path) -> None:
    written(folder, SOUND, "other.yml")
    assert load_project(folder / "other.yml").folder == folder


def test_paths_count_from_the_project_so_that_it_can_be_moved(folder: Path) -> None:
    project = load_project(written(folder, SOUND))
    assert project.storage == (folder / "storage").as_uri()
    assert project.tables == (folder / "tables").as_uri()
    elsewhere = load_project(written(folder, SOUND.replace("storage: storage", "storage: s3a://bucket/x")))
    assert elsewhere.storage == "s3a://bucket/x"


def test_addresses_are_written_as_spark_takes_them(folder: Path) -> None:
    place = folder / "my é shop"
    shutil.copytree(folder / "transformations", place / "transformations")
    written(place, SOUND)
    project = load_project(place)
    assert project.tables == f"file://{place}/tables"
    assert project.storage == f"file://{place}/storage"
    assert folder_of(project.tables) == place / "tables"


def test_tables_may_lie_elsewhere(folder: Path) -> None:
    project = load_project(written(folder, SOUND + "configuration: {spark.sql.warehouse.dir: /data/tables}\n"))
    assert project.tables == "/data/tables"


def test_names_are_short_where_everything_is_in_one_database(folder: Path) -> None:
    project = load_project(written(folder, SOUND))
    assert project.short("spark_catalog.default.clicks") == "clicks"
    assert project.short("spark_catalog.other.clicks") == "spark_catalog.other.clicks"
    assert project.short("to_topic") == "to_topic"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it must be a mapping"),
        ("- a", "it must be a mapping"),
        ("name: [", "line 1: this is not YAML"),
        ("[" * 3000, "things in it lie too deep in each other"),
        (SOUND + "configuration: {spark.x: 2024-13-45}", "line 6: '2024-13-45' is no timestamp: write it in quotes"),
        ("name: !!bool foo", "line 1: 'foo' is no bool: write it in quotes"),
        ("name: !!int ''", "line 1: '' is no int: write it in quotes"),
        ("name: !!timestamp foo", "line 1: 'foo' is no timestamp: write it in quotes"),
        (SOUND + "libaries: []", "unknown key `libaries`: did you mean `libraries`?"),
        (SOUND + "zzz: x", "unknown key `zzz`: known are name, storage"),
        (SOUND.replace("name: toy", ""), "`name` is missing: write for example `name: clickstream`"),
        (SOUND.replace("name: toy", "name: 7"), "`name` must be text, and 7 is not"),
        (SOUND.replace("storage: storage", ""), "`storage` is missing: write for example"),
        (SOUND.replace(": storage", ": file://storage"), "is no absolute path: write `file:///…`"),
        (SOUND.replace(": storage", ": 'file:storage'"), "is no absolute path"),
        (SOUND.replace(": storage", ": 's3a://[::1'"), "`storage: s3a://[::1` is no address: Invalid IPv6 URL"),
        (SOUND + "database: a\nschema: b", "`database` and `schema` mean the same"),
        (SOUND + "delivery: twice", "`delivery: twice`: write at-least-once or exactly-once"),
        (SOUND + "configuration: [a]", "`configuration` must be a mapping"),
        (SOUND + "configuration: {spark.x: 2}", 'the value of spark.x must be text: write `spark.x: "2"`'),
        (SOUND + "configuration: {spark.x: true}", 'write `spark.x: "true"`'),
        (SOUND + "configuration:\n  spark.x:\n", "spark.x has no value: write one in quotes, or remove it"),
        (SOUND + "configuration: {1: a}", "has the key 1, which is no text"),
        ("name: toy\nstorage: s", "`libraries` is missing"),
        ("name: toy\nstorage: s\nlibraries: a.py", "`libraries` must be a list"),
        ("name: toy\nstorage: s\nlibraries: [a.py]", "has the entry 'a.py': write"),
        ("name: toy\nstorage: s\nlibraries: [{glob: {exclude: a}}]", "has the entry"),
        (SOUND.replace("transformations/**", "other/**"), "`include: other/**` matches no file in DIR"),
        (SOUND.replace("transformations/**", "t*/*.py"), "Spark takes a file, or a folder with all below it"),
        (SOUND.replace("transformations/**", "."), "`include: .`: Spark takes a file, or a folder with all below it"),
        (SOUND.replace("transformations/**", "''"), "`include: `: Spark takes a file, or a folder with all below it"),
        (SOUND.replace("transformations/**", "/etc/**"), "write the path as it is seen from DIR"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, text: str, told: str) -> None:
    found = problem(folder, text)
    assert told in found
    assert found.startswith("DIR/spark-pipeline.yml")


def test_a_folder_that_java_would_split_is_refused(folder: Path) -> None:
    place = folder / f"run-14{os.pathsep}00"
    place.mkdir()
    with pytest.raises(ProjectError, match=r"run-14.00: a project cannot lie below a folder that has a . in its name"):
        load_project(written(place, SOUND))


def test_files_that_define_nothing_are_named(folder: Path) -> None:
    (folder / "transformations" / "notes.txt").write_text("")
    assert "matches transformations/notes.txt: only .py and .sql files" in problem(folder, SOUND)


def test_a_folder_without_a_project_says_how_to_get_one(folder: Path) -> None:
    with pytest.raises(ProjectError, match=r"no pipeline project: there is no spark-pipeline\.yml"):
        load_project(folder)
    with pytest.raises(ProjectError, match="does not exist: `barnabas pipeline init"):
        load_project(folder / "nowhere")


def test_two_specifications_are_one_too_many(folder: Path) -> None:
    written(folder, SOUND)
    written(folder, SOUND, "spark-pipeline.yaml")
    with pytest.raises(ProjectError, match="remove one of them"):
        load_project(folder)


def test_a_project_has_the_same_place_from_wherever_it_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder, SOUND)
    monkeypatch.chdir(folder / "transformations")
    for seen in (Path(".."), Path("../spark-pipeline.yml"), folder / "transformations" / ".."):
        assert load_project(seen).folder == folder
    # After a link, `..` leads elsewhere than its name says.
    (folder / "away" / "deep").mkdir(parents=True)
    (folder / "away" / "link").symlink_to(folder / "transformations", target_is_directory=True)
    assert load_project(folder / "away" / "link" / "..").folder == folder
    # Other links keep their names.
    (folder / "away" / "home").symlink_to(folder, target_is_directory=True)
    assert load_project(folder / "away" / "home").folder == folder / "away" / "home"
