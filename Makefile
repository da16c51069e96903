# Runs with GNU make 3.81 (macOS) and later; the recipes are plain sh.
SHELL = /bin/sh
.DEFAULT_GOAL = help

PYTHON ?= python3
UV ?= uv
VENV = .venv
BIN = $(VENV)/bin
READY = $(VENV)/ready
INFRA_BIN = .venv-infra/bin
MINISTACK_BIN = .venv-ministack/bin
LOCALSTACK_VENV = .venv-localstack
LOCALSTACK_BIN = $(LOCALSTACK_VENV)/bin
LOCALSTACK_READY = $(LOCALSTACK_VENV)/ready
POSTGRES_15 ?= /usr/lib/postgresql/15/bin
# More arguments for pytest, for example: make test ARGS="-k publish"
ARGS ?=

# The tests make thousands of small files and databases: in memory where there is room for them.
ROOMY = $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4194304 { print "/dev/shm" }')
TEST = TMPDIR=$(or $(ROOMY),$(TMPDIR),/tmp) $(BIN)/pytest -n 4

SUITES = unit properties postgres operations golden reading restore style kinds export deploy remedies doctor tamper lambda aws soak emulators
COMPILE = $(UV) pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11

.PHONY: help setup demo pictures test test-system test-nfs crash soak tools lint lint-infra localstack localstack-core bench package lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Build .venv with everything a checkout needs (Python 3.11 or later)

# The stamp is written last, so an interrupted setup starts again.
$(READY): requirements/dev.txt pyproject.toml
	@set -eu; \
	found=; \
	for python in "$(PYTHON)" python3.14 python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    found=$$python; break; \
	  fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "make setup: Python 3.11 or later is needed; $(PYTHON) is older or missing." >&2; \
	  echo "Install one, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	  echo "make setup: $$found cannot make virtual environments." >&2; \
	  echo "On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; \
	fi; \
	rm -f $(READY); \
	if ! $(BIN)/python -c 'import pip' >/dev/null 2>&1; then \
	  echo "Making $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv --clear $(VENV); \
	fi
	@echo "Installing the locked requirements"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)
	@echo "Ready: $(BIN)/tallystick"

demo: $(READY) ## Watch it work on a small database of its own, a killed tick included
	@$(BIN)/tallystick demo

pictures: $(READY) ## Take the README's pictures of the demo anew
	@COLUMNS=80 $(BIN)/tallystick demo --pictures docs/pictures

# What tests pack, and the client they run it under: fetched once, so that they themselves need no index.
WHEELS = build/wheels/ready

$(WHEELS): $(READY) requirements/functions.txt requirements/runtime.txt
	rm -rf $(@D)
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
	  --dest $(@D) -r requirements/functions.txt -r requirements/runtime.txt
	@touch $@

test: $(READY) $(WHEELS) ## Run the tests that need Python and make only
	$(TEST) -m "not system and not emulator and not core" $(wildcard $(addprefix tests/,$(SUITES))) $(ARGS)

# `server` marks every test that talks to a Postgres (set in tests/conftest.py): all of them run again on the oldest
# server a supported Debian carries, a quick selection of what make crash does among them.
test-system: $(READY) $(WHEELS) tools ## Run the Postgres tests on Debian's Postgres 15, and those that need system tools
	TALLYSTICK_TEST_PG_BIN=$(POSTGRES_15) $(TEST) -m "(server or system) and not sweep and not guest and not core and not emulator" tests $(ARGS)

# Where the sweeps leave what they tried, one JSON line for each kind of call; and to try one point in so many
# of each kind only (7, say: see tests/crash/extent.py).
RESULTS ?= build/crash
EVERY ?= 1

crash: $(READY) tools ## Kill, fail and stop ticks at every system call, cut them off at every message, spoil every byte (Linux on x86-64; minutes)
	rm -rf $(RESULTS)
	@status=0; TALLYSTICK_TEST_EVERY=$(EVERY) TALLYSTICK_TEST_RESULTS=$(RESULTS) \
	$(TEST) -m "system or sweep" tests/crash tests/tamper $(ARGS) || status=$$?; \
	$(BIN)/python -m tests.crash.record $(RESULTS); exit $$status

