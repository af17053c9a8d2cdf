"""The examples of docs/testing.md run."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "testing.md"


def test_examples_run() -> None:
    failed, tried = doctest.testfile(str(DOCUMENT), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 20
    assert failed == 0


def test_its_test_and_its_settings_work_as_they_stand(tmp_path: Path) -> None:
    test, settings, clusters, security = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    (tmp_path / "test_orders.py").write_text(test, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(settings, encoding="utf-8")
    (tmp_path / "test_clusters.py").write_text(clusters, encoding="utf-8")
    (tmp_path / "test_security.py").write_text(security, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
