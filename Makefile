# Every command that a developer needs. `make` alone lists them.

CARGO ?= cargo
NAMESPACE ?= tenure-system

# tests on a control plane wait for much of the time: at least six at once, also with fewer processors
export RUST_TEST_THREADS ?= $(shell processors=$$(getconf _NPROCESSORS_ONLN); echo $$((processors > 6 ? processors : 6)))

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Watch a ceiling, a floor and a requeue, on a control plane of its own (KEEP=1 leaves it up)
	@$(CARGO) run --package tenure-testbed -- demo $(if $(KEEP),--keep)

.PHONY: test
test: format lint dependencies ## Run all tests: format, lints, unit, property, chart and end-to-end tests on real control planes, and each benchmark once
	@CARGO="$(CARGO)" tests/all

.PHONY: format
format: ## Check that the code is formatted
	$(CARGO) fmt --all --check

.PHONY: lint
lint: ## Run the lints; a warning is an error
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings

.PHONY: dependencies
dependencies: ## Check licences and advisories of the dependencies, and that each is used, with cargo-deny and cargo-machete where they are installed
	@CARGO="$(CARGO)" tests/dependencies

.PHONY: unit
unit: ## Run the tests that need no control plane: seconds, once they are built
	$(CARGO) test --workspace --locked --exclude tenure-tests --exclude tenure-testbed

.PHONY: properties
properties: ## Try the random cases in tests of policy TIMES (20) as often as make test does, such as floors on a million trees: minutes
	TIMES=$(or $(TIMES),20) $(CARGO) test --locked --package tenure-policy

.PHONY: oracle
oracle: ## Compare the index with a naive model over random histories: ORACLE_STEPS (10,000,000) events from ORACLE_SEED (2)
	ORACLE_STEPS=$(or $(ORACLE_STEPS),10000000) $(CARGO) test --release --locked --package tenure-index --test oracle -- --nocapture

.PHONY: conversions
conversions: ## Convert CONVERSIONS (1,000,000) random queues to the other version and back: a minute
	CONVERSIONS=$(or $(CONVERSIONS),1000000) $(CARGO) test --locked --package tenure-types --test identity -- --nocapture

.PHONY: model
model: ## Search the states of a model of two keepers for one that breaks a rule: at least MODEL_STATES (10,000,000), minutes
	MODEL_STATES=$(or $(MODEL_STATES),10000000) $(CARGO) test --locked --package tenure-keeper --test model -- --ignored --nocapture

.PHONY: fuzz
fuzz: ## Fuzz every parser of what others write, each for FUZZ_SECONDS (60) (PARSERS="paused config", MINIMIZE=1 to write the corpora again)
	@FUZZ_SECONDS="$(FUZZ_SECONDS)" PARSERS="$(PARSERS)" MINIMIZE="$(MINIMIZE)" CARGO="$(CARGO)" tests/fuzz

.PHONY: control-plane
control-plane: ## Build the control plane for tests and demo, once: about 10 minutes on 2 cores
	$(CARGO) run --locked --package tenure-testbed -- build

.PHONY: test-versions
test-versions: ## Run the tests that depend on Kubernetes most on older minor versions (VERSIONS="1.34 1.35"), each built once
	@CARGO="$(CARGO)" tests/versions $(VERSIONS)

.PHONY: bench
bench: ## Measure what Tenure costs: floors, a matrix of queues, replays of a million jobs, events, memory, counts of workloads, reviews, conversions, answers to a scheduler, creations of pods with all policies, preemptions by kube-scheduler, 10,000 owners overdue at once, a keeper that is killed again and again, pauses while pages are open, and a keeper with 150,000 pods
	$(CARGO) bench --locked --package tenure-policy --bench floors
	$(CARGO) bench --locked --package tenure-cli --bench matrix
	$(CARGO) bench --locked --package tenure-cli --bench simulate
	$(CARGO) bench --locked --package tenure-index --bench events
	$(CARGO) bench --locked --package tenure-index --bench memory
	$(CARGO) bench --locked --package tenure-index --bench tally
	$(CARGO) bench --locked --package tenure-webhook --bench reviews
	$(CARGO) bench --locked --package tenure-webhook --bench conversions
	$(CARGO) bench --locked --package tenure-webhook --bench preemptions
	$(CARGO) bench --locked --workspace --bench scale

.PHONY: mutants
mutants: ## Change policy and index in COUNT (200) random places, one at a time, and see if the tests notice: hours (SEED=1, PACKAGES="tenure-policy tenure-index")
	@SEED="$(SEED)" COUNT="$(COUNT)" PACKAGES="$(PACKAGES)" tests/mutants

.PHONY: failover
failover: ## Kill, stop and cut off the leader of two keepers, 20 times each, while pauses are pending: a quarter of an hour
	$(CARGO) test --workspace --locked --test failover -- --ignored --nocapture
	$(CARGO) test --workspace --locked --test requeue -- --ignored --nocapture

