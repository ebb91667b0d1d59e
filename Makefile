# make demo, make test: each sets up what it needs. Needs Python 3.11+, pip and make.
PYTHON ?= python3
# One more process than cores: some tests wait for a server or a browser.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
STAMP := .venv/.installed

# Python keeps what it compiled, whatever the shell says: reading every test anew costs seconds a process.
export PYTHONDONTWRITEBYTECODE :=
DOCTESTS := --doctest-modules src/dprl
STUDIES := --doctest-modules src/dprl_studies src/dprl/apps/study.py --ignore=src/dprl_studies/atari

.PHONY: demo test check lint coverage format words slow fuzz deep atari lowest bench findings docs release clean

demo: $(STAMP)
	@$(BIN)/dprl demo

test: lint
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(DOCTESTS) tests

check: lint
	@$(BIN)/python -m pytest -n auto $(DOCTESTS) tests/test_layers.py

lint: $(STAMP)-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy

# The tests as they are, and those of the compiled loops once more as plain Python, so that their lines count.
INTERPRETED := tests/evidence/test_against_reference.py tests/evidence/test_laws.py tests/_core
coverage: $(STAMP)-dev
	@$(BIN)/python -m pytest -n auto --cov --cov-report=
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n auto --cov --cov-append --cov-report=term $(INTERPRETED)

format: $(STAMP)-dev
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

# What pages and sentences say, collected into the catalogues of the languages; then translate what
# is empty there. A test fails until nothing is missing and nothing is left over.
SAID := --no-default-keywords -k _ -k gettext -k ngettext:1,2 -k N_ -k NN_:1,2 -k t -k plain -k say -k say_many:1,2
LOCALE := src/dprl/_core/html/locale
words: $(STAMP)-dev
	@$(BIN)/pybabel -q extract -F babel.cfg $(SAID) --no-location --sort-output --ignore-dirs ".*" -o .venv/dprl.pot src/dprl
	@$(BIN)/pybabel -q update -i .venv/dprl.pot -d $(LOCALE) -D dprl -N --ignore-obsolete --ignore-pot-creation-date -w 96

slow lowest deep atari: export OPENBLAS_NUM_THREADS := 1

slow: $(STAMP)-bench
	@$(BIN)/python -m pytest -m slow -n $(WORKERS) --dist worksteal $(STUDIES) tests

# What tests/hostile does in small, for an hour; the figures go to the page that the docs quote.
FUZZ_MINUTES ?= 60
fuzz: $(STAMP)-dev
	@PYTHONPATH=tests/hostile $(BIN)/python tests/hostile/fuzz.py --minutes $(FUZZ_MINUTES) --out docs/benchmarks/fuzz.md

# The lowest versions pyproject.toml allows of what the core needs, in a .venv of their own: the tests in
# which these packages do the work (tables, files, models, compiled loops), and those of the paper.
LOWEST := tests/logs tests/test_paper.py tests/evidence/test_nuisances.py tests/evidence/neighbors/test_neighbors.py \
  tests/evidence/test_against_reference.py tests/planning/test_planning.py tests/planning/test_policy_tree.py \
  tests/policies/test_common_checks.py tests/policies/rules/test_rule_export.py tests/certificate/test_gate.py \
  tests/certificate/test_gate_rules.py tests/learners/test_baselines.py
lowest: export NUMBA_CACHE_DIR := $(CURDIR)/.venv-lowest/kernels# another numba: the other cache stays warm
lowest: .venv-lowest/.installed
	@.venv-lowest/bin/python -m pytest -n $(WORKERS) --dist worksteal $(LOWEST)

