"""What is built, and what is told of it: the kernel, the steps of an installation, make."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONG_AGO_S = 1_000_000_000
STEP = (sys.executable, str(ROOT / "scripts/step"))


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project with the smallest of the compiled modules, and one that includes another's declarations."""
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "barnabas"\nversion = "1"\n')
    for layer, names in (
        ("base", ["scratch.pyx"]),
        ("records", ["cursor.pyx", "cursor.pxd", "varint.pxd", "bytes.pxd"]),
    ):
        folder = tmp_path / "src/barnabas" / layer / "_kernel"
        folder.mkdir(parents=True)
        for package in (folder.parent.parent, folder.parent, folder):
            (package / "__init__.py").touch()
        for name in names:
            shutil.copy(ROOT / "src/barnabas" / layer / "_kernel" / name, folder)
    return tmp_path


def compiled(checkout: Path) -> list[str]:
    """The modules that a build in place compiles."""
    done = run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line.split()[1].rpartition(".")[2] for line in done.stdout.splitlines() if "compiling" in line)


def touch(path: Path) -> None:
    """Younger than all that was made, however coarse the clock of the file system is, and not than what will be."""
    for each in [*path.parents[4].rglob("*")]:
        earlier = each.stat().st_mtime - 10
        os.utime(each, (earlier, earlier))
    os.utime(path)


def test_only_what_changed_is_compiled_again(checkout: Path) -> None:
    pytest.importorskip("Cython", reason="Cython is not installed: make test does it")
    pytest.importorskip("setuptools", reason="setuptools is not installed: make test does it")
    kernels = checkout / "src/barnabas"
    assert compiled(checkout) == ["cursor", "scratch"]
    libraries = {path.name.partition(".")[0] for path in kernels.rglob("*.so")}
    assert libraries == {"cursor", "scratch"}
    assert not list(kernels.rglob("*.c")), "what is generated lies below build"
    assert compiled(checkout) == []
    touch(kernels / "base/_kernel/scratch.pyx")
    assert compiled(checkout) == ["scratch"]
    touch(kernels / "records/_kernel/cursor.pxd")
    assert compiled(checkout) == ["cursor"]
    # What comes with Cython is younger than all of it, as in an environment that pip makes for one build.
    for each in [*checkout.rglob("*")]:
        is_source = "build" not in each.relative_to(checkout).parts
        os.utime(each, (LONG_AGO_S, LONG_AGO_S) if is_source else (LONG_AGO_S + 1, LONG_AGO_S + 1))
    assert compiled(checkout) == []
    for library in kernels.rglob("*.so"):
        library.unlink()
    assert compiled(checkout) == []
    assert {path.name.partition(".")[0] for path in kernels.rglob("*.so")} == libraries


def test_a_step_is_told_and_its_output_only_if_it_fails() -> None:
    done = run(*STEP, "something small", sys.executable, "-c", "print('chatter')")
    assert done.returncode == 0
    assert re.fullmatch(r"==> something small\n    done in \d+ s\n", done.stdout)
    done = run(*STEP, "something wrong", sys.executable, "-c", "print('the reason'); raise SystemExit(3)")
    assert done.returncode == 3
    assert done.stdout == "==> something wrong\nthe reason\n"
    assert re.match(r"    failed after \d+ s: ", done.stderr)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_says_what_it_can_do_before_it_does_anything() -> None:
    told = run("make", "help").stdout
    assert run("make").stdout == told
    for goal in ("run", "demo", "test", "bench", "install", "wheel", "clean"):
        assert f"\nmake {goal} " in f"\n{told}"


def test_the_benchmarks_explain_themselves() -> None:
    done = run(sys.executable, "-m", "bench", "--help")
    assert done.returncode == 0
    assert "--quick" in done.stdout
    parts = {path.stem for path in (ROOT / "bench").glob("*.py") if "def run(" in path.read_text()}
    assert {line.split()[0] for line in done.stdout.partition("parts:\n")[2].partition("\n\n")[0].splitlines()} == parts
    wrong = run(sys.executable, "-m", "bench", "nonsense")
    assert wrong.returncode == 2
    assert "no part is called nonsense; there are authorization, clients, " in wrong.stderr
