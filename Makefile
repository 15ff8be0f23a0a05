# What one does here. Every target sets up what it needs: `make setup` alone is never required.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Older PySparks that stay tested; each lies over what .venv holds.
SPARK35 := .venv-spark35
SPARK40 := .venv-spark40
# Many tests wait for processes: five workers keep two cores busy. A file is one worker's; the slow ones of compat come first.
JOBS   ?= 5
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
SITE   := import site; print(site.getsitepackages()[0])
# Also what is installed there by a file of paths, as kafkapy in a checkout is.
ADD_SITE := import site; print(f'import site; site.addsitedir({site.getsitepackages()[0]!r})')

.DEFAULT_GOAL := help
.PHONY: help setup tools spark-jars run demo test test-all test-fast next-pythons pythons test-pythons ci-pythons test-spark35 test-spark40 soak chaos coverage format check packages pictures docs generate golden \
  counts vendor bench compiled test-compiled ci-compiled lock clean abuse release golden-messages

help:            ## this list
	@grep -E '^[a-z0-9-]+: .*##|^[a-z0-9-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

setup: $(VENV)/.ready   ## make .venv with kafkapy and all that its tests use

$(VENV)/.ready: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip uninstall --quiet --disable-pip-version-check --yes kafkapy 2>/dev/null  # its name until 0.1.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	$(BIN)/python -m compileall -q kafkapy
	@touch $@

tools:           ## fetch Apache Kafka's jars (Maven: 4.4.0, and 4.3.1 for mixed clusters), kcat, Chromium, zsh, fish and Prometheus (Debian): what the compat tests and benchmarks run
	@$(PYTHON) -m tools.kafka
	@$(PYTHON) -m harness.class_archive

spark-jars: setup   ## fetch Spark's Kafka connector (Maven)
	@$(BIN)/python -m spark_jobs.connector

run: setup       ## a broker on 127.0.0.1:9092, data in ./data
	$(BIN)/kafkapy start --data-dir data

demo:            ## broker + market + Spark: a live page, checked bars, demo.html; TRADES=file for your own, BAR=1s, 1m or 1h
	@test -e $(VENV)/.ready || echo "make demo fetches, once: Python packages into $(VENV) (2 GB there), Spark's Kafka connector into .tools (Maven, 10 MB). That takes some minutes, the demo itself one or two"
	@$(MAKE) --no-print-directory setup spark-jars
	@$(BIN)/python -m spark_jobs.demo $(if $(TRADES),--trades $(TRADES)) $(if $(BAR),--bar $(BAR))

# The tiers: CONTRIBUTING.md says what is in which. Progress in percent comes line by line, the ten slowest at the end.
PYTEST := $(BIN)/python -m pytest -q $(PARALLEL) --durations=10
# How pytest ended in `make test-all`, for `make test-again`: make itself says 2, whatever failed.
STATUS := .pytest_cache/status

test: setup tools spark-jars   ## the tests that protect a change: all but the long ones; T=expression for those of all that match (pytest -k)
	$(PYTEST) $(if $(T),-k "$(T)",-m "not long")

test-all: setup tools spark-jars   ## every test
	@rm -f $(STATUS)
	$(PYTEST); status=$$?; echo $$status >$(STATUS); exit $$status

.PHONY: test-again
test-again: setup   # of tests/compat those that just failed, at most five, once more and alone
	$(BIN)/python -m tools.run_again

test-fast: setup   ## of those of `make test` the ones that need neither Java nor Spark
	$(PYTEST) -m "not compat and not spark and not long"

# No simulation: they cost most, and their outcome depends least on the interpreter. Spark's packages are not there.
# Python 3.15 lacks packages that they need: there a client in pure Python produces and fetches.
# No cache: beside `make test-all` it would overwrite what failed there.
PYTHONS_TESTS := tests/unit tests/golden tests/scenarios tests/texts --ignore=tests/unit/spark_jobs --ignore=tests/unit/tools
NEWEST := 3.15
NEWEST_TESTS := tests/unit/embedded/test_any_python.py tests/unit/test_dataclass.py tests/unit/test_named_tuple.py
ON_OTHERS = status=0; for python in $$($(PYTHON) -m tools.pythons --others); do \
  $(MAKE) --no-print-directory $(1) VENV=.venv-$$(basename $$python) PYTHON=$$python || status=1; done; exit $$status

