# Recipes for people and for CI: the same ones.

# Absolute: tests run in their package's folder.
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
BIN := $(CARGO_TARGET_DIR)/release

.PHONY: help setup setup-native native build install uninstall deb deb-test demo test test-kernels kernels-own mutants check check-large factors agree agree-arm64 stale-read stat-kernels verdicts bench lint licences fresh docs gallery

help: ## list the recipes
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|'

setup: ## install what builds and tests need, as far as it is missing
	@scripts/setup.sh

setup-native: ## install what a build of the command needs, as far as it is missing
	@scripts/setup.sh native

native: setup-native ## build the command and its runner, optimised
	cargo build --locked --release -p needless -p needless-runner

build: native ## the same, and what arm64 guests need
	scripts/arm64.sh release

# Of what `native` or `build` made; they do not run again for it, since root may have no cargo.
PREFIX ?= /usr/local
DESTDIR ?=
export DESTDIR
install: ## put the command, what it starts, manual pages and completions below PREFIX
	scripts/install.sh install $(PREFIX)

uninstall: ## take away what `install` puts below PREFIX
	scripts/install.sh uninstall $(PREFIX)

deb: native ## a Debian package, in target/debian
	scripts/deb.sh

deb-test: deb ## install the package in a clean Debian 12, run README's first commands, remove it (as root)
	scripts/deb-test.sh

# Built to be there soon: to look at something takes no optimised program. What measures is built by `native`, elsewhere.
# Without root (status 120) the live line says what is missing; the rest of the table is there.
demo: setup-native ## the main job: one scenario on this kernel and in the model
	cargo build --locked --profile demo -p needless -p needless-runner
	$(CARGO_TARGET_DIR)/demo/needless compare cow-reuse -t live -t model:5.8 -t model:5.10 -t model:5.15 -t model:6.1 -t model:6.12 -t model:6.18 -t model:7.3 || test $$? = 120

# Two real kernels are among it.
test: setup ## every test but those that take long
	scripts/test.sh most

test-kernels: setup ## the tests that take long: guests of every kernel, arm64
	scripts/test.sh long

# Downloads 150 MB a series and compiles: docs/performance.md says how long. OWN='6.12+guest 6.12+pending-cleared': only those.
OWN ?=
kernels-own: native ## kernels of our own, stock and with patches/, against their model rows (docs/own-kernels.md)
	scripts/kernels-own.sh $(OWN)
	scripts/test.sh long own
	scripts/test.sh long stale_read::folios

# What survives, and why: docs/mutants.md. `scripts/mutants.py ID…` tries some only.
mutants: setup ## which mistakes in the model and the checker does no test notice?
	python3 scripts/mutants.py

# With the build of the tests, in which the model and the checker are optimised: it takes longer to build
# another than to check with this one.
LITMUS ?= --catalogue
check: setup ## every litmus test on every kernel row that it names
	cargo test --locked --workspace --no-run
	$(CARGO_TARGET_DIR)/debug/needless check $(LITMUS)

check-large: native ## each litmus test with one more CPU, and four CPUs that reclaim, protect, store and load (a quarter of an hour)
	$(BIN)/needless check --catalogue --larger
	$(BIN)/needless check tests/large/mprotect-four.kdl

factors: native ## what each reduction of the checker is worth: the table of docs/checker.md
	NEEDLESS=$(BIN)/needless scripts/factors.py

# What .ci/run does, or RECIPE, as on a machine that never saw Needless. As root.
RECIPE ?=
fresh: ## `.ci/run`, or RECIPE=…, in a fresh clone without what other runs leave on a machine
	scripts/fresh.sh $(RECIPE)

# Five series, and the running kernel; docs/kernels.md has those between. Kernels come from Debian's archive when they are missing.
# Each run takes seeds that were never run before and notes them in docs/agreement-seeds.tsv. One kernel at
# a time: guests have as many spinning CPUs as there are processors, and two side by side take ten times as long.
# Without the built-in scenarios: on emulated machines with more CPUs than the host those that fork take minutes each, and
# `make test` compares them.
agree: native ## the model against real kernels at length (100 minutes); writes docs/agreement.md
	$(BIN)/needless agree --random 1000 --random-live 10000 --seeds docs/agreement-seeds.tsv \
	    --report docs/agreement.md -t live -t kernel:5.10,cpus=3 -t kernel:6.1,cpus=3 -t kernel:6.12,cpus=3 \
	    -t kernel:6.18,cpus=3 -t kernel:7.3,cpus=3

# Two arm64 kernels on two processors each, emulated: random scenarios of one process, 200 from seed 2700000 on.
agree-arm64: build ## the model against arm64 kernels; writes docs/agreement-arm64.md
	scripts/agree-arm64.sh $(BIN)/needless

# One line for each kernel: rounds with clean pages, and the control's with dirty ones.
KERNELS ?= 5.10 6.1 6.12 6.18 7.3 6.1/arm64 6.12/arm64
ROUNDS ?= 60
stale-read: setup ## stale reads on booted KERNELS, ROUNDS each, with their control (docs/findings/stale-read.md)
	NEEDLESS_KERNELS="$(KERNELS)" NEEDLESS_ROUNDS=$(ROUNDS) scripts/test.sh long stale_read

stat-kernels: setup ## what `needless stat` counts, workload by workload, on every kernel it knows
	NEEDLESS_KERNELS="5.10 6.1 6.12 7.3" scripts/test.sh long guests::every

verdicts: setup ## 10,000 random scenarios for each of five rows, without the flushes that are called needless
	NEEDLESS_SEEDS=10000 cargo test --locked --release -p needless-scenario --test all what_is_called_needless

gallery: native ## pages of studies, findings and scenarios: docs/gallery (docs/pages.md)
	scripts/gallery.sh $(BIN)/needless

docs: native ## the documents as a site with a search: target/docs/book/index.html
	scripts/docs.sh $(BIN)/needless

bench: setup ## the benchmarks of docs/performance.md
	cargo bench --locked -p needless-scenario --bench model --bench memory

lint: setup licences ## formatting, clippy, licences; whether the list of mistakes fits the sources
	cargo fmt --all --check
	python3 scripts/mutants.py --list >/dev/null
	cargo clippy --locked --workspace --all-targets -- -D warnings

licences: ## the licence of every dependency against the list of those allowed
	python3 scripts/licences.py
