# `make help` lists what there is.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help
.PHONY: help demo check test props redis bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## show what the library is for, on the memory backend, in under 15 s
	go run ./examples/worker

check: ## gofmt, vet, staticcheck, tidy
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt-clean:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	go mod tidy -diff

test: redis ## run all tests, installing redis-server first where it is missing
	LEASEHOLD_REQUIRE_REDIS=1 go test -race -shuffle=on ./...
	LEASEHOLD_REQUIRE_REDIS=1 go test -v -run TestFootprint ./mutex ./backends/redis # not under the race detector, which multiplies memory

props: redis ## run the properties 10,000 times each
	LEASEHOLD_REQUIRE_REDIS=1 go test -timeout 60m -run 'TestProps|TestModel_' ./props ./backends/redis -rapid.checks=10000

bench: redis ## run the benchmarks that stand beside the code
	LEASEHOLD_REQUIRE_REDIS=1 go test -run '^$$' -bench . -benchmem ./...

redis:
	@scripts/install-redis
