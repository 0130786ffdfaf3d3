PYTHON ?= python3
BIN := .venv/bin
ROUNDS ?= 5

.DEFAULT_GOAL := help
.PHONY: help setup peers check test fast soak demo bench pins clean

help: ## these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup: .venv/installed ## .venv with the package and everything its development needs

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv || { tests/peers/debian.sh python3-venv && $(PYTHON) -m venv .venv; }
	$(BIN)/python -m pip install -q -c constraints.txt uv
	UV_NATIVE_TLS=1 $(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[dev]' \
		|| $(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m penstock.streams.spark.warm_up
	@touch $@

peers: ## kcat, strace, Apache Kafka's jars and Flink, which tests compare with
	tests/peers/install.sh

check: setup ## style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup peers check ## everything, as it runs before a change is accepted
	$(BIN)/pytest -n 2 --dist loadfile -m 'not spark' --durations=15
	$(BIN)/pytest -n 2 --dist loadfile -m 'spark and not long' --durations=15

fast: setup ## the tests that need no other program, in under a minute
	$(BIN)/pytest -n auto -m 'not peer and not spark and not slow' --durations=5

soak: setup peers ## the slow tests again and again: make soak ROUNDS=20
	for round in $$(seq $(ROUNDS)); do \
		KILLS=30 EXAMPLES=40 $(BIN)/pytest -m 'slow or long' --durations=5 || exit 1; done

demo: setup ## what there is to see; DEMO_ARGS=--headless runs it without a person
	$(BIN)/python examples/demo.py $(DEMO_ARGS)

bench: setup peers ## beside Apache Kafka, native Spark and Flink, into bench/results/
	$(BIN)/penstock bench log
	$(BIN)/penstock bench spark
	$(BIN)/penstock bench windows
	$(BIN)/penstock bench views
	$(BIN)/penstock bench apps

pins: setup ## constraints.txt anew, with the newest versions
	$(BIN)/uv pip compile -q --universal --upgrade --no-annotate --no-header \
		--extra dev pyproject.toml -o constraints.txt

clean: ## removes what the other targets made here
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find src tests -name __pycache__ -prune -exec rm -rf {} +
