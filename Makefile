# On a fresh machine: `make demo`, then `make test`; `make test-all` before a release.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
PYTEST := $(BIN)/python -m pytest -n 2 --no-loadscope-reorder
RELEASE := build/release/tools
INPUTS := pyproject.toml constraints.txt canary/__init__.py

.PHONY: demo test lint tests unit trainings test-all rare docs corpora stacks release-candidate clean

demo: $(VENV)/.train
	$(BIN)/canary demo

# mypy has work for one core only: the tests run beside it.
test:
	@$(MAKE) --no-print-directory --jobs=2 lint tests

tests: $(VENV)/.dev
	$(PYTEST) -m "end_to_end or not (train or slow)"

# What CI runs side by side: style, types and layers; tests that train nothing; the trainings of `make test`.
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(PYTEST) -m "not (end_to_end or train or slow)"

trainings: $(VENV)/.dev
	$(PYTEST) -m end_to_end

# Everything before a release. `rare`: the README's pictures, every other training, the notebooks with their times.
test-all: test rare

rare: $(VENV)/.dev
	$(BIN)/python -m tools.pictures --optional -o build/pictures
	$(PYTEST) -m "(train or slow) and not end_to_end and not long" tests/faults tests/integration tests --durations=100 --durations-min=5

# The documentation site, in build/site, and its tests. It needs no torch.
docs: $(VENV)/.docs
	$(BIN)/python -m pytest tests/contract/test_site.py tests/contract/test_pins.py
	$(BIN)/python -m tools.site build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html; its search needs a server: $(BIN)/python -m http.server -d build/site"

# The planted commits and packages that judge `canary bisect`: an hour of small trainings.
corpora: $(VENV)/.dev
	$(PYTEST) -m long

# The oldest and the newest trl that the canary trains on; `nox -s stacks` tries all of them. And
# offline runs of W&B, which the tested set leaves out.
stacks: $(VENV)/.dev
	$(BIN)/nox -s stacks -- 0.19.1 1.16.0 --quick
	$(BIN)/nox -s wandb

# The files of a release, made of HEAD and tried in clean environments (CONTRIBUTING.md).
release-candidate: $(RELEASE)/.tools
	$(RELEASE)/bin/nox -s release_candidate -- $(PYTHONS)

$(RELEASE)/.tools: requirements/release.lock.txt
	$(PYTHON) -m venv $(RELEASE)
	@echo "Installing what makes a release (build, twine, nox ...) into $(RELEASE): 0.2 GB"
	$(RELEASE)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes -r $<
	@touch $@

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch first and pinned: a looser requirement would fetch the newest CUDA build, several GB.
$(VENV)/.train: $(VENV)/.venv $(INPUTS)
	@echo "Installing torch of constraints.txt into $(VENV): 5 GB with CUDA's libraries (Linux), 0.8 GB without"
	$(PIP) torch
	@echo "Installing what trains beside it (transformers, trl, peft, datasets ...) and what draws reports into $(VENV): 0.8 GB"
	$(PIP) -e '.[train,report]'
	@touch $@

$(VENV)/.dev: $(VENV)/.train
	@echo "Installing the test tools (pytest, mypy, ruff, nox ...) into $(VENV): 0.6 GB"
	$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.venv $(INPUTS)
	@echo "Installing what builds the documentation (mkdocs, nbconvert ...) into $(VENV): 0.2 GB"
	$(PIP) -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) .nox canary_output build *.egg-info
