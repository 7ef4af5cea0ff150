# Every target works on a fresh machine with Go; "make" alone lists them.
.DEFAULT_GOAL := help
.PHONY: help run build test test-deploy lint fmt bench bench-wide bench-peers soak crash fuzz check vendor-web screenshots

GO       ?= go
TOOL     := $(GO) tool -modfile=tools/go.mod
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 10s

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## run the proxy with no configuration: 127.0.0.1:3128
	$(GO) run ./cmd/robotsproxy serve

build: ## build bin/robotsproxy, static, as the container image does
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/robotsproxy ./cmd/robotsproxy

test: ## run every test that this machine can; ends with those that were skipped, and why
	cd bench && $(GO) test -count=1 ./...
	cd tools && $(GO) test -count=1 ./testsummary
	$(GO) test -json ./... | $(GO) run -C tools ./testsummary

test-deploy: ## check deploy/ and .github/: Compose, Kubernetes, workflows (needs docker-compose)
	docker-compose -f docker-compose.yml --profile crawler config -q
	docker-compose -f docker-compose.single.yml -f deploy/agents/docker-compose.yml --profile agent config -q
	cd tools/kubernetes && $(GO) vet ./... && $(GO) test -count=1 ./...
	$(GO) run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

lint: fmt ## run gofumpt, vet, staticcheck and golangci-lint
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	$(GO) tool -modfile=tools/golangci-lint/go.mod golangci-lint run ./...

fmt: ## say which files gofumpt would change
	@out="$$($(TOOL) gofumpt -l .)"; test -z "$$out" || { echo "gofumpt would change:"; echo "$$out"; exit 1; }

bench: ## measure against bare goproxy in one run, on one core; prints the ratios
	cd bench && $(GO) test -bench . -run '^$$' -benchtime 10s

bench-wide: ## measure crawls of very many hosts beside a direct crawl and goproxy (RUNS=latency,dead HOSTS=20000 PAGES=3)
	cd bench && $(GO) run ./wide $(if $(RUNS),-runs $(RUNS)) $(if $(HOSTS),-hosts $(HOSTS)) $(if $(PAGES),-pages $(PAGES))

bench-peers: ## measure beside goproxy, squid, tinyproxy, privoxy and mitmproxy, in 15 minutes (FLAGS=-quick; FLAGS="-peers robotsproxy,squid -report /tmp/peers.md")
	cd bench && $(GO) run ./peers $(FLAGS)

soak: ## full load for 10 minutes (SOAK_TIME), the cost of a thousand waiting clients, and the spacing
	SOAK=1 $(GO) test -count=1 -v -timeout 60m -run '^TestSoak' ./cmd/robotsproxy
	$(GO) test -run '^$$' -bench . -benchtime 1s ./ratelimit

crash: ## kill the program ten times for each durability (CRASHES), and look for decisions that are missing
	CRASHES=$${CRASHES:-10} $(GO) test -count=1 -v -run '^TestCrash' ./cmd/robotsproxy

screenshots: ## write pictures of the pages of the demo into docs/images, at three widths and in both colour schemes
	mkdir -p docs/images
	SCREENSHOTS=$(CURDIR)/docs/images $(GO) test -count=1 -v -run '^TestScreenshots$$' ./cmd/robotsproxy

vendor-web: ## fetch the scripts of the dashboard from npm again, and record their SHA-256
	tools/vendor-web

fuzz: ## fuzz every target for FUZZTIME (10s)
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package || exit 1; \
		done; \
	done
