# Holocast's build. `make help` lists the targets.

DEMO_SECONDS ?=
DEMO_ARGS    ?=
TEST_ARGS    ?=
FUZZ_TIME    ?= 3s
NFPM_VERSION := v2.44.1
ACTIONLINT_VERSION := v1.7.7
LINT_VERSION := v2.15.0
LINT         := $(CURDIR)/build/tools/golangci-lint-$(LINT_VERSION)
ACTIONLINT   := $(CURDIR)/build/tools/actionlint-$(ACTIONLINT_VERSION)
BIN          := bin
# Go does not stamp versions in a workspace.
VERSION      := $(shell git describe --tags --always --dirty 2>/dev/null)
PROGRAMS     := capture-server relay holocast edge controller
LAB          := holocast-lab
PACKAGE_capture-server := ./capture-server
PACKAGE_relay          := ./relay
PACKAGE_holocast       := ./tools/holocast
PACKAGE_edge           := ./netfunc/edge
PACKAGE_controller     := ./netfunc/controller
PACKAGE_holocast-lab   := ./tools/lab
# The C kernels need cgo.
export CGO_ENABLED := 1
# Without grpc's tracing, nothing calls methods by name, and the linker omits unused ones: a sixth of the size.
export GOFLAGS += -tags=grpcnotrace

# Longest first.
FIRST_TESTS  := test-web test-openflow test-quic-go test-deploy
TESTS        := test-unity $(if $(RACE),test-race) test-go

