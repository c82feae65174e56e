.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
DEFAULT_TORCH := 2.13.0
TORCH  ?= $(DEFAULT_TORCH)
# Another release of PyTorch has a venv of its own: make test TORCH=2.15.0
VENV   := .venv$(if $(filter $(DEFAULT_TORCH),$(TORCH)),,-$(TORCH))
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TOWNCRIER := $(BIN)/towncrier
VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
JOBS   ?= 2
BACKEND ?= cpp
LEVEL  ?= loop
NAME   ?= keel_acme

# A day whose nightly build of PyTorch was good, and what finds out whether another one is.
SINCE  ?= $(shell date -u -d '8 days ago' +%F)
TRIAL  ?= python -m pytest -q -n $(JOBS) -m 'not slow' sdk/tests

.PHONY: help dev test check house bless cases conform scaffolds device fuzz bench new docs demo browse dist tutorial workflows nightly \
	bisect changelog release releasable opset

help:  ## show this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 12

dev: $(STAMP)  ## make .venv and install everything, editable; TORCH=2.15.0 for another PyTorch, in .venv-2.15.0

# torchvision pins one build of torch and timm needs torchvision, so both are installed without their dependencies;
# torchvision 0.(N+15) is the release made for torch 2.N, and 0.29 the one for 2.14 and those after it.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	extras=test,bench,triton,onnxruntime,opencl,pjrt,frameworks \
	  && $(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==$(TORCH)' -e ".[$$extras]"
	minor=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch").split(".")[1])') \
	  && vision=$$((minor < 14 ? minor + 15 : 29)) \
	  && $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps timm "torchvision==0.$$vision.*"
	touch $(STAMP)

demo: $(STAMP)  ## a vendor plugin made, installed and used under two real models (about 4 minutes)
	$(BIN)/keel demo

test: $(STAMP)  ## every test, and which ones took longest
	$(BIN)/python -m pytest --tb=short -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=15 $(ARGS)

check: export PYTHONDONTWRITEBYTECODE =# without bytecode, each run compiles every module and test again
check: $(STAMP)  ## ruff, mypy and the fast tests of sdk (under a minute); run it before each commit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m pytest --tb=short -n $(JOBS) --dist loadfile -m 'not slow' \
	  --durations=10 --durations-min=3 sdk/tests $(ARGS)

house: $(STAMP)  ## print the figures of the code's structure and of its English, each a ceiling that may only fall
	$(BIN)/python -m pytest -q -s -k 'figures or declarations' sdk/tests/test_house.py sdk/tests/test_operator_names.py \
	  sdk/tests/test_english.py

bless: $(STAMP)  ## rewrite golden files, then show what changed
	$(BIN)/python -m pytest -q --bless $(ARGS) || true
	git --no-pager diff --stat -- '*/golden/*'

cases: $(STAMP)  ## write the calls anew that conformance cases are drawn from
	$(BIN)/python -m keel_conformance.cases.collect_calls samples
	$(BIN)/python -m keel_conformance.cases.collect_calls written

conform: $(STAMP)  ## run the conformance suite on BACKEND=cpp
	$(BIN)/keel conform --backend $(BACKEND) $(ARGS)

scaffolds: $(STAMP)  ## run tier smoke on both packages that keel new renders (about 4 minutes)
	folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && for level in graph loop; do \
	  $(BIN)/keel new scaffold_$$level --level $$level --dir "$$folder/$$level" \
	  && PYTHONPATH="$$folder/$$level" $(BIN)/keel conform --backend keel_scaffold_$$level:backend --tier smoke \
	       --out "$$folder/run-$$level" $(ARGS) || exit; done

device: $(STAMP)  ## run 30 models on the example device, in inference and training at both levels (about 40 minutes)
	KEEL_PRIVATEUSE1_TESTS=1 $(BIN)/python -m pytest -q -p no:xdist examples/privateuse1/tests/on_device/test_models.py \
	  $(ARGS)

fuzz: $(STAMP)  ## give damaged and made-up files to all that reads files (ARGS="graph=1000 --minutes 10")
	$(BIN)/python -m keel_bench.fuzz $(ARGS)

bench: $(STAMP)  ## measure the line's bars on BACKEND=cpp (long; see docs/benchmarks)
	$(BIN)/keel bench --suite line --backend $(BACKEND) $(ARGS)

new: $(STAMP)  ## render a plugin package NAME at LEVEL=graph or loop
	$(BIN)/keel new $(NAME) --level $(LEVEL)

docs: $(STAMP)  ## write the pages of the opset, check links and snippets of docs/, and build the site in build/site
	$(BIN)/keel spec docs
	$(BIN)/python -m pytest -q conformance/tests/test_docs.py $(ARGS)
	test -x $(BIN)/sphinx-build || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python docs/site/pages.py build/pages
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site build/pages build/site

browse: docs  ## check the site in Chromium: links, console, phone width, accessibility; needs npm and CHROMIUM
	npm install --silent --no-audit --no-fund --prefix build playwright-core axe-core
	node docs/site/check.mjs build/site build/pictures

dist: $(STAMP)  ## build sdist and wheel in dist/, check both, and try the wheel in a clean venv (about 6 minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dist]'
	rm -rf dist && $(BIN)/python -m build --outdir dist . && $(BIN)/twine check --strict dist/*
	folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && $(PYTHON) -m venv "$$folder/venv" \
	  && "$$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
	       'torch==$(TORCH)' "$$(ls $$PWD/dist/*.whl)[conform]" \
	  && cd "$$folder" && export KEEL_CACHE_DIR="$$folder/cache" PATH="$$folder/venv/bin:$$PATH" \
	  && keel backends && keel new keel_acme --level loop && keel demo

tutorial: dist  ## run the tutorial word by word, in a new venv with the wheel (less than 15 minutes)
	folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && export KEEL_CACHE_DIR="$$folder/cache" \
	  PIP_FIND_LINKS="$$PWD/dist $${PIP_FIND_LINKS:-}" PIP_CONSTRAINT="$$folder/torch" PATH="$$(dirname $(PYTHON)):$$PATH" \
	  && echo 'torch==$(TORCH)' > "$$folder/torch" \
	  && program=$$(awk '/^```bash$$/ {on=1; next} /^```$$/ {on=0} on' docs/tutorial/README.md) \
	  && cd "$$folder" && time bash -euxo pipefail -c "$$program"

workflows: $(STAMP)  ## check the workflows in .github: actionlint for mistakes, zizmor for security
	test -x $(BIN)/zizmor || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[workflows]'
	$(BIN)/actionlint
	$(BIN)/zizmor --offline --persona pedantic .github

nightly:  ## run TRIAL with the newest nightly build of PyTorch, in .venv-nightly
	PYTHONPATH=conformance $(PYTHON) -m keel_bench.nightlies --since $(SINCE) --install .venv-nightly
	PATH="$$PWD/.venv-nightly/bin:$$PATH" $(TRIAL)

bisect:  ## name the first nightly build of PyTorch since SINCE=2026-11-01 with which TRIAL fails (hours)
	PYTHONPATH=conformance $(PYTHON) -m keel_bench.nightlies --since $(SINCE) -- $(TRIAL)

changelog: $(TOWNCRIER)  ## print the section of CHANGELOG.md that the fragments give, for VERSION=0.2.0
	$(TOWNCRIER) build --draft --version $(VERSION)

release: $(TOWNCRIER)  ## write VERSION=0.2.0 into pyproject.toml, and the fragments into CHANGELOG.md
	sed -i 's/^version = ".*"/version = "$(VERSION)"/' pyproject.toml
	$(TOWNCRIER) build --yes --version $(VERSION)

releasable: $(STAMP)  ## say what keeps TAG=v0.2.0 from being released
	$(BIN)/python -m keel_bench.releasable $(TAG)

opset: $(STAMP)  ## freeze the lock of the opset, which never changes afterwards, and write its pages
	$(BIN)/keel spec lock --release
	$(BIN)/keel spec docs

$(TOWNCRIER): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dist]'
	touch $(TOWNCRIER)
