# make run     install into .venv and start a node at 127.0.0.1:9092, data in barnabas-data
# make demo    the same with Spark: a click stream and a pipeline at work, to look at
# make test    everything that must hold: lint, types, layers, tests; make test-slow: what takes longer
# make bench   speed, as ratios against peers in the same run
# make install / make wheel

VENV    := .venv
PYTHON  := $(VENV)/bin/python
PIP     := $(PYTHON) -m pip --disable-pip-version-check -q
# Spark starts its Python workers with the interpreter named here, and answers on loopback only.
SPARK   := PYSPARK_PYTHON=$(CURDIR)/$(PYTHON) SPARK_LOCAL_IP=127.0.0.1
TESTS   := $(SPARK) $(PYTHON) -m pytest
KERNEL  := $(wildcard src/barnabas/*/_kernel/*.pyx src/barnabas/*/_kernel/*.pxd)

.PHONY: run demo test test-slow bench install wheel checks lint types layers pytest oracles docs clean

run: $(VENV)/installed
	$(VENV)/bin/barnabas up

demo: $(VENV)/installed-for-spark
	$(VENV)/bin/barnabas demo

install: $(VENV)/installed

$(VENV)/created:
	sh scripts/prerequisites
	python3 -m venv $(VENV)
	@touch $@

# The compiled kernel is built by the installation, so a change of its source installs again.
$(VENV)/installed: $(VENV)/created pyproject.toml setup.py $(KERNEL)
	$(PIP) install -e .
	@touch $@

$(VENV)/installed-for-spark: $(VENV)/created pyproject.toml setup.py $(KERNEL)
	$(PIP) install -e '.[spark]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-for-tests: $(VENV)/created pyproject.toml setup.py $(KERNEL)
	$(PIP) install -e '.[test]'
	@touch $@ $(VENV)/installed

# The installation computes while the oracles come over the network.
test:
	@$(MAKE) --no-print-directory -j2 $(VENV)/installed-for-tests oracles
	@$(MAKE) --no-print-directory -j2 checks pytest

checks: lint types layers

lint: $(VENV)/installed-for-tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/installed-for-tests
	$(VENV)/bin/mypy

layers: $(VENV)/installed-for-tests
	$(VENV)/bin/lint-imports

# Some tests wait for other programs, and may wait in vain beside all the rest: what failed runs once more, alone, and has
# failed if it fails then. Both runs are told of.
pytest: $(VENV)/installed-for-tests
	$(TESTS) -n 3 --dist loadscope --no-loadscope-reorder -m "not slow" || { \
		echo "What failed, alone:"; $(TESTS) -v --last-failed --last-failed-no-failures none -m "not slow"; }

# What `make test` has no time for: further comparisons and faults on Spark, and drivers and executors killed by 20 seeds.
test-slow: $(VENV)/installed-for-tests oracles
	$(TESTS) -m slow
	$(SPARK) $(PYTHON) -m tests.spark.crashes --seeds 20

# Apache Kafka's jars, Spark's Kafka connector and other peers, for comparison. Best effort: what cannot be fetched is
# skipped, by name.
oracles:
	@sh scripts/oracles

bench: $(VENV)/installed-for-tests
	$(SPARK) $(PYTHON) -m bench

# The tables of settings, from their declarations.
docs: $(VENV)/installed
	$(PYTHON) -m barnabas.base.settings.markdown docs/settings barnabas.broker.settings:BROKER_SETTINGS \
		barnabas.storage.settings:TOPIC_SETTINGS barnabas.client.settings:PRODUCER_SETTINGS \
		barnabas.client.settings:CONSUMER_SETTINGS barnabas.client.settings:ADMIN_SETTINGS

wheel: $(VENV)/created
	rm -rf build
	$(PIP) wheel --no-deps -w dist .

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/barnabas/*/_kernel/*.c src/barnabas/*/_kernel/*.so
