# make serve | build | test | lint | bench — each sets up what it needs.
# make test-upstream VLLM=DIR GAUDI=DIR — the tests of the fixes on real trees: folders that hold vllm and vllm_gaudi.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export NO_MKDOCS_2_WARNING := 1

.PHONY: setup serve build check test test-fast test-upstream lint bench lock schema clean

setup: $(VENV)/.ready

# The environment is made anew when the locked versions change.
$(VENV)/.ready: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or later is needed: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing: on Debian install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.torch: $(VENV)/.ready requirements-torch.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-torch.txt
	@touch $@

serve: setup
	$(BIN)/mkdocs serve

build: setup
	$(BIN)/python build_site.py

check: setup
	$(BIN)/python build_site.py --check

test: setup $(VENV)/.torch lint check
	@tests/chromium.sh
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-fast: setup $(VENV)/.torch
	$(BIN)/python -m pytest -n auto -m "not browser"

test-upstream: setup $(VENV)/.torch
	@test -d "$(VLLM)/vllm" -a -d "$(GAUDI)/vllm_gaudi" || { echo "make test-upstream VLLM=DIR GAUDI=DIR: DIR holds vllm, and vllm_gaudi" >&2; exit 2; }
	UPSTREAM_VLLM="$(VLLM)" UPSTREAM_GAUDI="$(GAUDI)" $(BIN)/python -m pytest tests/test_fixes.py

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: setup $(VENV)/.torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-bench.lock
	$(BIN)/python -m benchmarks

schema: setup
	$(BIN)/python build_site.py --schema -o schema/recipe.schema.json

lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --python-version 3.10 --group dev --generate-hashes --universal --no-emit-index-url --no-annotate --no-header -q -o requirements.lock

clean:
	rm -rf _site .cookbook-cache $(VENV)
