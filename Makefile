# Two commands: `make run` and `make test`. Both set up .venv first, if needed.
.PHONY: help run test lint types install test-asan test-crash bench clean
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
CORE := $(wildcard src/mqks/*/*.pyx src/mqks/*/*.pxd) setup.py

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 14

run: install  ## run the broker on port 25000 and its pipeline on Spark (ARGS="--port=… --no-pipeline" for more)
	@exec $(BIN)/mqks up $(ARGS)

test: install lint types  ## lint, types, every test
	$(BIN)/python -m pytest -q

lint: install  ## ruff: style and likely mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install  ## mypy, strict
	$(BIN)/mypy

install: .venv/core.stamp  ## set up .venv with the pinned versions and build the core

test-asan: install  ## the tests that reach the core, on a build with AddressSanitizer and UBSan
	@echo "building the core with sanitizers"
	@MQKS_SANITIZE=1 $(BIN)/python setup.py --quiet build --build-lib build/asan --build-temp build/asan-objects
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH=build/asan \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	$(BIN)/python -m pytest -q --timeout=600 tests/broker tests/server tests/journal tests/sim tests/client \
	  tests/test_dialogues.py

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

bench: install  ## measure beside NATS, Redis, Spark's own reader and a plain copy (ARGS="--quick" for a look)
	@$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove what was built and installed
	rm -rf .venv build dist src/mqks.egg-info src/mqks/*/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/tools.stamp: pyproject.toml constraints.txt
	@echo "setting up .venv (a minute or two the first time: Spark is large)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) setuptools wheel Cython
	@touch $@

.venv/core.stamp: .venv/tools.stamp $(CORE)
	@echo "building the core"
	@$(PIP) --no-build-isolation --editable '.[dev,bench]'
	@touch $@
