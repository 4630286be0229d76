# Holocast's build. `make help` lists the targets.

DEMO_SECONDS ?=
DEMO_ARGS    ?=
TEST_ARGS    ?=
FUZZ_TIME    ?= 3s
NFPM_VERSION := v2.44.1
ACTIONLINT_VERSION := v1.7.7
LINT_VERSION := v2.15.0
BIN          := bin
# Go does not stamp it where there is a go.work.
VERSION      := $(shell git describe --tags --always --dirty 2>/dev/null)
PROGRAMS     := capture-server relay holocast edge controller
PACKAGE_capture-server := ./capture-server
PACKAGE_relay          := ./relay
PACKAGE_holocast       := ./tools/holocast
PACKAGE_edge           := ./netfunc/edge
PACKAGE_controller     := ./netfunc/controller
# A release build of the kernels: the C compiler's default is -O2 -g already.
export CGO_ENABLED := 1

# The longest first, so that none of them is left over at the end.
TESTS        := test-web test-unity test-race test-go test-openflow test-quic-go test-deploy

.DEFAULT_GOAL := help
# The modules of WebAssembly are made of these, by the build and by the tests.
WEB_SOURCES  := $(shell find client-web/src client-web/index.html client-web/package.json client-web/*.ts ! -name '*.wasm' 2>/dev/null)

.PHONY: help setup setup-test quic-go build web demo packages test test-deploy test-packages test-images arm64 test-arm64 sbom site test-site test-go test-race test-quic-go test-openflow test-web test-alone test-unity fuzz lint generate check-generate fmt bench bench-web interop clean $(PROGRAMS)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo DEMO_SECONDS=10                  the demo for ten seconds, one JSON line at the end"
	@echo "  make demo DEMO_ARGS='--cameras 1'          with one camera"
	@echo "  make demo DEMO_ARGS='--360'                of 360° video"

setup: ## Install what the build needs (Debian, Ubuntu)
	@tools/setup.sh

# quic-go with congestion control of ours (docs/adr/0002-patched-quic-go.md), in
# build/quic-go, webtransport-go beside it, and the go.work that uses them. Without them
# everything builds too, with NewReno.
quic-go: setup
	@GOWORK=off go run ./tools/quicpatch -q

build: $(PROGRAMS) web ## Build the programs into bin/, and the web viewer

$(PROGRAMS): quic-go
	@go build -ldflags "-X holocast/internal/service.version=$(VERSION)" -o $(BIN)/$@ $(PACKAGE_$@)

ifneq ($(shell command -v npm),)
web: client-web/dist/index.html ## Build the web viewer into client-web/dist (needs Node)
else
web:
	@echo "the web viewer is not built: Node (npm) is missing"
endif

client-web/node_modules/.package-lock.json: client-web/package-lock.json
	cd client-web && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

client-web/dist/index.html: client-web/node_modules/.package-lock.json $(WEB_SOURCES)
	cd client-web && npm run --silent build
	@touch $@

demo: build ## Stream a session through a relay to a player on this machine
	@$(BIN)/holocast demo $(if $(DEMO_SECONDS),--seconds $(DEMO_SECONDS)) $(DEMO_ARGS)

setup-test: setup ## Install what the tests need, too (Debian, Ubuntu)
	@tools/setup.sh --test

# Tests wait more than they compute: three stages at a time. The output of each comes when it
# has ended. What goes by the clock is judged last, when nothing else runs. Other targets, as
# of checks that only compute, may have the time for which the tests wait: make test WITH=lint
test: setup-test build ## Run all tests
	@rm -rf build/again
	@echo "three of these at a time: $(TESTS) $(WITH)"
	@$(MAKE) --no-print-directory -j 3 --output-sync=recurse $(TESTS) $(WITH)
	@echo "then: test-alone"
	@$(MAKE) --no-print-directory test-alone
	@cat build/again/* 2>/dev/null || true

# What has more than one goroutine runs under the race detector instead; not the packages
# whose tests only start programs, but for the edge's, which build theirs with the
# detector too.
RACE := ./internal/moqt/... ./internal/crew ./internal/quicext ./internal/origin/... ./internal/connect/... ./internal/recording/... ./internal/service ./relay/router/... ./relay/auth \
	./capture-server/publish/... ./capture-server/points/... ./capture-server/clouds/... ./capture-server/tiles/... ./capture-server/cloud/... ./capture-server/source/... \
	./tools/holocast/player/... ./internal/replay/... ./internal/netlab/... \
	./netfunc/api ./netfunc/signal ./netfunc/elimination ./netfunc/bpf ./netfunc/controller/... ./netfunc/edge/...

# Those that take longest, in the order in which they start, before all others.
LONGEST := ./tools/holocast ./relay ./capture-server ./tools/bench/duplication ./tools/bench/path ./tools/bench/hostile ./tools/dashboards

# Most tests wait for processes and clocks: three packages at a time keep two cores busy. All
# has been vetted before.
test-go: setup-test quic-go
	GOWORK=off go build ./...
	go vet ./...
	tools/again.sh test-go go test -p 3 -vet=off $(TEST_ARGS) $$(go list $(LONGEST) ./... | grep -v -x -F "$$(go list $(RACE))")

test-race: setup-test quic-go
	tools/again.sh test-race go test -p 3 -vet=off -race $(TEST_ARGS) $(RACE)

# The own tests of quic-go and webtransport-go on the patched trees.
test-quic-go: quic-go
	@tools/quicpatch/test.sh $(TEST_ARGS)

# The OpenFlow controller on Open vSwitch, but for what goes by the clock; needs Python.
test-openflow: setup-test build
	tools/again.sh test-openflow netfunc/openflow/test.sh -m 'not alone'

test-web: setup-test build ## Test the web viewer, in Chromium too
	cd client-web && npm run --silent test && npm run --silent test:e2e

test-alone: setup-test build ## Test what goes by the clock
	tools/again.sh test-openflow-alone netfunc/openflow/test.sh -m alone

test-unity: setup-test build ## Test the Unity client, without Unity (needs cargo)
	tools/again.sh test-unity-native $(MAKE) -C client-unity/native --no-print-directory test
	cd client-unity/native && cargo build --quiet --locked --profile verify -p capi
	tools/again.sh test-unity client-unity/verify/verify.sh

fuzz: quic-go ## Fuzz every target for FUZZ_TIME (3s), from the committed corpora
	@tools/fuzz.sh $(FUZZ_TIME)

lint: quic-go ## Run golangci-lint, and actionlint on the workflows
	@test -x build/tools/golangci-lint-$(LINT_VERSION) || { \
		GOBIN=$(CURDIR)/build/tools go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) && \
		mv build/tools/golangci-lint build/tools/golangci-lint-$(LINT_VERSION); }
	build/tools/golangci-lint-$(LINT_VERSION) run --allow-parallel-runners ./...
	cd deploy/check && GOWORK=off ../../build/tools/golangci-lint-$(LINT_VERSION) run --allow-parallel-runners ./...
	@test -x build/tools/actionlint-$(ACTIONLINT_VERSION) || { \
		GOBIN=$(CURDIR)/build/tools go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION) && \
		mv build/tools/actionlint build/tools/actionlint-$(ACTIONLINT_VERSION); }
	build/tools/actionlint-$(ACTIONLINT_VERSION)

generate: ## Compile the eBPF programs again (needs clang)
	@tools/setup.sh --bpf
	netfunc/bpf/generate.sh
	relay/fastpath/bpf/generate.sh
	relay/steer/generate.sh

# The compiler is Debian 12's.
check-generate: ## Fail where the committed eBPF objects are not what the C makes
	@tools/setup.sh --bpf
	netfunc/bpf/generate.sh --check
	relay/fastpath/bpf/generate.sh --check
	relay/steer/generate.sh --check

packages: build ## Build the Debian and RPM packages into build/packages
	@test -x build/tools/nfpm-$(NFPM_VERSION) || { \
		GOBIN=$(CURDIR)/build/tools go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION) && \
		mv build/tools/nfpm build/tools/nfpm-$(NFPM_VERSION); }
	@NFPM_VERSION=$(NFPM_VERSION) deploy/package.sh

test-deploy: setup-test ## Test units, alerts, chart, compose file and Containerfile
	deploy/check/check.sh $(TEST_ARGS)

test-packages: packages ## Test the packages in a container with systemd (root)
	@tools/setup.sh --deploy
	deploy/test.sh

test-images: ## Build the images and run them (root; Debian's buildah)
	@tools/setup.sh --images
	deploy/images/test.sh

test-kernels: quic-go ## Run the eBPF programs on Linux 5.10 to 6.12, in virtual machines
	@tools/setup.sh --kernels
	go run ./tools/kernels $(KERNELS)

arm64: quic-go ## Build the programs for 64-bit ARM into bin/arm64
	@tools/setup.sh --arm64
	deploy/arm64.sh

test-arm64: quic-go ## Run the tests that compute for 64-bit ARM, under emulation
	@tools/setup.sh --arm64
	deploy/arm64.sh --test $(TEST_ARGS)

sbom: build ## Write what the programs and the web viewer are made of into build/packages (CycloneDX)
	@mkdir -p build/packages
	go run ./tools/sbom --version "$(or $(VERSION),development)" $(addprefix $(BIN)/,$(PROGRAMS)) >build/packages/holocast.cdx.json
	cd client-web && npm sbom --sbom-format cyclonedx --omit dev >../build/packages/holocast-web.cdx.json

site: build/site-venv/ready ## Build the documentation's site into build/site (needs Python)
	@NO_MKDOCS_2_WARNING=1 build/site-venv/bin/mkdocs build --config-file deploy/site/mkdocs.yml

build/site-venv/ready: deploy/site/requirements.txt
	@tools/setup.sh --site
	python3 -m venv build/site-venv
	build/site-venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

test-site: build site ## Test the site's links, pages and search, and run the commands that its pages mark (needs Node)
	deploy/site/test.py
	node deploy/site/browse.mjs

fmt: ## Format the Go code
	gofmt -l -w $$(git ls-files '*.go')

bench: build ## Run all benchmarks (an hour on an idle machine) and write docs/results
	$(BIN)/holocast bench all --out docs/results
	go test -run '^$$' -bench . ./netfunc/bpf ./netfunc/elimination ./netfunc/controller

bench-web: setup-test build ## Measure the web viewer in Chromium
	cd client-web && npm run --silent bench

interop: build ## Test against other implementations of MOQT (needs cargo)
	tools/interop/interop.sh
	tools/interop/fastpath.sh

clean: ## Remove what was built
	rm -rf $(BIN) build go.work go.work.sum demo-out client-web/dist client-web/node_modules
