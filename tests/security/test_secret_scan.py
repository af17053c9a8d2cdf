"""The look through all that tests make us tell finds what it must: a secret that is shown fails a run."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from barnabas.base.sasl import Mechanism, tokens
from barnabas.base.sasl.scram import ScramCredential
from barnabas.testing.certificates import CertificateAuthority
from tests.secret_scan import MARKER, places_in

ROOT = Path(__file__).parents[2]

#: Each shows a password, a key or a token in another way.
_LEAKS = f"""
import logging, subprocess, sys
import pytest

PASSWORD = "pass-{MARKER}"

def test_nothing_is_shown():
    logging.getLogger("barnabas.net").warning("Failed authentication with 127.0.0.1")

def test_printed():
    print(PASSWORD)

def test_logged():
    logging.getLogger("barnabas.net").warning("login of %s", PASSWORD)

def test_in_an_exception_that_is_logged():
    try:
        raise ValueError(PASSWORD)
    except ValueError:
        logging.getLogger("barnabas.net").exception("what was to happen failed")

def test_told_by_a_process():
    subprocess.run([sys.executable, "-c", f"print('barnabas: {{PASSWORD}}')"], capture_output=True, text=True)

def test_allowed():
    print(PASSWORD)

test_allowed = pytest.mark.shows_secrets(test_allowed)

def test_in_the_log_file_of_a_node(tmp_path):
    (tmp_path / "node-1.log").write_text("sasl.jaas.config = pass-{MARKER}")
"""


def _outcomes(folder: Path) -> dict[str, str]:
    file = folder / "test_leaks.py"
    file.write_text(_LEAKS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    shows_secrets\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.secret_scan", "-p", "no:cacheprovider", "-rA", "-q", str(file)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = (line.split(maxsplit=2)[:2] for line in done.stdout.splitlines() if "::" in line)
    return {name.partition("::")[2]: how for how, name in lines}


@pytest.mark.shows_secrets
def test_a_planted_secret_fails_the_test_that_shows_it(tmp_path: Path) -> None:
    assert _outcomes(tmp_path) == {
        "test_nothing_is_shown": "PASSED",
        "test_printed": "FAILED",
        "test_logged": "FAILED",
        "test_in_an_exception_that_is_logged": "FAILED",
        "test_told_by_a_process": "FAILED",
        "test_allowed": "PASSED",
        "test_in_the_log_file_of_a_node": "ERROR",  # found when the module is over
    }


def test_what_is_made_while_tests_run_is_known() -> None:
    credential = ScramCredential.of_password("x", Mechanism.SCRAM_SHA_256, b"salt", 4096)
    key = CertificateAuthority.create().issue("somebody").key_pem
    for shown in (
        credential.stored_key.hex(),
        b64encode(credential.server_key).decode(),
        str(credential.stored_key),
        key,
        "Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJlLW9mLWFubg",
        tokens.token_hmac("key", "id").hex(),
    ):
        assert list(places_in(f"before {shown} after")), shown
    assert not list(places_in(f"salt {credential.salt!r}, {credential.iterations} iterations"))
    assert MARKER not in "".join(places_in(f"password={MARKER}"))
