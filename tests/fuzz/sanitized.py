"""Runs a module with kernels that watch their own memory accesses and arithmetic: gcc's ASan and UBSan.

    python -m tests.fuzz.sanitized tests.fuzz.produce_frames --rounds 500
    python -m tests.fuzz.sanitized pytest tests/broker/test_ordinary_produce.py

The sources are copied to `build/sanitized` and built there; what is in use stays as it is. A run ends with the first
thing that is found. Python's own leaks are not looked for, and its allocator is the system's, so that the sanitizer
sees every object's bounds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "sanitized"
FLAGS: Final = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
#: Kernels are built for speed and without line numbers; here it is the other way round.
INSTEAD: Final = ('"-O3", "-g0"', '"-O1", "-g1"')


def build() -> None:
    """Bring the copy up to date, and compile what has changed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("src", "tests"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        left_out = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / name, FOLDER / name, ignore=left_out)  # with the times by which the build goes
    for name in ("pyproject.toml", "README.md"):
        shutil.copy2(ROOT / name, FOLDER / name)
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    if INSTEAD[0] not in setup:
        raise SystemExit(f"setup.py does not say {INSTEAD[0]} any more")
    changed, there = setup.replace(*INSTEAD), FOLDER / "setup.py"
    if not there.exists() or there.read_text(encoding="utf-8") != changed:
        there.write_text(changed, encoding="utf-8")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=FOLDER, env={**os.environ, "CFLAGS": FLAGS}, check=True)


def library(name: str) -> str:
    """Where gcc has a library."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return os.path.realpath(found.stdout.strip())


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    build()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{FOLDER / 'src'}:{FOLDER}",
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": f"{library('libasan.so')}:{library('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    arguments = sys.argv[1:]
    if arguments[0] == "pytest":
        arguments += ["-p", "no:cacheprovider"]
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=FOLDER, env=environment, check=False)
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
