"""What `import barnabas` gives, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import barnabas
import barnabas.errors


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_every_error_that_clients_raise_can_be_imported_from_it() -> None:
    assert set(barnabas.errors.__all__) <= set(barnabas.__all__)
    for name in barnabas.errors.__all__:
        assert getattr(barnabas, name) is getattr(barnabas.errors, name)


def test_every_name_that_it_promises_is_there() -> None:
    assert [name for name in barnabas.__all__ if not hasattr(barnabas, name)] == []
    assert set(barnabas.__all__) <= set(dir(barnabas))


def test_its_packages_are_there_after_a_plain_import() -> None:
    assert _python("import barnabas; print(barnabas.aio.Consumer.__name__)") == "Consumer"
    assert _python("import barnabas; print(barnabas.errors.BrokerError is barnabas.BrokerError)") == "True"
    assert _python("import barnabas; print(barnabas.testing.EmbeddedBroker())") == "<EmbeddedBroker, not running>"


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    loaded = "import barnabas, sys; print([name for name in sys.modules if name.startswith('barnabas.')])"
    assert _python(loaded) == "[]"
    assert _python(f"from barnabas import BrokerError; {loaded}").count("barnabas.client") == 0
