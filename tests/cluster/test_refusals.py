"""What cannot work is refused or waited for, in one line that names both sides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.asking import until
from tests.cluster.nodes import Cluster, Node


def refused(node: Node) -> str:
    """What a node says that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "server", "start", str(node.file), "-q"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0, done
    return done.stderr
