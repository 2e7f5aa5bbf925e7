# Tandem. `make help` lists the targets.

GO            ?= go
GOLANGCI      ?= bin/golangci-lint
GOLANGCI_VER  := v2.15.0
BENCHTIME     ?= 1s
# Packages with tests; a test that needs a real FreeSWITCH skips itself where there is none.
PACKAGES      := ./...
TEST_TIMEOUT  ?= 30m
# The race detector watches our code, not that of SQLite, which was translated from C: that alone would take most of the time.
UNWATCHED     := -gcflags=modernc.org/...=-race=false

SHELL         := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help run build test test-race test-freeswitch chaos bench fuzz lint fmt clean

help: ## List the targets.
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build Tandem and start `tandem dev`: one process, a simulated switch, nothing else needed.
	@./bin/tandem dev

build: ## Build bin/tandem.
	@test -x bin/tandem || echo "building; the first time takes a minute or two" >&2
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/tandem ./cmd/tandem

test: ## Run every test that needs no real switch, on SQLite and on PostgreSQL.
	FREESWITCH_BIN=none $(GO) test $(TEST_FLAGS) $(if $(filter -race,$(TEST_FLAGS)),$(UNWATCHED)) -timeout $(TEST_TIMEOUT) $(PACKAGES)

test-race: ## The same, with the race detector.
	$(MAKE) test TEST_FLAGS=-race

test-freeswitch: ## Run the tests against a real FreeSWITCH (FREESWITCH_BIN, PATH or the usual folders).
	@$(GO) run ./lab/find
	$(GO) test -count=1 -v -p 1 -run 'FreeSWITCH|Conformance' -timeout 30m $(PACKAGES) 2>&1 | grep -E '^ *--- |^(ok|FAIL|panic)|_test.go:' | grep -v 'no tests to run' ; exit $${PIPESTATUS[0]}

chaos: ## Kill everything, at random, under CALLS live calls (default 1000), KILLS times; SEED repeats a run, KINDS and PACE change it.
	TANDEM_CHAOS_CALLS=$(or $(CALLS),1000) TANDEM_CHAOS_KILLS=$(KILLS) TANDEM_CHAOS_SEED=$(SEED) TANDEM_CHAOS_GAP=$(GAP) TANDEM_CHAOS_PACE=$(PACE) TANDEM_CHAOS_KINDS=$(KINDS) \
	  $(GO) test -count=1 -v -run '^TestChaos$$' -timeout 90m ./lab

bench: ## Run every benchmark; compare only figures of one run.
	FREESWITCH_BIN=none $(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -benchmem $(PACKAGES)

fuzz: ## Fuzz every parser and escaper for FUZZTIME each (default 30s).
	@for target in $$(grep -rlE '^func Fuzz' --include='*_test.go' . ); do \
	  for name in $$(grep -oE '^func Fuzz[A-Za-z0-9_]*' $$target | sed 's/^func //'); do \
	    $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $${FUZZTIME:-30s} ./$$(dirname $$target) || exit 1; \
	  done; done

lint: $(GOLANGCI) ## Check style, import arrows and common mistakes.
	$(GOLANGCI) run

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VER)

fmt: $(GOLANGCI) ## Format the code.
	$(GOLANGCI) fmt

clean: ## Remove what the build made; keeps .tandem, the data of `make run`.
	rm -rf bin
