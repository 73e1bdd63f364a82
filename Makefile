# The doors to this repository. Everything of substance is in scripts/ and `cargo xtask`.

.DEFAULT_GOAL := help
.PHONY: help demo demo-down test e2e check

# Artefacts stay outside of the clone, so that a fresh clone on the same machine builds quickly.
XDG_CACHE_HOME ?= $(HOME)/.cache
export CARGO_TARGET_DIR ?= $(XDG_CACHE_HOME)/ferrovirt/target

help:
	@echo 'make demo       from nothing to a guest that greets on its console (as root)'
	@echo 'make demo-down  take all of that away again'
	@echo 'make test       install what is missing, run every check and test (as root)'
	@echo 'make e2e        the stories on a real Kubernetes of two nodes, made for it (as root)'
	@echo 'make check      format, lints, generated files, tidiness, licences'

demo:
	@scripts/demo.sh

demo-down:
	@scripts/demo-down.sh

test:
	@scripts/test.sh

# STORIES: words of names; none: all
e2e:
	@scripts/e2e.sh $(STORIES)

check:
	@scripts/setup.sh build
	@cargo xtask check
