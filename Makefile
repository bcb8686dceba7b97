# make run   sets up what is missing and runs the demonstration on real data
# make test  sets up what is missing and runs all tests

PYTHON ?= python3
VENV   ?= .venv
# The newest PyTorch that works with CUDA 13.0; the adapter library is built for its minor version.
TORCH  ?= torch>=2.14,<2.15
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.complete
CXX_SOURCES := $(shell find csrc examples -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')

.PHONY: run test test-core build bench format lint sanitize clean

run: build
	$(BIN)/memops demo

test: build
	$(BIN)/python -m pytest -n 2

# What every supported PyTorch must pass; CI runs it with the oldest: make test-core VENV=... TORCH=...
test-core: build
	$(BIN)/python -m pytest -n 2 -m core

build: $(STAMP)
	$(BIN)/python setup.py --quiet build_ext --inplace

bench: build
	$(BIN)/memops bench

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CXX_SOURCES)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)

# Needs a GPU and compute-sanitizer.
sanitize: build
	PYTHON=$(BIN)/python tools/sanitize.sh

clean:
	rm -rf build out torch_memops/lib

$(STAMP): pyproject.toml tools/set_up.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/set_up.py "$(TORCH)"
	touch $@