.DEFAULT_GOAL := help
# Sources of the web viewer, including its WebAssembly modules.
WEB_SOURCES  := $(shell find client-web/src client-web/index.html client-web/package.json \
	client-web/*.ts ! -name '*.wasm' 2>/dev/null)

.PHONY: help setup setup-test quic-go build web demo packages test test-deploy test-packages \
	test-images arm64 test-arm64 sbom site test-site compile compile-go compile-unity test-go \
	test-race test-quic-go test-openflow test-web test-unity test-in-step unity-package fuzz lint \
	generate check-generate fmt bench bench-web interop clean $(PROGRAMS) $(LAB)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo DEMO_SECONDS=10                  the demo for ten seconds, one JSON line at the end"
	@echo "  make demo DEMO_ARGS='--cameras 1'          with one camera"
	@echo "  make demo DEMO_ARGS='--360'                with 360° video"

setup: ## Install build dependencies (Debian, Ubuntu)
	@tools/setup.sh

# Patched quic-go and webtransport-go in build/, and a go.work that uses them
# (docs/adr/0002-patched-quic-go.md). Without them the build uses NewReno.
quic-go: setup
	@GOWORK=off go run ./tools/quicpatch -q

build: $(PROGRAMS) $(LAB) web ## Build the programs into bin/, and the web viewer

# -s omits DWARF and symbols, over a quarter of the size; stack traces and profiles work without them.
$(PROGRAMS) $(LAB): quic-go
	@go build -ldflags "-s -X holocast/internal/service.version=$(VERSION)" -o $(BIN)/$@ $(PACKAGE_$@)

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

setup-test: setup ## Install build and test dependencies (Debian, Ubuntu)
	@tools/setup.sh --test

# Linters and linkers yield to tests that run at the same time, but linkers must not starve on a busy
# machine.
BACKGROUND   := nice -n 19
LINKING      := nice -n 5

# Compiles first, as compilers starve tests. Browsers render in software, so they run next, with small
# stages only. Other tests wait more than they compute, so three stages run at a time. Each prints its
# output when it ends. RACE=yes runs Go packages that start goroutines with the race detector. WITH adds
# targets: make test RACE=yes WITH=lint
STAGES := $(MAKE) --no-print-directory --output-sync=recurse COMPILED=yes
test: setup-test build compile ## Run all tests
	@echo "two of these at a time: $(FIRST_TESTS); then three: $(TESTS) $(WITH); then test-in-step"
	@failed=0; \
	$(STAGES) -j 2 IN_STEP=later $(FIRST_TESTS) || failed=1; \
	$(STAGES) -j 3 IN_STEP=later $(TESTS) $(WITH) || failed=1; \
	$(STAGES) test-in-step || failed=1; exit $$failed

# The prerequisites of tests, unless they are known to be current.
ifndef COMPILED
test-in-step test-openflow test-web test-unity: setup-test build
test-deploy: setup-test
test-go: compile-go
test-race: setup-test quic-go
test-quic-go: quic-go
test-unity: compile-unity
endif

# Compares sound with pictures in real time. Runs alone: starved programs lag.
test-in-step:
	cd client-web && npm run --silent test:e2e in-step
	client-unity/verify/verify.sh in-step

# The longest tests, which start before all others.
LONGEST := ./tools/holocast ./relay ./capture-server \
	$(addprefix ./tools/lab/bench/,duplication bottleneck hostile relay) \
	./tools/dashboards

# Tests of packages wait for processes and timers, so six at a time keep two cores busy; with the race
# detector, three. The timeout guards against hangs; on a busy machine, the longest package exceeds the default.
GO_TEST := go test -toolexec '$(LINKING)' -p $(if $(RACE),3,6) -vet=off -timeout 30m $(TEST_ARGS)
# Packages to test without and with the race detector.
UNRACED := $$(go list $(LONGEST) ./... $(if $(RACE),| grep -v -x -F "$$(go list $$(tools/race.sh))"))
RACED   := $$(tools/race.sh)

compile: compile-go compile-unity

compile-go: setup-test quic-go
	GOWORK=off go list -export ./... >/dev/null
	go vet ./...
	go list -export -test $(UNRACED) >/dev/null
	$(if $(RACE),go list -export -test -race $(RACED) >/dev/null)

# The plugin and its tests, which need the same features of dependencies: otherwise each build outdates the other.
compile-unity: setup-test
	cd client-unity/native && cargo build --quiet --locked --workspace --lib --tests --profile verify

test-go:
	$(GO_TEST) $(UNRACED)

test-race:
	$(GO_TEST) -race $(RACED)

# quic-go's and webtransport-go's own tests, on the patched trees.
test-quic-go:
	@tools/quicpatch/test.sh $(TEST_ARGS)

# The OpenFlow controller on Open vSwitch; needs Python.
test-openflow:
	netfunc/openflow/test.sh

test-web: ## Test the web viewer, also in Chromium
	cd client-web && npm run --silent test && npm run --silent test:e2e $(if $(IN_STEP),-- --exclude '**/in-step.test.ts')

test-unity: ## Test the Unity client without Unity (needs cargo)
	$(MAKE) -C client-unity/native --no-print-directory test
	client-unity/verify/verify.sh
	$(if $(IN_STEP),,client-unity/verify/verify.sh in-step)

# Where the workflow unity-native collects the libraries.
LIBRARIES    ?= client-unity/native/plugins

unity-package: ## Pack the Unity package with the LIBRARIES of all platforms into build/packages (needs npm)
	@client-unity/plugins/package.sh $(LIBRARIES) build/packages/unity $(UNITY_VERSION)
	@mv build/packages/unity/*.tgz build/packages/

fuzz: quic-go ## Fuzz every target for FUZZ_TIME (3s), from the committed corpora
	@$(BACKGROUND) tools/fuzz.sh $(FUZZ_TIME)

lint: quic-go $(LINT) $(ACTIONLINT) ## Run golangci-lint, actionlint, and check English, line lengths and commits
	$(BACKGROUND) $(LINT) run --allow-parallel-runners ./...
	cd deploy/check && GOWORK=off $(BACKGROUND) $(LINT) run --allow-parallel-runners ./...
	$(ACTIONLINT)
	go run ./tools/prose

$(LINT):
	GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $(@D)/golangci-lint $@

$(ACTIONLINT):
	GOBIN=$(@D) go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
	mv $(@D)/actionlint $@

generate: ## Compile the eBPF programs (needs clang)
	@tools/setup.sh --bpf
	netfunc/bpf/generate.sh
	relay/fastpath/kernel/generate.sh
	relay/steer/generate.sh
	tools/lab/tcpcc/generate.sh

# With Debian 12's clang.
check-generate: ## Fail if the committed eBPF objects differ from a fresh build
	@tools/setup.sh --bpf
	$(BACKGROUND) netfunc/bpf/generate.sh --check
	$(BACKGROUND) relay/fastpath/kernel/generate.sh --check
	$(BACKGROUND) relay/steer/generate.sh --check
	$(BACKGROUND) tools/lab/tcpcc/generate.sh --check

packages: build ## Build the Debian and RPM packages into build/packages
	@test -x build/tools/nfpm-$(NFPM_VERSION) || { \
		GOBIN=$(CURDIR)/build/tools go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION) && \
		mv build/tools/nfpm build/tools/nfpm-$(NFPM_VERSION); }
	@NFPM_VERSION=$(NFPM_VERSION) deploy/package.sh

test-deploy: ## Test units, alerts, chart, compose file and Containerfile
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

test-arm64: quic-go ## Run the computational tests for 64-bit ARM, under emulation
	@tools/setup.sh --arm64
	deploy/arm64.sh --test $(TEST_ARGS)

sbom: build ## Write the SBOM of the programs and the web viewer into build/packages (CycloneDX)
	@mkdir -p build/packages
	go run ./tools/sbom --version "$(or $(VERSION),development)" $(addprefix $(BIN)/,$(PROGRAMS)) \
		>build/packages/holocast.cdx.json
	cd client-web && npm sbom --sbom-format cyclonedx --omit dev >../build/packages/holocast-web.cdx.json

site: build/site-venv/ready ## Build the documentation site into build/site (needs Python)
	@NO_MKDOCS_2_WARNING=1 build/site-venv/bin/mkdocs build --config-file deploy/site/mkdocs.yml

build/site-venv/ready: deploy/site/requirements.txt
	@tools/setup.sh --site
	python3 -m venv build/site-venv
	build/site-venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

test-site: build site ## Test the site's links, pages and search, and run the marked commands (needs Node)
	deploy/site/test.py
	node deploy/site/browse.mjs

fmt: $(LINT) ## Format the Go code (gofumpt)
	$(LINT) fmt ./...

bench: setup-test build ## Run all benchmarks (90 minutes on an idle machine) and write docs/results
	$(BIN)/holocast-lab bench all --out docs/results
	go test -run '^$$' -bench . ./netfunc/bpf ./netfunc/elimination ./netfunc/controller

bench-web: setup-test build ## Measure the web viewer in Chromium
	cd client-web && npm run --silent bench

interop: build ## Test against other implementations of MOQT (needs cargo and Node)
	tools/interop/interop.sh
	tools/interop/runner/run.sh
	tools/interop/qmux.sh
	tools/interop/fastpath.sh

clean: ## Remove build output
	rm -rf $(BIN) build go.work go.work.sum demo-out client-web/dist client-web/node_modules
