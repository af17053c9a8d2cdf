# make run     install into .venv and start a node at 127.0.0.1:9092, data in barnabas-data; Ctrl-C stops it
# make demo    the same with Spark: a click stream and a pipeline at work, to look at
# make test    everything that must hold: lint, types, layers, tests; make test-slow: what takes longer
# make bench   speed, as ratios against peers in the same run; make bench raft: a part (or NAMES=raft; KEEP=1 keeps the results)
# make bench-quick the same in two minutes, roughly
# make install install into .venv, and start nothing
# make wheel   a wheel in dist, for projects and machines of yours: see docs/installing.md
# make docs    the tables of settings and metrics, from their declarations
# make clean   remove what make made: .venv, build, dist, .oracles and caches; data in barnabas-data stays

VENV    := .venv
PYTHON  := $(VENV)/bin/python
PIP     := $(PYTHON) -m pip --disable-pip-version-check --no-input
STEP    := python3 scripts/step
# Spark starts its Python workers with the interpreter named here, and answers on loopback only.
SPARK   := PYSPARK_PYTHON=$(CURDIR)/$(PYTHON) SPARK_LOCAL_IP=127.0.0.1
TESTS   := $(SPARK) $(PYTHON) -m pytest
KERNEL  := $(wildcard src/barnabas/*/_kernel/*.pyx src/barnabas/*/_kernel/*.pxd)
# Where Python may keep no bytecode, each of the hundreds of processes that tests start compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run demo test test-slow bench bench-quick install wheel checks lint types layers pytest oracles docs clean

help:
	@sed -n 's/^# \(make \)/\1/p' Makefile

run: install
	@$(VENV)/bin/barnabas up

demo: $(VENV)/installed-for-spark $(VENV)/kernel
	@$(VENV)/bin/barnabas demo

install: $(VENV)/installed $(VENV)/kernel

$(VENV)/created:
	@sh scripts/prerequisites
	@$(STEP) "a virtual environment in $(VENV)" python3 -m venv $(VENV)
	@touch $@

# With what builds in the environment itself, pip need not make one of its own for every installation.
$(VENV)/build-tools: pyproject.toml | $(VENV)/created
	@$(STEP) "Cython and setuptools, to build with" $(PIP) install $$(python3 -c \
		'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	@touch $@

# Compiled in place, what changed alone. The installations below find it done.
$(VENV)/kernel: setup.py $(KERNEL) | $(VENV)/build-tools
	@$(STEP) "compiling the kernel: a minute the first time, then what changed" \
		$(PYTHON) setup.py -q build_ext --inplace
	@touch $@

# An editable installation for each of those who ask: what is there already is not installed again.
INSTALL = $(PIP) install --no-build-isolation -e

$(VENV)/installed: pyproject.toml | $(VENV)/kernel
	@$(STEP) "installing barnabas and what it needs" $(INSTALL) .
	@touch $@

$(VENV)/installed-for-spark: pyproject.toml | $(VENV)/kernel
	@$(STEP) "installing PySpark: 450 MB the first time" $(INSTALL) '.[spark]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-for-tests: pyproject.toml | $(VENV)/kernel
	@$(STEP) "installing what tests need, PySpark too: 450 MB the first time" $(INSTALL) '.[test]'
	@touch $@ $(VENV)/installed

# The installation computes while the oracles come over the network. The checks run beside the tests, and are told of when
# those are through.
test:
	@$(MAKE) --no-print-directory -j2 $(VENV)/installed-for-tests $(VENV)/kernel oracles
	@$(MAKE) --no-print-directory checks >$(VENV)/checks.log 2>&1 & checks=$$!; \
	$(MAKE) --no-print-directory pytest; tested=$$?; \
	wait $$checks; checked=$$?; echo; cat $(VENV)/checks.log; exit $$((tested | checked))

checks: lint types layers

lint: $(VENV)/installed-for-tests $(VENV)/kernel
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/installed-for-tests $(VENV)/kernel
	$(VENV)/bin/mypy

layers: $(VENV)/installed-for-tests $(VENV)/kernel
	$(VENV)/bin/lint-imports

# Once, one process writes the bytecode of all tests, which else each worker would make for itself at the same time.
#
# A failure is a failure, but a test that waits for a program which is not ours may wait in vain beside all the rest: it
# runs once more, alone, and is named at the end.
pytest: $(VENV)/installed-for-tests $(VENV)/kernel
	@[ -e $(VENV)/bytecode ] || { $(TESTS) --collect-only -qq >/dev/null 2>&1; touch $(VENV)/bytecode; } & \
	$(PYTHON) -m tests.oracles.class_archive; made=$$?; wait; exit $$made
	$(SPARK) $(PYTHON) -m tests.second_run -n 4 --dist loadscope --no-loadscope-reorder -- -m "not slow"

# What `make test` has no time for: further comparisons and faults on Spark, and drivers and executors killed by 20 seeds.
test-slow: $(VENV)/installed-for-tests $(VENV)/kernel oracles
	$(TESTS) -m slow
	$(SPARK) $(PYTHON) -m tests.spark.crashes --seeds 20

# Apache Kafka's jars, Spark's Kafka connector and other peers, for comparison. Best effort: what cannot be fetched is
# skipped, by name.
oracles:
	@sh scripts/oracles

# What follows `bench` names parts of it, and is nothing to be made.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
PARTS := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(PARTS)
$(PARTS): ; @:
endif

bench: $(VENV)/installed-for-tests $(VENV)/kernel
	$(SPARK) $(PYTHON) -m bench $(if $(KEEP),--keep) $(PARTS) $(NAMES)

bench-quick: $(VENV)/installed-for-tests $(VENV)/kernel
	$(SPARK) $(PYTHON) -m bench --quick

# The tables of settings, from their declarations.
docs: install
	$(PYTHON) -m barnabas.base.settings.markdown docs/settings barnabas.broker.settings:BROKER_SETTINGS \
		barnabas.storage.settings:TOPIC_SETTINGS barnabas.client.settings:PRODUCER_SETTINGS \
		barnabas.client.settings:CONSUMER_SETTINGS barnabas.client.settings:ADMIN_SETTINGS
	$(PYTHON) -m barnabas.broker.metrics.markdown docs/metrics.md

# setuptools would put into the wheel what earlier builds left behind; the kernel, in build/kernel, it may have.
wheel: $(VENV)/kernel
	@rm -rf build/lib* build/bdist*
	@$(STEP) "a wheel in dist" $(PIP) wheel --no-build-isolation --no-deps -w dist .
	@ls dist/*.whl

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/barnabas/*/_kernel/*.c src/barnabas/*/_kernel/*.so .oracles
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +
	@if [ -e barnabas-data ]; then echo "barnabas-data stays: it holds what you wrote to the node"; fi
