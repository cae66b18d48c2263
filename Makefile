# The few commands of daily work. Each is safe to repeat; what is up to date costs seconds.
SHELL := /bin/bash
ENV := . tools/env.sh &&
WASM_PRESETS := wasm-simd128 wasm-relaxed wasm-simd128-threads wasm-relaxed-threads
CPP := $(shell git ls-files 'runtime/*.cpp' 'runtime/*.h' 'tests/*.cpp' 'tests/*.h')
PYTHON_DIRS := $(wildcard python tests tools benchmarks)

.PHONY: help setup build build-asan wasm $(WASM_PRESETS) web package demo serve screenshots npm-package python-package test test-full bench-peers bench-llm lint format clean

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## install tools and packages that are missing (tools/setup.sh)
	@tools/setup.sh

build: ## the native runtime, its tests and the Python module
	@$(ENV) cmake --preset native >/dev/null && cmake --build --preset native

build-asan: ## the native runtime with sanitizers
	@$(ENV) cmake --preset native-asan >/dev/null && cmake --build --preset native-asan

wasm: $(WASM_PRESETS) ## the four WebAssembly builds: build/wasm-*/etwgpu.{mjs,wasm}

$(WASM_PRESETS):
	@$(ENV) cmake --preset $@ >/dev/null && cmake --build --preset $@

web: ## the npm package and the playground, out of the WebAssembly builds
	@$(ENV) if [ -d node_modules ]; then npm run --silent build; else echo "web: nothing to build yet"; fi

package: build wasm web ## build/dist: the npm package (.tgz) and the Python wheel
	@rm -rf build/dist
	@$(MAKE) --no-print-directory npm-package python-package
	@ls -l build/dist

# What is built, packed: the tests install these.
npm-package:
	@mkdir -p build/dist && rm -f build/dist/*.tgz
	@$(ENV) npm pack --silent --workspace=web --pack-destination build/dist

python-package:
	@mkdir -p build/dist && rm -f build/dist/*.whl
	@$(ENV) python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/dist .

demo: setup wasm web ## export the demo's models and ask one in a headless browser, on the GPU and on the CPU
	@$(ENV) tools/demo.sh

serve: setup wasm web ## the same page for a browser of your own
	@$(ENV) tools/demo.sh --serve

screenshots: setup wasm web ## every page of the playground at three widths, light and dark: build/screenshots
	@$(ENV) tools/demo.sh --screenshots

test: setup ## build everything and run all suites
	@$(ENV) python tools/run_tests.py

test-full: setup ## the same with the long tests and sanitizers
	@$(ENV) ETWGPU_TEST_FULL=1 python tools/run_tests.py

# ROUNDS=2 make bench-peers: more rounds; what they are is in benchmarks/peers/README.md
bench-peers: setup wasm web ## ours beside wllama and transformers.js on the CPU, one thread (10 minutes a round)
	@$(ENV) tools/models.sh --demo
	@$(ENV) cd benchmarks/peers && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent --ignore-scripts; }
	@$(ENV) python benchmarks/peers/make_models.py $$ETWGPU_CACHE/bench
	@$(ENV) python benchmarks/peers/make_prompts.py $$ETWGPU_CACHE/models/smollm2-135m-instruct/tokenizer.json $$ETWGPU_CACHE/bench/prompts.json
	@$(ENV) node benchmarks/peers/bench.mjs --rounds $${ROUNDS:-1}

# QUICK=1 make bench-llm: small sizes, for machines without a GPU; ONLY=REGEX: these pages; benchmarks/llm/README.md
bench-llm: setup build wasm web ## language models, in pages and natively, beside onnxruntime-web, transformers.js, wllama and llama.cpp (an hour)
	@$(ENV) tools/models.sh --demo
	@$(ENV) cd benchmarks/peers && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent --ignore-scripts; }
	@$(ENV) python benchmarks/llm/make_models.py $$ETWGPU_CACHE/bench/llm$${QUICK:+-quick} $${QUICK:+--quick}
	@$(ENV) node benchmarks/llm/bench.mjs $${QUICK:+--quick} --only "$${ONLY:-.}"

lint: ## formatting, linters and type checks
	@$(ENV) python tools/lint.py

format: ## format all sources
	@$(ENV) if [ -n "$(CPP)" ]; then clang-format -i $(CPP); fi
	@$(ENV) ruff format $(PYTHON_DIRS) && ruff check --fix $(PYTHON_DIRS)
	@$(ENV) if [ -d node_modules ]; then npm run --silent format; fi

clean: ## remove what was built; installed tools stay
	@rm -rf build web/dist playground/dist python/executorch_webgpu/_native*.so
