# Short commands, the same for people and for CI. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SMALL  := $(VENV)/.small
# Python's own environment variables could point a command at another installation, or make each of
# hundreds of processes compile what it imports.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

SOURCES   := $(wildcard service tests bench deploy examples requirements fast/hapax_fast hatch_build.py)
GATE      := $(BIN)/python -m tests.gate
PROOF     := build/proof
# Parameters of the simulator and of the long fault run.
COUNT     ?= 100000
SEED      ?= 1
# Which share of what rotates is played: by the count of commits, so that a series plays all.
TURN      ?= $(shell $(PYTHON) tests/kit/turn.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup environment sandbox demo test deep full fault-long soak unit sanitize lint format simulate fault-cluster matrix world proof \
        image sbom licences release generate site bench guard lock upgrade clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
	    while IFS='|' read -r name words; do printf '  make %-12s %s\n' "$$name" "$$words"; done

setup: $(READY)  ## .venv with the locked libraries and the project in it

# The stamp is newer than everything that decides what is installed, so a second run does nothing.
# The demo needs neither Spark nor what tests and lints: it has a stamp of its own, and so it begins
# within a minute or two. What is installed for the tests will do for it as well.
INSTALLED := pyproject.toml service/hapax/__init__.py requirements/build.txt requirements/uv.txt \
             requirements/install.py hatch_build.py $(wildcard fast/src/* fast/hapax_fast/*)
$(READY): $(INSTALLED) requirements/test.txt
	@$(MAKE) --no-print-directory environment LOCK=requirements/test.txt
	@touch $(READY) $(SMALL)

$(SMALL): $(INSTALLED) requirements/sandbox.txt
	@$(MAKE) --no-print-directory environment LOCK=requirements/sandbox.txt
	@touch $@

environment:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo 'Python 3.11 or newer is needed. Name one: make setup PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	        apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; \
	    else \
	        echo 'Python cannot make environments. Run: sudo apt-get install python3-venv' >&2; \
	        exit 1; \
	    fi; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python requirements/install.py requirements/build.txt $(LOCK)
	@$(BIN)/python -m compileall -q service/hapax  # or the first worker to start would do it

sandbox: $(SMALL)  ## fetch what a real Kafka and a real Redis on this machine need
	$(BIN)/python -m hapax sandbox fetch

demo: $(SMALL)  ## the whole promise on a real broker, in a minute
	$(BIN)/python -m hapax demo

test: setup  ## what each commit must pass: lint, types, every rule, each promise on real servers
	@$(GATE) test

# What rotates is chosen by the count of commits, and as much of it is played as there is time for.
MINUTES ?= 20
deep: setup  ## what CI plays in addition to `make test`, in MINUTES=20: simulator, guard, shares of the rest
	@$(GATE) deep --minutes $(MINUTES)

full: setup  ## everything, in parts: plays for MINUTES=20, continues where it ended, keeps a record
	@$(GATE) full --minutes $(MINUTES)

fault-long: full

# TEST: names of tests, none: all that are admitted; RUNS=100.
RUNS ?= 100
soak: setup  ## TEST=… again and again alongside a busy core, before make test takes it, for MINUTES=20
	@$(GATE) soak --minutes $(MINUTES) --runs $(RUNS) $(TEST)

lint: setup  ## format check, rules, types, import contracts
	@.ci/part 'format (ruff format --check)' $(BIN)/ruff format --check $(SOURCES)
	@.ci/part 'rules (ruff check)' $(BIN)/ruff check $(SOURCES)
	@.ci/part 'types (mypy --strict)' $(BIN)/mypy $(SOURCES)
	@.ci/part 'import contracts (lint-imports)' $(BIN)/lint-imports

unit: setup  ## the tests that need no broker
	$(BIN)/pytest -n 2 --layer rules

sanitize: setup  ## tests of the native path with address and undefined-behaviour sanitizers
	@.ci/part 'tests: hapax_fast with sanitizers' .ci/sanitize

# What takes minutes lies in the cache afterwards, and `make deep` builds and tries the rest on it.
TARGET ?= worker
image: setup  ## build the image by its Dockerfile, without an engine, start it and print its size; root on Debian
	nice -n 10 $(BIN)/python -m tests.deploy.image_build $(TARGET)
	@$(BIN)/python -m tests.gate note $@

sbom: setup  ## bills of materials of both images, from the locks
	$(BIN)/python -m deploy.sbom build/sbom

# Names of another licence than [tool.pip-licenses] in pyproject.toml allows end it.
licences: setup  ## which licences the libraries of both images state, in build/sbom/licences.md
	@mkdir -p build/sbom
	$(BIN)/python -m piplicenses --format markdown --output-file build/sbom/licences.md \
	    --packages $$(sed -n 's/==.*//p' requirements/worker.txt requirements/spark.txt)

# Of the commit, not of the folder: what is not committed is not released. TAG=v1.2.3 is compared with
# the version that the sources have; without it this is a rehearsal, as in CI.
RELEASE := build/release
TAG     ?=
# Of make release and make matrix: further interpreters, by name or path.
PYTHONS ?=
EACH_PYTHON = $(foreach one,$(PYTHONS),--python $(one))
release: sbom licences  ## what a release publishes, except images: in build/release, with SHA256SUMS; TAG=v1.2.3 PYTHONS=…
	@.ci/part 'wheel, sdist, bills of materials and their sums' \
	    $(BIN)/python -m deploy.release build/sbom $(RELEASE) $(TAG) $(EACH_PYTHON)

generate: setup  ## what is made from code: pages of settings and metrics, copies within deploy/
	$(BIN)/python -m tests.deploy.generated

site: setup  ## docs/ as a site in build/site, offline
	$(BIN)/python -m mkdocs build --strict

simulate: setup  ## COUNT schedules of the real core and loop; SEED=7 COUNT=1 plays one again
	@.ci/part 'simulation: $(COUNT) schedules from seed $(SEED)' \
	    $(BIN)/python -m tests.simulation --seed $(SEED) --count $(COUNT) --jobs 2

FAULT = $(BIN)/python -m tests.fault
# Both protocols of the group, one after the other; half of the records and faults each.
RECORDS ?= 2000000
FAULTS  ?= 60
fault-cluster: setup  ## a Spark cluster under FAULTS=60 faults and RECORDS=2000000, on both group protocols
	@mkdir -p $(PROOF); failed=0; \
	for protocol in static kip848; do \
	    .ci/part "a Spark cluster, $$protocol" $(FAULT) run cluster --membership $$protocol \
	        --seconds 7200 --faults $$(( $(FAULTS) / 2 )) --records $$(( $(RECORDS) / 2 )) \
	        --seed $(SEED) --folder $(PROOF) || failed=1; \
	done; [ $$failed = 0 ] && $(BIN)/python -m tests.gate note $@

ONLY ?=
world: setup  ## other clients on exactly-once topics, against docs/world/run.json; ONLY="sarama", KAFKA=3.9
	@$(BIN)/python -m tests.world $(if $(ONLY),--only $(ONLY)) $(if $(KAFKA),--kafka $(KAFKA)) \
	    $(if $(ACCEPT),--accept)

matrix: setup  ## a short campaign on each version of Kafka, Redis and PySpark, and on PYTHONS, for docs/versions.md
	@.ci/part 'a campaign on each version' \
	    $(BIN)/python -m tests.fault.versions $(EACH_PYTHON) $(if $(ONLY),--only $(ONLY))
	@$(BIN)/python -m tests.gate note $@

proof: setup  ## docs/proof.md from what make deep and make full have struck
	@$(BIN)/python -m tests.fault.reporting --folder $(PROOF) --keep

format: setup  ## write what lint would complain about
	@$(BIN)/ruff check --fix-only $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

# JSON=FILE keeps every run; BENCH='--quick' or '--only NAME': python -m bench --help.
bench: setup  ## CPU a record, rate, latency: Hapax alongside a plain loop and other libraries
	$(BIN)/python -m bench $(BENCH) $(if $(JSON),--json $(JSON))

guard: setup  ## fail when the record path costs more of the plain loop than it may
	@.ci/part 'guard of the record path' $(BIN)/python -m bench guard

# Each file keeps to the versions of the one before, so that they install side by side.
UV      := $(or $(shell command -v uv),$(wildcard $(BIN)/uv))
COMPILE  = $(UV) pip compile pyproject.toml --quiet --universal --generate-hashes --no-annotate \
           --no-emit-index-url --custom-compile-command 'make lock' $(UPGRADE)

lock:  ## regenerate requirements/ from pyproject.toml, keeping versions where it can
	@test -n '$(UV)' || { echo 'uv is needed. Type: $(BIN)/pip install uv' >&2; exit 1; }
	$(COMPILE) --extra tracing --extra registry --extra transactions --extra state \
	    -o requirements/worker.txt
	$(COMPILE) --extra tracing --extra registry --extra transactions --extra state --extra spark \
	    -c requirements/worker.txt -o requirements/spark.txt
	$(COMPILE) --extra sandbox --extra spark --extra tracing --extra registry --extra msk-iam --extra transactions --extra state --group test --group lint \
	    -c requirements/spark.txt -o requirements/test.txt
	$(COMPILE) --extra sandbox -c requirements/test.txt -o requirements/sandbox.txt
	$(subst pip compile pyproject.toml,pip compile,$(COMPILE)) --group build \
	    -c requirements/test.txt -o requirements/build.txt
	$(subst pip compile pyproject.toml,pip compile,$(COMPILE)) --group uv -o requirements/uv.txt
	for peer in quixstreams aiokafka; do \
	    $(subst pyproject.toml,bench/peers/$$peer/requirements.in --python-version 3.11,$(COMPILE)) \
	        -o bench/peers/$$peer/requirements.txt || exit 1; \
	done

upgrade:  ## lock, with the newest versions
	@$(MAKE) --no-print-directory lock UPGRADE=--upgrade

clean:  ## remove the environment and every cache
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find $(SOURCES) -type d -name __pycache__ -prune -exec rm -rf {} +
