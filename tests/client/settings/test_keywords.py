"""The types of the clients' keyword arguments are those of their settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_they_are_up_to_date() -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "settings_keywords", "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run scripts/settings_keywords"
