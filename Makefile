# Every target creates what it needs: `make run` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check
STAMPS := $(VENV)/stamps
WITH = . $(VENV)/bin/activate &&
WORKERS ?= 6 # tests run in so many processes, a file's tests in one; more than two cores, since slow tests wait a lot
PYTEST = python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: run test test-fast soak fuzz audit ui notebook bench wheel lint clean help

run: $(STAMPS)/run ## baseline and gradient accumulation on the real MNIST, compared
	$(WITH) python run.py -m accel=none,accum
	@echo "See the curves: make ui"

test: $(STAMPS)/test ## the whole suite but the long tests
	$(WITH) $(PYTEST) -m "not soak"

test-fast: WORKERS = 4# they wait for little, and each worker collects all tests for ten seconds
test-fast: $(STAMPS)/test ## without the slow tests
	$(WITH) $(PYTEST) -m "not soak and not slow"

soak: $(STAMPS)/test $(STAMPS)/servers ## the long tests, and many combinations of settings
	$(WITH) python -m pytest -m soak

SECONDS ?= 600
TARGETS ?= idx image_folder checkpoint resume pca archive configuration records
fuzz: $(STAMPS)/test $(STAMPS)/fuzz ## coverage-guided fuzzing of the readers; what breaks one is left in .fuzz
	$(WITH) for target in $(TARGETS); do mkdir -p .fuzz/$$target && \
		(cd .fuzz/$$target && PYTHONPATH=$(CURDIR) python -m tests.fuzz.guided $$target \
		-max_total_time=$(SECONDS) -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1) || exit 1; done

audit: $(STAMPS)/audit ## known faults of the pinned packages, from PyPI's advisory service
	$(WITH) python -m pip_audit -r constraints.txt --no-deps --disable-pip

ui: $(STAMPS)/run ## MLflow's UI on this machine, with links to the runs
	$(WITH) python -m msaccel ui

notebook: $(STAMPS)/notebook ## the notebooks, in JupyterLab
	$(WITH) jupyter lab notebooks

bench: $(STAMPS)/bench ## msaccel, the tutorials' way and PyTorch in turn; BENCH='--rounds 3', TORCH=no
	$(WITH) python benchmarks/bench.py $(BENCH)

wheel: $(STAMPS)/run ## dist/msaccel_kernels-*.whl, the operators alone (packaging/kernels)
	$(PIP) wheel -q --no-deps -w dist packaging/kernels
	@rm -rf packaging/kernels/build src/msaccel_kernels.egg-info

lint: $(STAMPS)/dev ## style, types, and which package may import which
	$(WITH) ruff check && ruff format --check && mypy && (cd benchmarks && mypy) && lint-imports

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 12

clean: ## removes the environment; data, runs and results stay
	rm -rf $(VENV)

$(STAMPS)/run: pyproject.toml constraints.txt
	@mkdir -p $(STAMPS)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' || \
		{ echo "Python 3.10 to 3.12 is needed; write make PYTHON=python3.11 with one you have."; exit 1; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -e . -c constraints.txt
	@$(VENV)/bin/python -m msaccel kernels build || true
	touch $@

$(STAMPS)/test $(STAMPS)/notebook $(STAMPS)/dev $(STAMPS)/fuzz $(STAMPS)/audit $(STAMPS)/servers: $(STAMPS)/run
	$(PIP) install -q -e ".[$(notdir $@)]" -c constraints.txt
	touch $@

# A PyTorch that is there is used, whatever its version. TORCH=no leaves no stamp, so the next run looks again.
$(STAMPS)/bench: $(STAMPS)/run
ifeq ($(TORCH),no)
	@echo "TORCH=no: a PyTorch that is not installed is left out of the comparison."
else
	@$(VENV)/bin/python -c 'import torch' 2>/dev/null || { \
		echo "Fetching PyTorch. On Linux its plain wheel brings CUDA along, gigabytes that a CPU does not need:"; \
		echo "press Ctrl-C and read benchmarks/README.md for the CPU build, or write make bench TORCH=no."; \
		$(PIP) install -e ".[bench]" -c constraints.txt; }
	touch $@
endif
