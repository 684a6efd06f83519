PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml setup.py $(shell find src -name '*.pyx' -o -name '*.pxd')

.PHONY: help install demo cluster test test-all check format docs bench clean prerequisites

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 11

install: .venv/installed  ## make .venv with everything in it (again only what changed)

demo: .venv/demo  ## 336,776 flights through a consistent hash exchange into a Spark table
	@$(BIN)/jumpmq demo

cluster: install  ## three nodes and an etcd on this machine, to try a cluster out
	@$(BIN)/python scripts/cluster

test: install  ## everything that matters, in ten minutes on two cores
	@scripts/tests $(BIN)/pytest -m 'not slow and not reference' --hypothesis-profile quick

test-all: install  ## every test that this machine can run, also those on a real RabbitMQ
	@scripts/tests $(BIN)/pytest

check: install  ## style, types, and the layers' import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config .ci/rooms.toml

format: install  ## rewrite the sources in the house style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: install  ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: install  ## measure JumpMQ, and RabbitMQ beside it where it is installed
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.memory

clean:  ## remove everything that make made
	rm -rf .venv build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/installed: .venv/demo
	@$(PYTHON) scripts/install dev
	@touch $@

.venv/demo: $(SOURCES) | prerequisites
	@$(PYTHON) scripts/install demo
	@touch $@

prerequisites:
	@scripts/prerequisites $(PYTHON)
