# Entry points; the work is done by scripts/ and `cargo xtask`.

.DEFAULT_GOAL := help
.PHONY: help demo demo-down test e2e clients check

# Build outside of the clone, so that a fresh clone on the same machine builds quickly.
XDG_CACHE_HOME ?= $(HOME)/.cache
export CARGO_TARGET_DIR ?= $(XDG_CACHE_HOME)/ferrovirt/target

help:
	@echo 'make demo       build everything and start an example VM (as root)'
	@echo 'make demo-down  remove everything that make demo started'
	@echo 'make test       install missing packages, run all checks and tests (as root)'
	@echo 'make e2e        run the end-to-end tests on a two-node Kubernetes cluster made for them (as root)'
	@echo 'make clients    run the clients of other projects against a host (as root)'
	@echo 'make check      check format, lints, generated files, source layout, licences'

demo:
	@scripts/demo.sh

demo-down:
	@scripts/demo-down.sh

test:
	@scripts/test.sh

# TESTS: parts of test names; none: all
e2e:
	@scripts/e2e.sh $(TESTS)

# CLIENTS: names; none: all
clients:
	@scripts/clients.sh $(CLIENTS)

check:
	@scripts/setup.sh build
	@scripts/cargo-tools.sh
	@cargo xtask check