next-pythons: setup   ## fetch Python 3.14 and 3.15 of Debian's sid into .tools/pythons, where there is a Debian
	@$(BIN)/python -m tools.next_pythons

pythons: setup next-pythons   ## a .venv-python3.x for each other Python of 3.11 to 3.15 that is here
	+@$(call ON_OTHERS,test-venv)

test-pythons: pythons  ## unit, golden and scenario tests on each of those
	+@$(call ON_OTHERS,test-python)

.PHONY: test-venv test-python
test-venv: $(VENV)/.tests-ready
	@:

test-python: $(VENV)/.tests-ready
	$(BIN)/python -m pytest -q -p no:cacheprovider $(PARALLEL) $(if $(filter %$(NEWEST),$(VENV)),$(NEWEST_TESTS),$(PYTHONS_TESTS))

$(VENV)/.tests-ready: requirements.lock pyproject.toml
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  --constraint requirements.lock -e ".[cli,console,formats,oauth,registry,test]"
	@touch $@

# What may depend on the interpreter and takes little time: bytes, arithmetic, tasks and their errors, the class makers.
# 3.11 runs every test; what differed on another Python so far showed in these.
CI_PYTHONS_TESTS := $(addprefix tests/unit/,protocol raft reactor record timer embedded/test_any_python.py test_dataclass.py test_named_tuple.py) \
  tests/golden/test_record_batches.py tests/texts --ignore=tests/unit/record/test_conversion_memory.py
# Between two that run more: what is ours and makes classes, codecs and tasks.
CI_BETWEEN := 3.12 3.13
CI_BETWEEN_TESTS := $(addprefix tests/unit/,protocol reactor record embedded/test_any_python.py test_dataclass.py test_named_tuple.py) \
  --ignore=tests/unit/record/test_conversion_memory.py

ci-pythons: pythons  ## those of them whose outcome depends on the interpreter: what CI can run
	+@$(call ON_OTHERS,test-python PYTHONS_TESTS='$$(if $$(filter $$(addprefix %,$(CI_BETWEEN)),$$(VENV)),$(CI_BETWEEN_TESTS),$(CI_PYTHONS_TESTS))')

compiled: setup  ## a wheel with modules compiled by mypyc, installed into .venv-compiled; needs a C compiler
	$(BIN)/python -m tools.compiled

COMPILED_TESTS := tests/unit/record tests/unit/storage tests/unit/replication tests/unit/reactor tests/unit/handlers tests/unit/serving \
  tests/unit/protocol tests/unit/group tests/unit/runtime tests/unit/timer tests/unit/raft tests/unit/test_compiled.py \
  tests/unit/transaction tests/unit/metadata tests/golden tests/property tests/scenarios tests/texts

test-compiled: setup   ## unit, golden, property and scenario tests with the compiled modules; T=expression as for test
	$(BIN)/python -m tools.compiled --checkout $(VENV)-compiled/checkout
	cd $(VENV)-compiled/checkout && ../bin/python -m pytest -q $(PARALLEL) $(COMPILED_TESTS) $(if $(T),-k "$(T)")

# What proves the compiled modules, and no test that spends its time in those that are not: logins, metadata, raft, many nodes.
CI_COMPILED_SCENARIOS := $(addprefix tests/scenarios/,$(addsuffix .py,test_api_versions test_bad_input test_byte_rates \
  test_committed_offsets test_fetch_rules test_fetch_sessions test_group_membership test_heavy_batches test_idempotence \
  test_kill_at_failpoints test_overlong_lengths test_produce_rules test_timestamps test_topic_ids test_transactional_offsets \
  test_transactions))
