"""kafka-python's own integration tests, run from its source distribution against a broker that is already there.

Alone, against a node on port 9092 that has the settings of `brokers.OVERRIDES`:

    python -m tests.compat.kafka_python_suite 127.0.0.1:9092 [-k EXPRESSION]

With `-` for the address the suite starts brokers by itself, which are ours: see `kafka_python_brokers`.

Two things are not in the distribution and are made here: `test/__init__.py`, without which Python's own `test` package
is found first, and `test/service.py`, of which a run against a running broker needs a name or two.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.compat import kafka_python_brokers
from tests.oracles import CURRENT, ROOT

RELEASE = "3.0.12"
INTEGRATION = "test/integration"
_DOWNLOAD_TIMEOUT_S = 60

_SERVICE = '''
class ExternalService:
    """A broker that somebody else started."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    """Nothing is spawned here."""
'''

#: A plugin. A consumer that subscribes while the answer to its first question is on its way does not ask again before
#: its metadata is too old: after five minutes, or a second.
_DEFAULTS = """
import kafka

kafka.KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = 1000
"""

#: More of it, for brokers that are not there: clients give up on them after a second.
_IMPATIENCE = """
for each in (kafka.KafkaAdminClient, kafka.KafkaConsumer, kafka.KafkaProducer):
    for name in {"bootstrap_timeout_ms", "max_block_ms"} & each.DEFAULT_CONFIG.keys():
        each.DEFAULT_CONFIG[name] = 1000
"""


class SuiteUnavailableError(Exception):
    """Why the suite cannot be had here."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended: passed, failed, error or skipped; and what it said."""

    name: str
    result: str
    text: str = ""


def suite_folder() -> Path:
    """The unpacked source distribution; fetched from PyPI when it is not there."""
    folder = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles"))
    unpacked = folder / f"kafka_python-{RELEASE}"
    if not (unpacked / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as download, tarfile.open(_download(Path(download))) as archive:
            archive.extractall(folder, filter="data")
        (unpacked / "test" / "__init__.py").touch()
        (unpacked / "test" / "service.py").write_text(_SERVICE)
        (unpacked / "complete").touch()
    return unpacked


def _download(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--timeout", "10", "--retries", "1"]
    what = ["--no-deps", "--no-binary", "kafka-python", f"kafka-python=={RELEASE}"]
    try:
        done = subprocess.run(
            [*pip, "download", "-q", *what, "-d", str(folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_DOWNLOAD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise SuiteUnavailableError(f"PyPI did not give kafka-python {RELEASE} in {_DOWNLOAD_TIMEOUT_S} s") from None
    found = list(folder.glob("*.tar.gz"))
    if not found:
        said = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise SuiteUnavailableError(f"kafka-python {RELEASE} could not be fetched from PyPI: {said[-1]}")
    return found[0]


def run_suite(
    bootstrap: str | None,
    *,
    tests: Sequence[str] = (INTEGRATION,),
    without: Sequence[str] = (),
    arguments: Sequence[str] = (),
    timeout_s: float = 300,
    hang_s: int = 60,
    impatient: bool = False,
) -> dict[str, Outcome]:
    """Run tests of the suite against a broker, or against nodes that it starts; how each ended, by the name that pytest
    gives it.

    A test that hangs would keep all others from being heard; after `hang_s` it ends the run, with its stack. An
    impatient run gives up early on a broker that cannot be reached.
    """
    folder = suite_folder()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        options = {
            "addopts": "",  # they ask for a plugin
            "log_level": "WARNING",
            "faulthandler_timeout": str(hang_s),
            "faulthandler_exit_on_timeout": "true",
        }
        for name, value in options.items():
            command += ["-o", f"{name}={value}"]
        command += [f"--deselect={each}" for each in without]
        plugin = _DEFAULTS + (_IMPATIENCE if impatient else "") + ("" if bootstrap else kafka_python_brokers.PLUGIN)
        (Path(scratch) / "other_defaults.py").write_text(plugin)
        command += ["-p", "other_defaults"]
        ways = [str(folder), scratch, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"KAFKA_VERSION": CURRENT, "PYTHONPATH": os.pathsep.join(ways)}
        if bootstrap is None:
            environment |= kafka_python_brokers.make_root(Path(scratch) / "root")
        else:
            environment |= {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_ROOT": scratch}  # which only has to be there
        done = subprocess.run(
            [*command, *arguments, *tests],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if not report.exists():
            raise RuntimeError(
                f"the suite ended with code {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
            )
        return _outcomes(report)


def _outcomes(report: Path) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        name = name.removeprefix(f"{INTEGRATION}/")
        result, text = "passed", ""
        for kind in ("skipped", "failure", "error"):
            if (found := case.find(kind)) is not None:
                result = "failed" if kind == "failure" else kind
                text = found.get("message") or found.text or ""
        outcomes[name] = Outcome(name, result, text)
    return outcomes


def main() -> int:
    bootstrap, *arguments = sys.argv[1:]
    outcomes = run_suite(None if bootstrap == "-" else bootstrap, arguments=arguments, timeout_s=1200)
    for each in outcomes.values():
        sys.stdout.write(f"{each.result:8} {each.name}  {each.text.splitlines()[0][:150] if each.text else ''}\n")
    return int(any(each.result in ("failed", "error") for each in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
