# make demo | test | fast | emulate | mutate | lint | speed | readme: each makes .venv first, from the lock. Needs Python 3.11+ only.
# make fast: lint, types and every test that neither compiles nor reads all reports; make test runs them all.
# make mutate: would the tests notice? 150 random changes of diagnosis, evidence and reports; about an hour.
# make fuzz: random damage for ten minutes, then every sweep whole; what breaks is kept for the tests.
# make goldens: every committed input in every form, held against what was answered before; --accept writes them.
# make readme: write the outputs in README.md and docs, the reference and the schemas anew, after rules or records changed.
# make site: the documentation, in build/site/html: tutorial, how-to, reference, why, a card a probe. A few minutes.
# make lock: write constraints.txt anew, the newest versions that fit pyproject.toml.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# A worker a processor, eight at most, and one for 3.5 GB of memory that is there: see tests/conftest.py.
TESTS  := $(BIN)/python -m pytest -n logical --dist worksteal
# What is pinned, unpacked by two processors: pip alone takes one, and a third of its time to find out
# what depends on what. It looks at that afterwards, and installs what this machine takes besides.
PINNED := grep '==' constraints.txt | xargs -P 2 -n 20 \
          $(BIN)/python -m pip install --quiet --no-compile --no-deps
# Every file of tests of which make test tries a part: see tests/sweeps.py.
SWEEPS  = $(shell grep -rlE 'take_part|choose_count|SWEEP_ALL' tests --include 'test_*.py')
# Recorded by profile and by plain ncu; not the probes, nor what a search kept.
REPORTS := artifacts/*.ncu-rep artifacts/attention artifacts/library
# What can be read at a glance: four steps of the ladder beside two of SDPA's backends, a launch each.
SHOWN  := case == "B" and variant in ["stage0", "stage2", "stage3b", "champion", "sdpa-cudnn", \
          "sdpa-efficient"]
# Twenty launches on the page: the ladder at one case beside the library kernels.
PAGE   := case == "B" and variant in ["stage0", "stage1", "stage2", "stage2swizzle", "stage3a", \
          "stage3b", "stage4", "exp2fold", "splitk", "champion", "persistent", "tailwave", \
          "multicast", "async2", "sdpa", "sdpa-cudnn", "sdpa-flash", "sdpa-efficient"] \
          or variant in ["copy", "matmul"]

# Hundreds of tests start profkit: without its compiled modules each start takes half as long again.
# What is imported is compiled then; pip would compile all of it, half a minute of it for nothing.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo ladder ladder-build test tests fast emulate mutate fuzz goldens lint format speed readme site lock clean

help:
	@sed -n 's/^# make/make/p' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "profkit needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	-$(PINNED)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/profkit ladder --case B --brief
	@echo
	$(BIN)/profkit diagnose artifacts/sdpa-cudnn.B.ncu-rep artifacts/stage2.B.ncu-rep --brief
	$(BIN)/profkit roofline $(REPORTS) --where '$(SHOWN)' -o artifacts/roofline.png
	$(BIN)/profkit report $(REPORTS) --where '$(PAGE)' -o artifacts/page.html

# The ladder's page, from the committed records; ladder-build compiles for an L4 first and writes what
# nvcc gives every variant for its budget's test (needs nvcc).
ladder: $(READY)
	$(BIN)/python tools/ladder_page.py

ladder-build: $(READY)
	$(BIN)/python tools/ladder_page.py --build
	$(BIN)/python -m tests.kernels.resources

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Lint beside the tests: mypy and pip leave a processor idle. Who is done takes half of what the other has left.
test: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint tests

tests: $(READY)
	$(TESTS) $(ONLY)

fast: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint tests ONLY="-m 'not slow and not nvcc and not browser and not gpu'"

mutate: $(READY)
	$(BIN)/python tools/mutate.py

goldens: $(READY)
	$(BIN)/python tools/goldens.py

fuzz: $(READY)
	$(BIN)/python tools/bombs.py
	$(BIN)/python tools/fuzz.py --seconds 600
	PROFKIT_SWEEP_ALL=1 $(TESTS) $(SWEEPS)

# Every kernel on the CPU, at every schedule and case, and what passed is written to passed.json: make test
# runs a part of it, of what is not known from there.
emulate: $(READY)
	PROFKIT_EMULATE_ALL=1 $(TESTS) tests/kernels/test_emulated.py tests/kernels/test_problems.py \
	  tests/kernels/test_mutants.py tests/kernels/test_fp8.py tests/diagnosis/test_pages.py \
	  tests/ablation/test_rewriting.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

speed: $(READY)
	$(BIN)/python tests/speed.py

readme: $(READY)
	$(BIN)/python tools/explained.py
	$(BIN)/python tools/schemas.py
	$(BIN)/profkit explain --markdown > profkit/REFERENCE.md
	$(BIN)/python tests/readme.py

site: $(READY)
	$(BIN)/python tools/build_site.py

# Everything that a checkout may install (torch comes with the GPU machine and is not pinned here).
lock:
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --upgrade --editable '.[dev]'
	build/lock/bin/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools \
	  > build/lock/frozen.txt
	{ echo '# Written by "make lock": what .venv is made of. Never edit by hand.'; \
	  LC_ALL=C sort --ignore-case build/lock/frozen.txt; } > constraints.txt

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
