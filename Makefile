# make setup   a virtual environment in .venv with the locked versions and this package, editable
# make demo    train, compare and picture on the light example
# make check   lint, types and the quick tests: before every commit
# make test    lint and all tests, as CI does
# make faults  the long fault suite, hours: kills, damages, full disks, hostile inputs (docs/reliability.md); goes on
# make lint    style and types alone
# make torcs   the racing simulator: Debian's TORCS, and our worker built against it and checked (as root; 500 MB)
# make system  the Debian packages that some tests need, where they can be installed; `make test` does it
# make lock    write requirements.lock anew: the newest versions that pyproject.toml allows
# make clean   remove all that was made here, except runs/

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
PIP := -m pip --disable-pip-version-check -q
# JAX and NumPy would each start a thread per core in every test process.
TEST_ENV := XLA_FLAGS=--xla_cpu_multi_thread_eigen=false OPENBLAS_NUM_THREADS=1
# Without a browser, TORCS, videos, other processes and long compilations: the markers of pyproject.toml.
QUICK := 'not (browser or process or slow or torcs or video)'
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	{ echo "error: sparc needs Python 3.11 or newer and '$(PYTHON)' is not: try make PYTHON=python3.11" >&2; exit 1; }

# A browser for the report page, OpenGL without a screen for videos, and `ip` for networks between two machines.
DEBIAN := chromium chromium-driver libegl1 libgl1-mesa-dri iproute2
# Without a network, give up soon: its timeouts are per file, so the lists get one for all; without them, no packages.
APT := apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20
APT_UPDATE := timeout 60 $(APT) -o APT::Update::Error-Mode=any update

.PHONY: setup demo lint check system torcs test faults lock clean

setup: .venv/.installed

demo: setup
	@$(BIN)/sparc demo

lint: setup
	$(BIN)/ruff check src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy src

check: lint
	$(TEST_ENV) $(BIN)/pytest -n $(JOBS) -m $(QUICK)

test: lint system
	@$(MAKE) -s torcs || echo "note: tests of racing are skipped; what they need is in the line above"
	$(TEST_ENV) $(BIN)/pytest -n $(JOBS)

faults: setup
	$(TEST_ENV) $(BIN)/python -m tests.faults --kills 1000 --damages 10000 --disks 100 --inputs 10000 --seed 0

torcs: setup
	@$(BIN)/python -m sparc.envs.racing.torcs.install

# Never fails: without these packages the tests that need them are skipped, and say so (in CI they fail, see .ci/run).
system:
	@missing=; \
	for package in $(DEBIAN); do dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	test -n "$$missing" || exit 0; \
	if ! command -v apt-get >/dev/null; then root=none; \
	elif test "$$(id -u)" = 0; then root=; \
	elif sudo -n true 2>/dev/null; then root="sudo -n"; \
	else root=none; fi; \
	if test "$$root" != none; then \
		echo "Installing$$missing"; \
		{ $$root $(APT_UPDATE) && $$root env DEBIAN_FRONTEND=noninteractive \
			$(APT) install -y --no-install-recommends $$missing; } >/dev/null && exit 0; \
	fi; \
	echo "note: tests of the report page in a browser, of videos and of two machines may be skipped; for all: apt-get install$$missing"

# Another lock means another environment, from scratch: nothing stays that is not locked.
.venv/.locked: requirements.lock
	@$(CHECK_PYTHON)
	@echo "Setting up .venv: installing the locked versions (a minute or two)"
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python $(PIP) install -r requirements.lock
	@touch $@

.venv/.installed: .venv/.locked pyproject.toml
	@echo "Setting up .venv: installing sparc-rl, editable"
	@$(BIN)/python $(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

lock:
	@$(CHECK_PYTHON)
	@echo "Resolving the newest versions that pyproject.toml allows (a minute or two)"
	@set -e; new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	$(PYTHON) -m venv "$$new/venv"; \
	"$$new/venv/bin/python" $(PIP) install -e '.[dev]'; \
	echo '# What CI installs, exactly. Written by `make lock`; do not edit.' > "$$new/lock"; \
	"$$new/venv/bin/python" $(PIP) freeze --all --exclude pip --exclude-editable >> "$$new/lock"; \
	cp "$$new/lock" requirements.lock

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
