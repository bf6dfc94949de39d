# Recipes for people and for CI: the same ones.

TARGET := x86_64-unknown-linux-gnu
# Absolute: tests run in their package's folder.
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
BIN := $(CARGO_TARGET_DIR)/release

.PHONY: help setup native build demo test check agree bench lint licences

help: ## list the recipes
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|'

setup: ## install what the build needs, as far as it is missing
	@scripts/setup.sh

# The runner is static, so that it runs without any file of the system it runs on.
native: setup ## build the command and its runner, optimised
	cargo build --locked --release -p needless
	cargo rustc --locked --release -p needless-runner --bin needless-runner --target $(TARGET) -- -C target-feature=+crt-static
	install -m 755 $(CARGO_TARGET_DIR)/$(TARGET)/release/needless-runner $(BIN)/needless-runner

build: native ## the same, and what arm64 guests need
	scripts/arm64.sh release

# Without root (status 120) the live line says what is missing; the rest of the table is there.
demo: native ## the main job: one scenario on this kernel and in the model
	$(BIN)/needless compare cow-reuse -t live -t model:5.8 -t model:5.10 -t model:5.15 -t model:6.1 -t model:6.12 -t model:6.18 -t model:7.3 || test $$? = 120

test: setup ## every test
	scripts/test.sh

# Without `native`: the checker needs no runner.
check: setup ## every litmus test on every kernel row that it names
	cargo run --locked --release -p needless -- check --catalogue

# Five series, and the running kernel; docs/kernels.md has those between. Kernels come from Debian's archive when they are missing.
agree: native ## the model against real kernels at length; writes docs/agreement.md
	$(BIN)/needless agree --builtin --random 500 --random-live 2000 --seed 1 --report docs/agreement.md -t live \
	    -t kernel:5.10 -t kernel:6.1 -t kernel:6.12 -t kernel:6.18 -t kernel:7.3

bench: setup ## the benchmarks of docs/performance.md
	cargo bench --locked -p needless-scenario --bench model --bench memory

lint: setup licences ## formatting, clippy, licences
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

licences: ## the licence of every dependency against the list of those allowed
	python3 scripts/licences.py