# For how long, and any seed; a round that was judged unsound prints how to go through it again.
SECONDS ?= 600

soak: $(READY) ## Kill, stop and lie to ticking processes, fill a disk, kill Postgres, act as operators (Linux, root; minutes)
	$(BIN)/python -m tests.soak --seconds $(SECONDS) $(ARGS)

# How often the power goes; the whole proof wants 50.
CUTS ?= 3

test-nfs: $(READY) ## Boot guests: two NFSv4.1 clients at one volume, and power cuts on ext4 (Debian on x86-64, root)
	tests/nfs/fetch.sh build/nfs
	rm -rf build/cuts
	@status=0; \
	TALLYSTICK_TEST_CUTS=$(CUTS) TALLYSTICK_TEST_RESULTS=build/cuts $(TEST) -m guest tests/nfs $(ARGS) || status=$$?; \
	$(BIN)/python -m tests.crash.record build/cuts; exit $$status

tools:
	@missing=; \
	need() { command -v "$$1" >/dev/null 2>&1 || missing="$$missing $$2"; }; \
	need psql postgresql-client; \
	need zstd zstd; \
	need jq jq; \
	need sha256sum coreutils; \
	need unshare util-linux; \
	need strace strace; \
	need faketime faketime; \
	need spin spin; \
	need ip iproute2; \
	need /usr/sbin/mkfs.ext4 e2fsprogs; \
	need gcc gcc; \
	need /usr/sbin/pgbouncer pgbouncer; \
	need $(POSTGRES_15)/initdb postgresql-15; \
	if [ -n "$$missing" ]; then \
	  echo "make test-system: missing Debian packages:$$missing" >&2; \
	  echo "Install them with: apt-get install$$missing" >&2; exit 1; \
	fi

# The template as a deployment sees it: more is found in it than in what it is made from.
TRANSFORMED = build/infra/template.json

lint: $(READY) .venv-infra/ready ## Check style, types, the direction of imports and the AWS template
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(INFRA_BIN)/python infra/transform.py $(TRANSFORMED)
	$(INFRA_BIN)/cfn-lint $(TRANSFORMED)
	$(INFRA_BIN)/checkov --config-file infra/checkov.yaml --file $(TRANSFORMED)

# Tools whose requirements are not to meet those of the program: each has an environment of its own.
.venv-%/ready: requirements/%.txt $(READY)
	rm -f $@
	@test -x $(@D)/bin/python || $(BIN)/python -m venv --clear $(@D)
	@echo "Installing the locked requirements of $*"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r $<
	@touch $@

# The oldest Kubernetes the examples are held against; without -k it is the newest the schemas know.
KUBERNETES_OLDEST = 1.29
UNITS = infra/systemd/tallystick-tick.service infra/systemd/tallystick-tick.timer infra/systemd/tallystick-run.service
# systemd-analyze wants the program to be there, and only warns of a value it does not know: a warning of ours fails.
# A service must score at most this, in tenths of the exposure (0 to 100).
EXPOSURE_MAX = 20

lint-infra: .venv-infra/ready ## Check image file, compose files, units, Kubernetes examples (needs systemd-analyze)
	@command -v systemd-analyze >/dev/null 2>&1 || { \
	  echo "make lint-infra: systemd-analyze is missing: apt-get install systemd" >&2; exit 1; }
	$(INFRA_BIN)/hadolint --failure-threshold style infra/container/Containerfile
	$(INFRA_BIN)/check-jsonschema --builtin-schema vendor.compose-spec infra/compose/compose.yaml localstack/compose.yaml
	$(INFRA_BIN)/kubernetes-validate --strict infra/kubernetes/*.yaml
	$(INFRA_BIN)/kubernetes-validate --strict -k $(KUBERNETES_OLDEST) infra/kubernetes/*.yaml
	@set -eu; \
	place=$$(mktemp -d); trap 'rm -rf "$$place"' EXIT; \
	for unit in $(UNITS); do \
	  sed 's|/opt/tallystick/bin/tallystick|/bin/true|' "$$unit" >"$$place/$${unit##*/}"; \
	done; \
	echo "systemd-analyze verify $(UNITS)"; \
	systemd-analyze verify --man=no "$$place"/* >"$$place/said" 2>&1 || { cat "$$place/said"; exit 1; }; \
	if grep tallystick "$$place/said"; then exit 1; fi; \
	for service in "$$place"/*.service; do \
	  systemd-analyze security --offline=yes --threshold=$(EXPOSURE_MAX) --no-pager "$$service" \
	    >"$$place/said" || { cat "$$place/said"; exit 1; }; \
	  tail -n 1 "$$place/said"; \
	done