.PHONY: faults
faults: ## Play plans of faults, FAULTS_SEEDS (20) of each kind: hours. FAULTS_KIND and FAULTS_SEED choose one (docs/acceptance/faults.md)
	FAULTS_KIND="$(FAULTS_KIND)" FAULTS_SEED="$(FAULTS_SEED)" FAULTS_SEEDS="$(FAULTS_SEEDS)" FAULTS_AT_A_TIME="$(FAULTS_AT_A_TIME)" \
		$(CARGO) test --workspace --locked --test faults -- no_fault_of_any_kind_breaks_a_rule --ignored --nocapture

.PHONY: usage
usage: ## Compare what the keeper counts of 10,000 runs (USAGE_PODS=10000), while it is killed 10 times (USAGE_KILLS=10), with the audit log, and claims of devices with requests
	$(CARGO) test --locked --workspace --test usage -- --ignored --nocapture

.PHONY: trace
trace: ## Run 1,000 jobs of a trace, with keeper, webhook and kube-scheduler, and see that simulate cuts the same ones: half an hour
	$(CARGO) test --workspace --locked --test replayed -- --ignored --nocapture

.PHONY: spans
spans: ## Build the programs with the feature opentelemetry, and see that their spans reach a collector on SPANS (127.0.0.1:4317)
	$(CARGO) clippy --workspace --all-targets --locked --features tenure-tests/opentelemetry -- --deny warnings
	$(CARGO) build --workspace --locked --bins --features tenure-tests/opentelemetry
	OTEL_EXPORTER_OTLP_ENDPOINT=http://$(or $(SPANS),127.0.0.1:4317) OTEL_BSP_SCHEDULE_DELAY=500 TENURE_PROGRAMS="$$PWD/target/debug" \
		$(CARGO) test --workspace --locked --features tenure-tests/opentelemetry --test spans

.PHONY: soak
soak: ## Send 1,000 reviews a second for half an hour (SOAK_SECONDS=1800, SOAK_REVIEWS=1000) while certificates rotate, the webhook restarts and keepers are killed, and see that nothing is lost
	$(CARGO) test --release --locked --package tenure-tests --test soak -- --ignored --nocapture

.PHONY: rotations
rotations: ## Renew the webhook's certificate 100 times (ROTATIONS=100), and its CA a fifth as often, under 500 writes a second (RATE=500), then again with a replica restarted every 20 s, and see that no call fails: half an hour
	$(CARGO) test --workspace --locked --test cert -- --ignored --nocapture

.PHONY: forged-calls
forged-calls: ## Call the webhook without a certificate 1,000 times a second, for ten minutes (FORGED_SECONDS=600), and see that it writes nothing, takes no more memory and reviews as fast
	$(CARGO) test --release --locked --package tenure-tests --test extender_callers -- --ignored --nocapture forged_calls

.PHONY: floods
floods: ## Open 10,000 connections of every sort to each port, then flood a namespace for five minutes, and see that a neighbour's run ends at most 2 s late: a quarter of an hour
	$(CARGO) test --release --locked --workspace --test extender_callers -- --ignored --nocapture ten_thousand_connections
	$(CARGO) test --release --locked --workspace --test fair -- --ignored --nocapture flood_of_five_minutes

.PHONY: figures
figures: ## Print how long the code, its files and functions are, which names mean two things, which files use each other in a circle, and which words to avoid are left
	@tests/figures

.PHONY: crds
crds: ## Write the chart's CRDs again, after a change of the types
	$(CARGO) run --quiet --package tenure-types --bin crdgen -- charts/tenure/files/crds

.PHONY: docs
docs: ## Write docs/values.md, docs/api.md, the picture of a terminal, and the kinds that are paused in docs/owners.md and the chart, again, after a change of values or kinds, and compare the other reference pages with the code
	TENURE_WRITE_DOCS=1 $(CARGO) test --locked --package tenure-tests --test reference

.PHONY: page-memory
page-memory: ## See that the page of `kubectl tenure ui` and its server take no more memory over an hour (PAGE_SECONDS=3600) of changes
	PAGE_SECONDS="$(or $(PAGE_SECONDS),3600)" $(CARGO) test --workspace --locked --test cli -- --ignored --nocapture page_and_server

.PHONY: picture
picture: ## Take the picture of the page in the README again, docs/ui.png, with Chromium
	$(CARGO) test --workspace --locked --test cli -- --ignored the_picture_of_the_readme

.PHONY: release
release: ## Build and publish images, chart and plugin of VERSION to REGISTRY (make release REGISTRY=registry.example.com/gpu VERSION=0.1.0)
	@REGISTRY="$(REGISTRY)" VERSION="$(VERSION)" release/publish --check
	@CARGO="$(CARGO)" release/build
	@REGISTRY="$(REGISTRY)" VERSION="$(VERSION)" release/publish

.PHONY: install
install: ## Install Tenure with helm into the cluster that kubectl uses (NAMESPACE=tenure-system, ARGS="--set ...")
	helm upgrade --install tenure charts/tenure --namespace $(NAMESPACE) --create-namespace $(ARGS)