CI_COMPILED_COMPAT := tests/compat/test_confluent_kafka.py tests/compat/test_kcat.py tests/compat/test_python_clients.py
CI_COMPILED_TESTS := $(filter-out tests/scenarios,$(COMPILED_TESTS)) $(CI_COMPILED_SCENARIOS) $(CI_COMPILED_COMPAT)

ci-compiled: setup tools   ## those that prove the compiled modules and a part of compat, compiled without optimizing: what CI can run
	KAFKAPY_OPT_LEVEL=0 CFLAGS=-g0 $(MAKE) test-compiled COMPILED_TESTS="$(CI_COMPILED_TESTS)"

SOAKED_ONCE := beside_java console console_oidc dead_letters_forbidden_across_nodes franz_go \
  full_node_beside_java kafka_streams_groups leader_moves migration \
  mixed_quorum pages quota_rates recorded_sessions replication_modes spark_backfill spark_book_seconds spark_fills \
  spark_killed_exactly_once spark_security streams_groups streams_groups_across_nodes swap_queues swap_streams transactions_killed upstream

soak: setup tools spark-jars   ## every simulation with SEEDS=20 times as many seeds as the tests, for hours; 100,000 records copied through kills
	KAFKAPY_SOAK_SEEDS=$(or $(SEEDS),20) $(BIN)/python -m pytest -q -rP tests/sim tests/property
	KAFKAPY_SOAK_SEEDS=1 $(BIN)/python -m pytest -q -rP $(addprefix tests/compat/test_,$(addsuffix .py,$(SOAKED_ONCE)))
	KAFKAPY_SOAK_SEEDS=5 $(BIN)/python -m pytest -q -rP tests/compat/test_transaction_histories.py \
	  tests/compat/test_share_histories.py tests/compat/test_share_histories_across_nodes.py \
	  tests/compat/test_swap.py tests/compat/test_swap_transactions.py tests/scenarios/test_transactions_killed.py tests/compat/test_neighbours.py \
	  tests/compat/test_consumer_bounce.py tests/compat/test_transactions_across_nodes.py \
	  tests/compat/test_group_sequences_beside_java.py tests/compat/test_share_sequences_beside_java.py

chaos: setup tools   ## three real nodes in trouble, SECONDS=900 for each kind of fault, SEED=1
	KAFKAPY_CHAOS_SECONDS=$(or $(SECONDS),900) KAFKAPY_CHAOS_SEED=$(or $(SEED),1) \
	  $(BIN)/python -m pytest -q -rP tests/compat/test_chaos.py

test-spark35: tools $(SPARK35)/.ready   ## the tests of the Spark jobs on Spark 3.5.7
	$(call TEST_SPARK,$(SPARK35))

test-spark40: tools $(SPARK40)/.ready   ## the tests of the Spark jobs on Spark 4.0.0
	$(call TEST_SPARK,$(SPARK40))

define TEST_SPARK
@$(1)/bin/python -m spark_jobs.connector
$(1)/bin/python -m pytest -q -m spark
endef

$(SPARK35)/.ready: OLD_SPARK := pyspark==3.5.7 py4j==0.10.9.7
$(SPARK40)/.ready: OLD_SPARK := pyspark==4.0.0 py4j==0.10.9.9
$(SPARK35)/.ready $(SPARK40)/.ready: $(VENV)/.ready
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(OLD_SPARK)
	$(BIN)/python -c "$(ADD_SITE)" >"$$($(@D)/bin/python -c "$(SITE)")/base.pth"
	@touch $@

coverage: setup  ## which lines the fast tests reach, to htmlcov/; T=expression as for test
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "coverage>=7.4,<8"
	$(BIN)/python -m coverage run --branch --source kafkapy -m pytest -q -m "not compat and not spark" $(if $(T),-k "$(T)")
	$(BIN)/python -m coverage html --quiet
	$(BIN)/python -m coverage report --skip-covered --sort cover | tail -n 40

