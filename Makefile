# Everything a developer, a packager or CI runs. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

GOLANGCI_VERSION := v2.15.0
TOOLS := $(or $(ODUFLOW_TOOLS),$(HOME)/.cache/oduflow-tools)
GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
VERSION ?= 0.1.0-dev
LDFLAGS := -s -w -X github.com/oduflow/oduflow-salt/internal/version.Version=$(VERSION)
export CGO_ENABLED ?= 1

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: deps
deps: ## install what a bare Debian machine lacks (asks apt-get where run by root)
	@bash test/lab/install.sh

.PHONY: build
build: ## build the three programs into build/
	CGO_ENABLED=1 go build -trimpath -ldflags "$(LDFLAGS)" -o build/masterd ./masterd
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o build/minion-executor ./minion-executor
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o build/plugins/custom ./plugins/custom

.PHONY: demo
demo: deps ## the main job on real Salt, from nothing to clean again (KEEP=1 leaves it running)
	@go run ./test/demo $(if $(KEEP),--keep)

.PHONY: test
test: deps fmt vet lint ## all tests: unit, shims, API, and on Salt 3006 and 3008 end to end and a sample of the faults
	@python3 test/run.py --salt 3006,3008

.PHONY: test-salt
test-salt: deps ## end to end on all three Salt lines
	@python3 test/run.py --salt 3006,3007,3008 --only e2e,minion,statelang,adapters

.PHONY: test-faults
test-faults: deps ## every named step broken on Salt 3006 and 3008, and two minutes of masterd being killed
	@python3 test/run.py --salt 3006,3008 --full --only faults,soak

.PHONY: unit
unit: ## unit tests
	go test ./...

.PHONY: check
check: fmt vet lint unit ## format, vet, lint, unit tests: what each commit passes

.PHONY: fmt
fmt: ## fail where gofmt would change something
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); test -z "$$bad" || { echo "not gofmt'ed: $$bad"; exit 1; }

.PHONY: vet
vet: ## go vet, with every build tag
	go vet ./...
	go vet -tags salt,faults ./...

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint
	$(GOLANGCI) run ./...

$(GOLANGCI):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(TOOLS)/bin/golangci-lint $@

.PHONY: spec
spec: ## list the requirements of spec.md that no test names
	@bash test/spec.sh

.PHONY: bench
bench: deps ## ratios against salt-api, salt-run and Salt's own loader, in one run
	@bash test/bench.sh

.PHONY: fuzz
fuzz: ## each fuzz target for a short time (FUZZTIME=10s)
	@bash test/fuzz.sh $(or $(FUZZTIME),10s)

.PHONY: clean
clean: ## remove what was built, and any lab left behind
	rm -rf build
	go run ./test/lab/cmd/lab down --all