.venv-lowest/.installed: pyproject.toml .ci/lowest.py
	@$(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python .ci/lowest.py > .venv-lowest/lowest.txt
	@.venv-lowest/bin/python -m pip --disable-pip-version-check -q install -r .venv-lowest/lowest.txt
	@.venv-lowest/bin/python -m pip --disable-pip-version-check -q install --no-deps -e .
	@touch $@

deep: $(STAMP)-dev
	@$(PIP) install -c constraints.txt -e '.[deep]'
	@$(BIN)/python -m pytest tests/learners/test_fitted.py tests/evidence/neighbors/test_device.py

atari: $(STAMP)-dev
	@$(PIP) install -c constraints.txt -e '.[atari]'
	@$(BIN)/python -m pytest -m 'slow or not slow' tests/dprl_studies/test_atari*.py

bench: $(STAMP)-bench
	@$(BIN)/python benchmarks/end_to_end.py --rows 1e6 1e7 4e7 1e8 --out docs/benchmarks/end_to_end.md
	@$(BIN)/python benchmarks/tabular/run.py --steps 1e6 1e7 5e7 --repeats 3 --out docs/benchmarks/tabular.md
	@$(BIN)/python benchmarks/continuous.py --out docs/benchmarks/continuous.md
	@$(BIN)/python benchmarks/confident.py --out docs/benchmarks/confident.md
	@$(BIN)/python benchmarks/rules.py --out docs/benchmarks/rules.md
	@$(BIN)/python benchmarks/events.py --events 1e6 1e7 1e8 --out docs/benchmarks/events.md
	@$(BIN)/python benchmarks/start.py --out docs/benchmarks/start.md
	@$(BIN)/python benchmarks/serve.py --out docs/benchmarks/serve.md
	@$(BIN)/python benchmarks/out_of_core.py --steps 5e6
	@$(BIN)/python benchmarks/cluster.py --steps 1e7 --out docs/benchmarks/cluster.md

# The rows, tables, figures and pages of docs/findings, all by this code and with one seed, which was
# tuned on by nobody, with as many logs a cell as an afternoon carries. A run that was stopped
# continues; MINUTES=60 begins no task of an experiment after an hour. Where files with this seed were
# published, they are replaced. Left out: claims, which have a page of their own; rules, which take
# days; and Atari, which needs trained networks.
SEED ?= 33
MADE := build/findings-$(SEED)
CONTESTS := gridworld forest risky-arms random-mdps icu-sepsis
REPRODUCE = @$(BIN)/dprl reproduce --seed $(SEED) --out $(MADE) $(if $(MINUTES),--minutes $(MINUTES))
findings: $(STAMP)-bench
	@test -d $(MADE)/tables || $(BIN)/dprl icu simulate --stays 600 --seed $(SEED) --out $(MADE)/tables
	$(REPRODUCE) --logs 200 $(CONTESTS) bounds contrasts
	$(REPRODUCE) hypotension wards --tables $(MADE)/tables
	$(REPRODUCE) --logs 100 intervals coverage confident power
	@for from in $(MADE)/*/rows.parquet; do name=$$(basename $$(dirname $$from)); \
	  for file in rows.parquet settings.json summary.csv page.md figure.png; do \
	    from=$(MADE)/$$name/$$file; to=docs/findings/$$name-$(SEED)-$$file; \
	    case $$file in page.md|figure.png) to=docs/findings/$$name-$(SEED).$${file##*.};; esac; \
	    if test -f $$from; then cp $$from $$to; fi; done; done
	@$(BIN)/python -c "import sys; from PIL import Image; \
	  [Image.open(f).convert('RGB').quantize(128).save(f, optimize=True) for f in sys.argv[1:]]" docs/findings/*-$(SEED).png

docs: $(STAMP)-docs
	@$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Wheel and source archive, installed into empty environments with every extra (some minutes each).
release: $(STAMP)
	@$(BIN)/python .ci/release.py --pythons 3.12 3.13

clean:
	rm -rf .venv .venv-lowest build dist docs/_build .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dprl needs Python 3.11 or newer; try: make PYTHON=python3.11"; exit 1; }
	@echo "Making .venv (once; about a minute) ..."
	@$(PYTHON) -m venv .venv

$(STAMP): .venv/bin/python pyproject.toml constraints.txt
	@$(PIP) install -c constraints.txt -e .
	@touch $@

# lifelines asks for an older pandas than ours, and works with it: an oracle of tests, tables for the gallery.
LIFELINES := install -c constraints.txt --no-deps lifelines autograd autograd-gamma formulaic interface-meta wrapt

$(STAMP)-dev: $(STAMP) pyproject.toml constraints.txt
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@$(PIP) $(LIFELINES)
	@touch $@

$(STAMP)-docs: $(STAMP) pyproject.toml constraints.txt
	@$(PIP) install -c constraints.txt -e '.[docs]'
	@$(PIP) $(LIFELINES)
	@touch $@

$(STAMP)-bench: $(STAMP)-dev
	@$(PIP) install -c constraints.txt -e '.[bench]'
	@touch $@
