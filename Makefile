# Every target works on a fresh clone; only Python 3.11 or newer and make are needed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PEERS := .venv/.peers
LOWEST := .venv-lowest/.ready
PHOTOGRAPHS ?= data/clothing
PHOTOS ?= $(PHOTOGRAPHS)/train
PYTEST := python -m pytest --numprocesses 2 --dist worksteal
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-all test-lowest fuzz crash lint format docs package results measure bench performance figure screenshots notebooks clean

demo: $(READY)  ## train with and without the unlabeled images, and compare
	$(BIN)/rankingmatch bench demo --out runs

test: $(READY)  ## the test suite without the slow tests
	$(BIN)/$(PYTEST) -m "not slow"

test-all: $(READY)  ## the whole test suite
	$(BIN)/$(PYTEST)

test-lowest: $(LOWEST)  ## tests of what uses other packages than torch, with the lowest versions that pyproject.toml allows
	.venv-lowest/bin/$(PYTEST) -m "not slow" -W ignore::DeprecationWarning --ignore tests/report/test_browser.py \
		tests/augment tests/bench tests/cli tests/data tests/networks tests/report tests/runs tests/test_estimator.py

fuzz: $(READY)  ## 10,000 damaged files for each reader: half an hour or so
	RANKINGMATCH_FUZZED_FILES=10000 $(BIN)/python -m pytest -s tests/test_fuzzing.py

crash: $(READY)  ## kill training 50 times at random, and before every file operation
	RANKINGMATCH_KILLS=50 $(BIN)/python -m pytest -s tests/cli/test_interruptions.py

lint: $(READY)  ## check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## build the website into site/; a broken link or a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --site-dir site
	@echo "site/index.html"

package: $(READY)  ## build wheel and sdist into dist/; install the wheel into an empty environment and do all of the README there
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv dist/empty
	dist/empty/bin/python -m pip install --quiet "$$(echo dist/*.whl)[label]"
	cd dist && empty/bin/rankingmatch --version && empty/bin/python -P ../tests/helpers/tour.py
	rm -rf dist/empty

results: $(READY)  ## write the tables and plots of the docs from docs/results: seconds
	$(BIN)/python tools/results.py

measure: $(READY)  ## run what docs/results does not have yet, then make results: takes hours, resumable; see docs/reproduce.md for the data
	$(BIN)/rankingmatch bench photos photos-stl10 digits digits-ranking digits-longtail laptop-stl10 laptop-svhn laptop-fashion-mnist laptop-cifar10 --keep docs/results --out runs/results
	$(BIN)/python benchmarks/without_l2.py --keep docs/results
	$(BIN)/rankingmatch bench labeling stl10 digits --keep docs/results
	$(BIN)/rankingmatch bench labeling $(PHOTOGRAPHS) --seeds 10 --keep docs/results
	$(BIN)/rankingmatch bench labeling $(PHOTOGRAPHS) --method rankingmatch-bm --keep docs/results
	$(BIN)/rankingmatch bench labeling $(PHOTOGRAPHS) --seeds 10 --method logistic-regression --keep docs/results
	$(BIN)/rankingmatch bench labeling digits --seeds 100 --method logistic-regression --keep docs/results
	$(MAKE) results

bench: $(PEERS)  ## compare speed and memory with other libraries and with the bare network: one table, takes minutes
	$(BIN)/python benchmarks/table.py

performance: $(PEERS)  ## measure speed and memory again, and write the tables of the docs: about an hour, on an otherwise idle machine
	for name in table network growth pools ranking_processes ranks processes labeling predict_on_ray; do $(BIN)/python benchmarks/$$name.py --keep docs/results || exit 1; done
	$(BIN)/python benchmarks/methods.py --batch-size 4 --rounds 3 --keep docs/results
	$(BIN)/python benchmarks/variants.py --batch-size 4 --rounds 3 --keep docs/results
	$(BIN)/python benchmarks/variants.py --network digits --batch-size 32 --rounds 7 --keep docs/results
	$(BIN)/python benchmarks/folders.py --memory 10000 100000 --keep docs/results
	$(BIN)/python benchmarks/bank.py $(PHOTOGRAPHS) --keep docs/results
	$(BIN)/python benchmarks/first_model.py $(PHOTOGRAPHS) --keep docs/results
	$(BIN)/python tools/results.py

screenshots: demo  ## take the screenshots of the labeling page and the report in a real browser; PHOTOS has class folders
	$(BIN)/python tools/screenshots.py $(PHOTOS) runs/demo/*

notebooks: $(READY)  ## run the notebooks, and write their outputs into them
	$(BIN)/python tests/helpers/notebooks.py

figure: demo  ## draw the README's figure from the runs of the demo
	$(BIN)/python tools/demo_figure.py runs/demo

clean:  ## remove the environment and caches; runs/ is yours to keep
	rm -rf .venv .venv-lowest dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rankingmatch needs Python 3.11 or newer; set PYTHON=/path/to/python")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(LOWEST): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/helpers/lowest.py > .venv-lowest/constraints.txt
	PIP_CONSTRAINT=$(CURDIR)/.venv-lowest/constraints.txt .venv-lowest/bin/python -m pip install --quiet --editable '.[figures,label,shards,tensorboard,test]'
	@touch $@

$(PEERS): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@
