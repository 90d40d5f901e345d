# `make demo` shows the main job; `make test` runs the suite; `make check` is what continuous integration runs.
# Each works on a fresh clone: whatever is missing in .venv is installed first.

.DEFAULT_GOAL := help
.PHONY: help packages demo test test-all check format-check lint types floors examples format bench clean

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# A file's tests stay together, for what they share; more processes than that disturb those that look at the clock.
IN_PARALLEL := --numprocesses logical --maxprocesses 4 --dist loadfile
AZURITE := $(VENV)/azurite
AZURITE_INSTALLED := $(AZURITE)/.installed
FRAMEWORKS_INSTALLED := $(VENV)/deepspeed/.installed $(VENV)/horovod/.installed

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# What tests of several hosts and of failing disks are made of, and no Python package brings. Where it is missing they
# are skipped, by name.
PACKAGES := iproute2 iptables openssh-client openssh-server slurmctld slurmd slurm-client munge strace cmake g++

packages:  ## Debian's packages for the tests of several nodes and of failing disks (as root)
	@missing=$$(for each in $(PACKAGES); do dpkg -s $$each >/dev/null 2>&1 || echo $$each; done); \
	if [ -n "$$missing" ]; then \
	  apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	fi

demo: $(INSTALLED)  ## train, pause, resume: the main job, and how to look at its results
	@$(BIN)/python examples/demo.py

test: $(INSTALLED) $(AZURITE_INSTALLED) $(FRAMEWORKS_INSTALLED)  ## the tests, but for those marked slow
	$(BIN)/pytest $(IN_PARALLEL)

test-all: $(INSTALLED) $(AZURITE_INSTALLED) $(FRAMEWORKS_INSTALLED)  ## the slow tests too
	$(BIN)/pytest $(IN_PARALLEL) -m "slow or not slow"

check: format-check lint types floors  ## all that continuous integration runs
	@$(MAKE) test
	@$(MAKE) demo

format-check: $(INSTALLED)
	$(BIN)/ruff format --check .

lint: $(INSTALLED)
	$(BIN)/ruff check .

types: $(INSTALLED)
	$(BIN)/mypy

floors: $(INSTALLED)
	$(BIN)/lint-imports

format: $(INSTALLED)  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED)  ## measure, each figure beside its baseline
	@for benchmark in benchmarks/[a-z]*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

clean:  ## remove the environment, the demo and all caches
	rm -rf $(VENV) .demo dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# The first candidate that runs and is new enough; version managers leave commands behind that only print an error.
$(BIN)/python:
	@for candidate in python3.11 python3.12 python3.13 python3; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "$$candidate -m venv $(VENV)"; exec $$candidate -m venv $(VENV); \
	  fi; \
	done; \
	echo "make: Python 3.11 or newer is needed, as python3.11 or python3" >&2; exit 1

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV); the first time takes a minute or two"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

# Microsoft's emulator of Azure's storage, in the versions of its lock file, by the npm of a wheel: no node is needed on
# the machine. Without npm's registry there is no stamp: its tests are skipped and say so, and the next call tries again.
$(AZURITE_INSTALLED): tests/buckets/azurite/package-lock.json | $(INSTALLED)
	@echo "installing Azurite into $(AZURITE); that takes half a minute"
	@if $(BIN)/python tests/buckets/azurite/install.py $(AZURITE); then touch $@; else \
	  echo "make: Azurite is not installed, so checkpoints in Azure are NOT TESTED: see $(AZURITE)/install.log" >&2; fi

# DeepSpeed and Horovod, each in an environment on top of ours. What is compiled for them is kept in the user's cache; the
# first time Horovod takes three minutes. Without one there is no stamp: its tests are skipped and say so.
$(FRAMEWORKS_INSTALLED): $(VENV)/%/.installed: tests/frameworks/install.py constraints.txt | $(INSTALLED)
	@echo "installing $* into $(VENV)/$*; that takes a minute or three, unless what it compiles is cached"
	@if PYTHONPATH=tests $(BIN)/python -m frameworks.install $* $(VENV)/$*; then touch $@; else \
	  echo "make: $* is not installed, so training with it is NOT TESTED: see $(VENV)/$*/install.log" >&2; fi
