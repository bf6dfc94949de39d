# Recipes for people and for CI.

# The path is absolute because tests run in their package's folder.
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
BIN := $(CARGO_TARGET_DIR)/release

.PHONY: help setup setup-native setup-python native build install uninstall deb deb-test demo test test-kernels kernels-own mutants check check-large factors agree agree-arm64 stale-read stat-kernels verdicts bench lint licences fresh docs gallery python python-package agree-cluster

help: ## list the recipes
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|'

setup: ## install what builds and tests need and this machine lacks
	@scripts/setup.sh

setup-native: ## install what a build of the command needs and this machine lacks
	@scripts/setup.sh native

setup-python:
	@scripts/setup.sh python

native: setup-native ## build the command and its runner, optimised
	cargo build --locked --release -p needless -p needless-runner

build: native ## build the command, its runner, and what arm64 guests need
	scripts/arm64.sh release

# It installs what `native` or `build` made, and does not run them: root may have no cargo.
PREFIX ?= /usr/local
DESTDIR ?=
export DESTDIR
install: ## put the command, what it starts, manual pages and completions below PREFIX
	scripts/install.sh install $(PREFIX)

uninstall: ## take away what `install` puts below PREFIX
	scripts/install.sh uninstall $(PREFIX)

deb: native ## build a Debian package, in target/debian
	scripts/deb.sh

deb-test: deb ## try the package in a clean Debian 12: install, run, remove (as root)
	scripts/deb-test.sh

# The build is hardly optimised, so that it ends soon. `native` builds what measures.
# Without root (status 120) the line for `live` says what is missing; the other lines have figures.
demo: setup-native ## compare one scenario on this kernel and in the model
	cargo build --locked --profile demo -p needless -p needless-runner
	$(CARGO_TARGET_DIR)/demo/needless compare cow-reuse -t live -t model:5.8 -t model:5.10 -t model:5.15 -t model:6.1 -t model:6.12 -t model:6.18 -t model:7.3 || test $$? = 120

# Two real kernels are booted for them.
test: setup ## run every test but the long ones
	scripts/test.sh most

test-kernels: setup ## run the long tests: guests of every kernel, arm64
	scripts/test.sh long

# It downloads 150 MB for each series and compiles: docs/performance.md says how long that takes.
# OWN='6.12+guest 6.12+pending-cleared' limits it to those kernels.
OWN ?=
kernels-own: native ## build kernels, stock and with patches/, and compare each with its model row
	scripts/kernels-own.sh $(OWN)
	scripts/test.sh long own
	scripts/test.sh long stale_read::folios

# docs/mutants.md lists mistakes that survive, and why. `scripts/mutants.py ID…` tries only some.
mutants: setup ## which mistakes in the model and the checker does no test notice?
	python3 scripts/mutants.py

# It uses the build of the tests, in which the model and the checker are optimised: another build
# would take longer than the check.
LITMUS ?= --catalogue
check: setup ## check every litmus test on every kernel row that it names
	cargo test --locked --workspace --no-run
	$(CARGO_TARGET_DIR)/debug/needless check $(LITMUS)

# The last scenario has four CPUs that reclaim, protect, store and load.
check-large: native ## check litmus tests with one more CPU, and a large scenario (15 minutes)
	$(BIN)/needless check --catalogue --larger
	$(BIN)/needless check tests/large/mprotect-four.kdl

factors: native ## what each reduction of the checker is worth: the table of docs/checker.md
	NEEDLESS=$(BIN)/needless scripts/factors.py

# It runs as root, as on a machine that never saw Needless.
RECIPE ?=
fresh: ## `.ci/run`, or RECIPE=…, in a fresh clone without what other runs leave (as root)
	scripts/fresh.sh $(RECIPE)

# Five series and the running kernel are compared; docs/kernels.md has the series between. Kernels
# that are missing come from Debian's archive. Each run takes seeds that were never run before and
# notes them in docs/agreement-seeds.tsv. Kernels run one after the other: a guest has as many
# spinning CPUs as there are processors, so two guests side by side take ten times as long.
# The built-in scenarios are left out: on an emulated machine with more CPUs than the host, each one
# that forks takes minutes. `make test` compares them.
agree: native ## compare real kernels with the model (over two hours); writes docs/agreement.md
	$(BIN)/needless agree --random 1000 --random-live 10000 --seeds docs/agreement-seeds.tsv \
	    --report docs/agreement.md -t live -t kernel:5.10,cpus=3 -t kernel:6.1,cpus=3 -t kernel:6.12,cpus=3 \
	    -t kernel:6.18,cpus=3 -t kernel:7.3,cpus=3

# Two arm64 kernels run on two emulated processors each: 200 random scenarios of one process, from
# seed 2700000 on.
agree-arm64: build ## compare arm64 kernels with the model; writes docs/agreement-arm64.md
	scripts/agree-arm64.sh $(BIN)/needless

# It prints a line for each kernel: rounds with clean pages, and with dirty ones as the control.
KERNELS ?= 5.10 6.1 6.12 6.18 7.3 6.1/arm64 6.12/arm64
ROUNDS ?= 60
stale-read: setup ## count stale reads on booted KERNELS, ROUNDS each (docs/findings/stale-read.md)
	NEEDLESS_KERNELS="$(KERNELS)" NEEDLESS_ROUNDS=$(ROUNDS) scripts/test.sh long stale_read

stat-kernels: setup ## check what `needless stat` counts, workload by workload, on each kernel
	NEEDLESS_KERNELS="5.10 6.1 6.12 7.3" scripts/test.sh long guests::every

verdicts: setup ## run 10,000 random scenarios on each of five rows without needless flushes
	NEEDLESS_SEEDS=10000 cargo test --locked --release -p needless-scenario --test all what_is_called_needless

gallery: native ## write pages of studies, findings and scenarios to docs/gallery (docs/pages.md)
	scripts/gallery.sh $(BIN)/needless

# The environment is target/venv. Tests that need the command run the hardly optimised one of `make
# demo`, unless NEEDLESS_COMMAND names another.
python: setup-python ## build the Python package in a virtual environment, and run its tests
	scripts/python.sh test

python-package: setup-python
	scripts/python.sh package

# Every worker needs the command and its kernels. Without SCHEDULER this machine's processors work,
# with one guest on each. A run that was killed goes on: it runs what target/agree-cluster lacks.
SCHEDULER ?=
SEEDS ?= 1:1001
TARGETS ?= kernel:5.10 kernel:6.1 kernel:6.12 kernel:6.18 kernel:7.3
agree-cluster: native python-package ## random scenarios on booted kernels, by a Dask cluster
	NEEDLESS_COMMAND=$(BIN)/needless $(CARGO_TARGET_DIR)/venv/bin/needless-sweep agree --seeds $(SEEDS) \
	    $(addprefix -t ,$(TARGETS)) $(if $(SCHEDULER),--scheduler $(SCHEDULER)) -o $(CARGO_TARGET_DIR)/agree-cluster

docs: native ## build the documents as a site with a search: target/docs/book/index.html
	scripts/docs.sh $(BIN)/needless

bench: setup ## run the benchmarks of docs/performance.md
	cargo bench --locked -p needless-scenario --bench model --bench memory

lint: setup licences ## check formatting, clippy, licences, and that the mutants fit the sources
	cargo fmt --all --check
	python3 scripts/mutants.py --list >/dev/null
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo fmt --manifest-path python/Cargo.toml --check
	cargo clippy --locked --manifest-path python/Cargo.toml -- -D warnings

licences: ## check each dependency's licence against the list of allowed ones
	python3 scripts/licences.py