# What is deployed there: the template as the platform transforms it.
EMULATED = build/localstack/template.json

localstack: $(WHEELS) .venv-ministack/ready ## Deploy the AWS stack into an emulator without Docker, and let its schedule archive (minutes)
	@$(MINISTACK_BIN)/python infra/transform.py $(EMULATED)
	$(BIN)/pytest -s -m emulator tests/emulators $(ARGS)

# The second pass is for crontab, which comes as source only: what builds it is in the lock, and has to be there first.
$(LOCALSTACK_READY): requirements/localstack.txt
	rm -f $(LOCALSTACK_READY)
	@test -x $(LOCALSTACK_BIN)/python || "$(PYTHON)" -m venv --clear $(LOCALSTACK_VENV)
	@echo "Installing the locked requirements of localstack-core"
	@sed '/^crontab==/,/^ *# via/d' requirements/localstack.txt >$(LOCALSTACK_VENV)/wheels.txt
	@$(LOCALSTACK_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r $(LOCALSTACK_VENV)/wheels.txt
	@$(LOCALSTACK_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r requirements/localstack.txt
	@touch $(LOCALSTACK_READY)

# The emulator wants the release of Python that the functions have, and finds it as make package does.
PLATFORM_PYTHON = $$($(BIN)/python -c 'from infra.packaging import found; print(found(None) or "")')

localstack-core: $(READY) ## Try secrets, queues and schedules on LocalStack's own core, without Docker (Python 3.13)
	@found=$(PLATFORM_PYTHON); \
	if [ -z "$$found" ]; then \
	  echo "make localstack-core: nothing was tried, since LocalStack's core wants Python 3.13 and none was found"; \
	else \
	  $(MAKE) --no-print-directory PYTHON="$$found" $(LOCALSTACK_READY) && \
	  $(BIN)/python -m localstack.core $(BIN)/pytest -n 2 tests/aws/test_credentials.py tests/aws/test_examining.py tests/aws/test_localstack.py tests/aws/test_seed.py $(ARGS); \
	fi

bench: $(READY) ## Measure against peers in one run
	@if [ ! -f tests/bench/__main__.py ]; then echo "make bench: tests/bench is not there yet" >&2; exit 1; fi
	$(BIN)/python -m tests.bench $(ARGS)

package: $(READY) ## Pack the AWS Lambda functions, the same bytes every time, into build/package (Python 3.13)
	@$(BIN)/python -m infra.packaging $(ARGS)

# What only people at a shell need: the functions do without it and what it brings along.
AT_A_SHELL = rich typer

# Needs uv. The locks carry hashes and no index address: any mirror that serves the same files will do.
lock: ## Lock requirements/*.txt anew from pyproject.toml
	@command -v $(UV) >/dev/null 2>&1 || { echo "make lock: uv is missing; name it with UV=/path/to/uv" >&2; exit 1; }
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --extra metrics pyproject.toml -o requirements/run.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --group build -o requirements/build.txt
	printf '%s\n' $(AT_A_SHELL) | \
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --extra aws --excludes - pyproject.toml -o requirements/functions.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --group runtime -o requirements/runtime.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --group infra -o requirements/infra.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --group ministack -o requirements/ministack.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(patsubst 3.11,3.13,$(COMPILE)) --group localstack -o requirements/localstack.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --extra embedded --extra query --extra metrics --extra aws --group dev pyproject.toml -o requirements/dev.txt

clean: ## Remove what make built
	rm -rf $(VENV) .venv-infra $(LOCALSTACK_VENV) .venv-ministack build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
