# Two commands: `make run` and `make test`. Both set up .venv first, if needed.
.PHONY: help run test lint types install tools test-asan test-crash bench clean
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
CORE := $(wildcard src/mqks/*/*.pyx src/mqks/*/*.pxd) setup.py

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 18

run: .venv/core.stamp  ## run the broker on port 25000 and its pipeline on Spark (ARGS="--port=… --no-pipeline" for more)
	@exec $(BIN)/mqks up --before-pipeline='make --silent spark' $(ARGS)

.PHONY: spark
spark: .venv/spark.stamp  ## install Spark for the pipeline

test: install tools lint types  ## lint, types, every test
	$(BIN)/python -m pytest -q --numprocesses=2 --dist=loadfile

lint: install  ## ruff: style and likely mistakes; bandit: unsafe calls; pip-audit: packages with known holes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build  # bandit warns of each nosec in an expression of several lines: shown only if it fails
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src 2>build/bandit.log || { cat build/bandit.log; exit 1; }
	@$(BIN)/python -m tests.audit constraints.txt

types: install  ## mypy, strict
	$(BIN)/mypy

install: .venv/dev.stamp  ## set up .venv with the pinned versions, build the core, install Spark and all that tests and benchmarks need

# What tests need beside Python: a browser with a font, what checks systemd's units, and nc.
TOOLS := chromium systemd-analyze nc
PACKAGES := chromium fonts-liberation systemd netcat-openbsd
tools:  ## install what the tests need of the system, where that is allowed
	@for tool in $(TOOLS); do command -v $$tool >/dev/null || missing=yes; done; test -z "$$missing" || { \
	  echo "installing $(PACKAGES)"; \
	  as=$$(test "$$(id -u)" = 0 || echo sudo -n); \
	  { $$as apt-get update -qq && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(PACKAGES); \
	  } >/dev/null || { echo "the tests need $(TOOLS): run  sudo apt-get install $(PACKAGES)"; exit 1; }; }

test-asan: install  ## the tests that reach the core, on a build with AddressSanitizer and UBSan
	@echo "building the core with sanitizers"
	@MQKS_SANITIZE=1 $(BIN)/python setup.py --quiet build --build-lib build/asan --build-temp build/asan-objects
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH=$(CURDIR)/build/asan \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	$(BIN)/python -m pytest -q --numprocesses=2 --dist=loadfile tests/broker tests/server tests/journal tests/sim tests/client \
	  tests/fuzz tests/test_dialogues.py --ignore=tests/server/test_memory_limit.py  # the sanitizers take memory of their own

.PHONY: sim
sim: SEEDS ?= 10000
sim: JOBS ?= $(shell nproc)
sim: install  ## simulate broker and clients with crashes, bad disks and bad links (SEEDS=100000, JOBS=2, FIRST=0)
	@$(BIN)/python -m tests.sim --seeds $(or $(FIRST),0):$$(( $(or $(FIRST),0) + $(SEEDS) )) --jobs $(JOBS)
	@$(BIN)/python -m tests.client.simulation --seeds $(or $(FIRST),0):$$(( $(or $(FIRST),0) + $(SEEDS) )) --jobs $(JOBS)

test-crash: KILLS ?= 200
test-crash: install  ## kill -9 the broker under load, under clients and with Spark, 200 times (KILLS=…, ARGS="--seed=…")
	$(BIN)/python -m tests.crash.harness --kills=$(KILLS) $(ARGS)
	$(BIN)/python -m tests.client.kill --kills=$$(( $(KILLS) / 4 ))
	$(BIN)/python -m tests.spark.kill --kills=$$(( $(KILLS) / 4 ))

.PHONY: fuzz soak
fuzz: SECONDS ?= 300
fuzz: install  ## send hostile input to every parser (SECONDS=…, ARGS="--target=lines --seed=…")
	@echo "building the core with sanitizers, and so that the fuzzer sees which ways it takes"
	@mkdir -p build/fuzz
	@{ MQKS_FUZZ=1 $(BIN)/python setup.py --quiet build --build-lib build/fuzz --build-temp build/fuzz-objects && \
	  $(CC) -shared -fPIC -O2 -o build/fuzz/coverage.so tests/fuzz/coverage.c -ldl; \
	} >build/fuzz/build.log 2>&1 || { cat build/fuzz/build.log; echo "this needs gcc with its sanitizers: sudo apt-get install gcc"; exit 1; }
	@ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH=$(CURDIR)/build/fuzz \
	LD_PRELOAD="$(CURDIR)/build/fuzz/coverage.so $$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	$(BIN)/python -m tests.fuzz --seconds=$(SECONDS) $(ARGS)

soak: MINUTES ?= 30
soak: install  ## load every action from hundreds of connections while faults come (MINUTES=…, ARGS="--seed=…"): build/soak
	@$(BIN)/python -m tests.soak --minutes=$(MINUTES) $(ARGS)

.PHONY: verify
verify: MINUTES ?= 30
verify: install  ## decide every promise from outside: disk faults, power loss, damaged files, hostile load (MINUTES=…, ARGS="--seed=…")
	@$(BIN)/python -m verification all --minutes=$(MINUTES) $(ARGS)

.PHONY: verify-mutations
verify-mutations: install  ## plant bugs in a copy of the broker: does a tool catch each? (ARGS="--only=… --seed=…")
	@$(BIN)/python -m verification mutations $(ARGS)

bench: install  ## measure beside NATS, Redis, Spark's own reader and a plain copy (ARGS="--quick" for a look)
	@$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove what was built and installed
	rm -rf .venv build dist src/mqks.egg-info src/mqks/*/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Three stages: the broker needs the first, its pipeline the second, tests and benchmarks the third.
.venv/tools.stamp: pyproject.toml constraints.txt
	@echo "setting up .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) setuptools wheel Cython
	@touch $@

.venv/core.stamp: .venv/tools.stamp $(CORE)
	@echo "building the core (half a minute to two minutes)"
	@$(PIP) --no-build-isolation --editable .
	@touch $@

.venv/spark.stamp: .venv/tools.stamp | .venv/core.stamp
	@echo "installing Spark (500 MB, a minute or two)"
	@$(PIP) 'mqks[spark,plot]'
	@touch $@

.venv/dev.stamp: .venv/core.stamp .venv/spark.stamp
	@echo "installing what tests and benchmarks need"
	@$(PIP) 'mqks[dev,bench]'
	@touch $@
