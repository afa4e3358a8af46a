# Needs Python 3.11 or newer with pip, and make. Everything is installed into .venv and nowhere else.
PYTHON ?= python3
# One more than there are cores: some tests wait for other processes. Each worker reads all tests first, which takes a while.
JOBS ?= 3

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet

.DEFAULT_GOAL := help
.PHONY: help serve test test-clients matrix test-console check bench fuzz docs docs-site pictures lock sbom release clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

serve: .venv/.serve ## run the gateway; PORT=8080 chooses the port, ARGS="--xray 50" adds options
	@echo "The command \`dragoman\` is in $(CURDIR)/$(BIN). To use it in another terminal: . $(CURDIR)/$(BIN)/activate"
	@$(BIN)/dragoman serve $(if $(PORT),--port $(PORT)) $(ARGS)

test: check ## everything CI runs: check, then all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-clients: .venv/.dev ## Claude Code, Codex, Gemini CLI, opencode, Qwen Code from npm, through the gateway
	DRAGOMAN_TEST_CLIENTS=1 DRAGOMAN_CLIENTS_PAGE=$(PAGE) $(BIN)/python -m pytest tests/clients

matrix: .venv/.dev ## every SDK and framework x five upstream dialects, written to docs/sdk-matrix.md
	DRAGOMAN_TEST_CLIENTS=1 DRAGOMAN_REAL=1 DRAGOMAN_MATRIX=1 $(BIN)/python -m pytest tests/clients/test_matrix.py

test-console: .venv/.console ## the console in a real browser (Chromium must be installed)
	DRAGOMAN_TEST_CONSOLE=1 $(BIN)/python -m pytest tests/console

check: .venv/.dev ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layers.py

bench: .venv/.dev ## measure speed, with goals and verdicts; about eight minutes
	@missed=0; for part in run growth gateway; do $(BIN)/python bench/$$part.py || missed=1; done; exit $$missed

fuzz: .venv/.dev ## ten minutes of odd bytes for everything that reads some
	$(BIN)/python bench/fuzz.py

docs: .venv/.dev ## write the generated pages under docs/
	$(BIN)/python tools/docs.py

docs-site: .venv/.docs ## the documentation as a site in site/; it is read without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"


sbom: ## write dist/sbom.json: what runs, with its hashes, in the form of CycloneDX
	@mkdir -p dist
	$(PYTHON) tools/sbom.py > dist/sbom.json

release: .venv/.release ## build, check and describe what would be uploaded, in dist/; ARGS=--bump for the next version
	$(BIN)/python tools/release.py $(ARGS)

pictures: .venv/.console ## the pictures of the console in docs/pictures
	$(BIN)/python tools/pictures.py

lock: ## pin requirements/*.in again (needs uv); add UPGRADE=--upgrade for newer versions
	$(LOCK) $(UPGRADE) requirements/dev.in -o requirements/dev.txt
	for name in runtime build real release console schemas parquet; do $(LOCK) -c requirements/dev.txt --no-annotate requirements/$$name.in -o requirements/$$name.txt; done
	for name in frameworks adapters; do $(LOCK) $(UPGRADE) --no-annotate requirements/$$name.in -o requirements/$$name.txt; done

clean: ## remove .venv, caches and builds
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -prune -exec rm -rf {} +

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "dragoman needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Making .venv with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.serve: .venv/.made requirements/runtime.txt requirements/build.txt pyproject.toml
	@echo "Installing dragoman into .venv (100 MB, once; up to a minute) ..."
	@$(PIP) --require-hashes --no-deps -r requirements/runtime.txt -r requirements/build.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/.docs: .venv/.made requirements/docs.txt
	$(PIP) --require-hashes --no-deps -r requirements/docs.txt
	@touch $@

.venv/.release: .venv/.made requirements/release.txt
	$(PIP) --require-hashes --no-deps -r requirements/release.txt
	@touch $@

.venv/.dev: .venv/.made requirements/dev.txt pyproject.toml
	$(PIP) --require-hashes --no-deps -r requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/.console: .venv/.dev requirements/console.txt
	$(PIP) --require-hashes --no-deps -r requirements/console.txt
	@touch $@