format: setup    ## format, and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: setup     ## format, lint, types, layers, generated code, packages, documents; types beside the rest, for time
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j2 --output-sync check-types check-built

.PHONY: check-types check-built
check-types: setup
	$(BIN)/mypy
	$(BIN)/python -m tools.message_types

check-built: setup
	$(BIN)/lint-imports
	$(BIN)/python -m kafkapy.protocol.codegen --check
	$(BIN)/python -m tools.deviations --check
	$(BIN)/python -m tools.packages
	$(BIN)/python -m tools.site

packages: setup  ## the wheel and the sdist, to dist/: built twice and compared, then used on each supported Python that is here
	$(BIN)/python -m tools.packages --pythons

release: setup   ## what would be published, to dist/release: sdist, wheels (pure; compiled, of each Python that is here), SBOM, hashes; tried
	$(BIN)/python -m tools.release $(if $(PYTHONS),--pythons $(PYTHONS))

generate: setup  ## write the codec from protocol_specs/, docs/deviations.md from the code
	$(BIN)/python -m kafkapy.protocol.codegen
	$(BIN)/python -m tools.deviations

pictures: setup  ## the console's pictures in docs/pictures, by Chromium (make tools)
	@$(BIN)/python -m tools.console_pictures

docs: setup      ## a site of all documents, with a reference made from the code, to site/; strict, without a network
	@$(BIN)/python -m tools.site

golden: setup tools   ## record again what Apache Kafka 4.4.0 answers: tests/golden, as CONTRIBUTING.md tells
	$(BIN)/python -m tools.record_appends
	$(BIN)/python -m tools.record_assignments
	$(BIN)/python -m tools.record_streams_assignments
	$(BIN)/python -m tools.record_streams_topologies
	$(BIN)/python -m tools.record_migrations
	$(BIN)/python -m tools.record_authorizations
	$(BIN)/python -m tools.record_quotas
	$(BIN)/python -m tools.record_share_groups
	$(BIN)/python -m tools.record_streams_groups
	$(BIN)/python -m tools.record_share_partitions
	$(BIN)/python -m tools.record_dead_letters
	$(BIN)/python -m tools.record_authorization_table
	$(BIN)/python -m tools.record_share_states
	$(BIN)/python -m tools.record_transactions
	$(BIN)/python -m tools.record_messages

golden-messages: setup tools   ## messages.jsonl.gz alone; VERSION=4.4.0 ONLY=SomeRequest,SomeResponse for some of another release
	$(BIN)/python -m tools.record_messages $(if $(VERSION),--version $(VERSION)) $(if $(ONLY),--only $(ONLY))

counts: setup    ## keep what the hot paths cost now (tests/simulator/hot_path_counts.json)
	$(BIN)/python -m tests.simulator.hot_paths --update

bench: setup tools   ## kafkapy beside Apache Kafka 4.4.0, same client, same run; QUICK=1 for a short one, ONLY=produce,latency for some
	$(BIN)/python -m benchmarks.run $(if $(QUICK),--quick) $(if $(SCALE),--scale $(SCALE)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(ONLY),--only "$(ONLY)")

abuse: setup     ## what one peer can do to all others: each attack on a fresh broker, wait and growth; ONLY=name,name for some, COMPILED=1 for what `make compiled` installed
	$(BIN)/python -m benchmarks.abuse $(if $(COMPILED),--compiled,--apache) $(if $(ONLY),--only "$(ONLY)")

vendor: setup    ## compare the console's scripts of others with npm's packages
	@$(BIN)/python -m tools.vendor

lock: $(VENV)/.ready   ## resolve requirements.lock again
	$(BIN)/pip-compile --quiet --all-extras --strip-extras --no-emit-find-links --no-header --constraint constraints.txt --unsafe-package kafkapy-broker --upgrade -o requirements.lock pyproject.toml

clean:           ## remove what the targets made, but no data
	rm -rf $(VENV) .venv-compiled .venv-python3.* $(SPARK35) $(SPARK40) .tools build dist site *.egg-info demo.html .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  htmlcov .coverage
