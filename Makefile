# Every target works on a fresh machine with Go; "make" alone lists them.
.DEFAULT_GOAL := help
.PHONY: help run build test test-deploy package package-files release lint fmt bench bench-wide bench-peers soak crash differential mutants fuzz vendor-web screenshots

GO       ?= go
TOOL     := $(GO) tool -modfile=tools/go.mod
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 10s
# The last version that Go 1.26 builds from the module proxy. Its first build takes long.
GORELEASER := $(GO) run github.com/goreleaser/goreleaser/v2@v2.15.4

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## run the proxy with no configuration: 127.0.0.1:3128. Needs Go; the first build takes a minute or two, in silence
	$(GO) run ./cmd/robotsproxy serve

build: ## build bin/robotsproxy, static, as the container image does. Needs Go
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/robotsproxy ./cmd/robotsproxy

test: ## run every test that this machine can, and list the skipped ones with the reason. Needs Go; .ci/run installs the rest
	cd bench && $(GO) test -count=1 ./...
	cd tools && $(GO) test -count=1 ./testsummary
	cd tools/differential && $(GO) test -count=1 ./...
	$(GO) test -json -timeout 20m ./... | $(GO) run -C tools ./testsummary

test-deploy: ## check the files for Compose, Kubernetes and GitHub. Needs docker-compose
	docker-compose -f docker-compose.yml --profile crawler config -q
	docker-compose -f docker-compose.single.yml -f deploy/agents/docker-compose.yml --profile agent config -q
	cd tools/kubernetes && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test -count=1 ./...
	$(GO) run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

package: ## build the archives and the Debian package of a release into dist/. Needs git; the first build takes long
	$(GORELEASER) check
	$(GORELEASER) release --snapshot --clean

release: ## publish the release of the tag that is checked out. Needs GITHUB_TOKEN
	$(GORELEASER) release --clean

package-files: ## write manual pages, completions and units into bin/package. Needs Go
	tools/package-files bin/package

lint: fmt ## run gofumpt, vet, staticcheck and golangci-lint. Needs Go
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	$(GO) tool -modfile=tools/golangci-lint/go.mod golangci-lint run ./...

fmt: ## say which files gofumpt would change. Needs Go
	@out="$$($(TOOL) gofumpt -l .)"; test -z "$$out" || { echo "gofumpt would change:"; echo "$$out"; exit 1; }

bench: ## measure against bare goproxy in one run, on one core; prints the ratios. Needs two processors
	cd bench && $(GO) test -bench . -run '^$$' -benchtime 10s

bench-wide: ## measure crawls of very many hosts beside a direct crawl and goproxy (RUNS=latency,dead HOSTS=20000 PAGES=3). Needs Linux; the run redis needs redis-server
	cd bench && $(GO) run ./wide $(if $(RUNS),-runs $(RUNS)) $(if $(HOSTS),-hosts $(HOSTS)) $(if $(PAGES),-pages $(PAGES))

bench-peers: ## measure beside goproxy, squid, tinyproxy, privoxy and mitmproxy, in 15 minutes (FLAGS=-quick; FLAGS="-peers robotsproxy,squid -report /tmp/peers.md"). Needs Linux and those programs
	cd bench && $(GO) run ./peers $(FLAGS)

soak: ## full load for 10 minutes (SOAK_TIME), the cost of a thousand waiting clients, and the spacing. Needs Linux
	SOAK=1 $(GO) test -count=1 -v -timeout 60m -run '^TestSoak' ./cmd/robotsproxy
	$(GO) test -run '^$$' -bench . -benchtime 1s ./ratelimit

crash: ## kill the program ten times for each durability (CRASHES), and look for decisions that are missing. Needs Linux
	CRASHES=$${CRASHES:-10} $(GO) test -count=1 -v -run '^TestCrash' ./cmd/robotsproxy

screenshots: ## write pictures of the pages of the demo into docs/images, at three widths and in both colour schemes. Needs chromium
	mkdir -p docs/images
	SCREENSHOTS=$(CURDIR)/docs/images $(GO) test -count=1 -v -run '^TestScreenshots$$' ./cmd/robotsproxy

vendor-web: ## fetch the scripts of the dashboard from npm again, and record their SHA-256. Needs npm
	tools/vendor-web

differential: ## compare verdicts with Google's parser, in the folder GOOGLE_ROBOTSTXT (CORPUS=folder FILES=20000), WWW::RobotRules and protego. Needs g++ and libabsl-dev
	cd tools/differential && $(GO) run . -google '$(abspath $(GOOGLE_ROBOTSTXT))' $(if $(CORPUS),-corpus '$(abspath $(CORPUS))') $(if $(FILES),-files $(FILES))

mutants: ## change the code in small ways and list the changes that no test notices (PACKAGES="origin rules"). Needs Go; takes an hour or more
	@for package in $(or $(PACKAGES),origin policy rules ratelimit robots); do \
		GOFLAGS=-short $(GO) run github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0 unleash --timeout-coefficient 3 ./$$package || exit 1; \
	done

fuzz: ## fuzz every target for FUZZTIME (10s). Needs Go
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package || exit 1; \
		done; \
	done
