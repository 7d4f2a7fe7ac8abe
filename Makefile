# SPDX-License-Identifier: Apache-2.0
#
# The front door: short names for what CMake and the scripts of tools/ do. Builds go to build/NAME.
#
#   make                    the library and the program, in build/release
#   make test               the tests that every change should pass
#   make test-all           those and their long forms, clang, threads: what continuous integration runs
#   make check              layers, headers, format, style, symbols
#   make demo               trains on real digits, then ResNet-50 at four budgets
#   make bench TORCH=PYTHON throughput beside PyTorch's, for a Python that has torch and torchvision
#   make bench-cuda         everything that is measured on a GPU, in eight minutes; TORCH as above, or without
#   make test-cuda          all tests that need a GPU, and under compute-sanitizer
#                           of both: STAGE=1, 2 or 3 is a piece that, with the other's, takes at most nine minutes; OUT=FOLDER
#                           gets what they find; BUILT=FOLDER was made elsewhere by tools/pack-cuda: nothing is built
#   make dry-cuda           a rehearsal of both without a GPU, with small networks over tests/fake_cuda
#   make wheel              the Python package with libebb inside, in build/wheel
#   make install            to PREFIX (default /usr/local); DESTDIR counts
#   make fuzz T=NAME S=60   one fuzz target for so many seconds
#   make test-backend B=NAME    the tests of one backend
#   make format             clang-format over everything
#   make clean              the builds; what setup put into build/ stays
JOBS ?= 2
PREFIX ?= /usr/local
CMAKE ?= cmake
# CMake starts a make of its own, which gets the number of jobs: JOBS, or the N of `make -jN`.
N_JOBS = $(or $(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS))),$(JOBS))
BUILD = MAKEFLAGS= $(CMAKE) --build
T ?=
S ?= 60
B ?= ref
TORCH ?=
STAGE ?=
BUILT ?=
OUT ?= bench/results/cuda-$(shell date +%F)

all: build/release/CMakeCache.txt
	$(BUILD) build/release -j$(N_JOBS)

build/release/CMakeCache.txt:
	$(CMAKE) -S . -B build/release -DEBB_TESTS=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX)

test:
	@tools/test-suite

test-all:
	@tools/test-suite all

check: all
	@tools/run-tests tools/check-layers tools/check-headers tools/check-format tools/check-style tools/check-symbols

demo: all
	@tools/demo build/release

bench: all
	@test -n "$(TORCH)" || { echo "say which Python has torch and torchvision: make bench TORCH=PYTHON"; exit 2; }
	bench/against_torch.py --ebb build/release/ebb --torch $(TORCH)

# What a build for a card is: made here, or elsewhere (tools/pack-cuda) and led to this machine's cuDNN.
ifeq ($(BUILT),)
CARD_BENCH = build/release
CARD_TESTS = build/cuda
else
CARD_BENCH = $(BUILT)
CARD_TESTS = $(BUILT)
endif

built-bench:
ifeq ($(BUILT),)
	$(MAKE) all
	$(BUILD) build/release -j$(N_JOBS) --target bench_workspaces
else
	$(link_nvidia)
endif

built-tests:
ifeq ($(BUILT),)
	$(call build_for_card,build/cuda)
else
	$(link_nvidia)
endif

define link_nvidia
@found=$$(TORCH="$(TORCH)" tools/find-nvidia | head -n 1); test -z "$$found" || ln -sfn "$$found" $(BUILT)/nvidia
endef

bench-cuda: built-bench
	@mkdir -p $(OUT)
	bench/bench_cuda.py --build $(CARD_BENCH) $(if $(TORCH),--torch "$(TORCH)") $(if $(STAGE),--stage $(STAGE)) \
		-o $(OUT)/bench$(addprefix -,$(STAGE)).csv

# A build with all that tests/card runs.
define build_for_card
$(CMAKE) -S . -B $(1) -DEBB_TESTS=ON -DEBB_DEBUG=2 $(2)
$(BUILD) $(1) -j$(N_JOBS) --target ebb_cli --target test_conformance_cuda
@test ! -e $(1)/CMakeFiles/ebb_cuda.dir || $(BUILD) $(1) -j$(N_JOBS) --target ebb_cuda
endef

test-cuda: built-tests
	@mkdir -p $(OUT)
	@EBB=$(CARD_TESTS)/ebb STAGE=$(STAGE) PYTHON="$(or $(PYTHON),$(TORCH))" \
		tools/run-tests -t 3000 --live $(OUT)/tests$(addprefix -,$(STAGE)).txt tests/card

dry-cuda:
	$(call build_for_card,build/fake,-DEBB_CUDA=FAKE)
	$(BUILD) build/fake -j$(N_JOBS) --target bench_workspaces
	@SMALL="resnet_cifar:1 --image 32x32 --batch 6 --classes 10" EBB=build/fake/ebb tools/run-tests -t 3000 tests/card
	bench/bench_cuda.py --build build/fake --tiny --rounds 1 --deadline 1800 $(if $(TORCH),--torch "$(TORCH)") -o build/fake/cuda.csv

wheel:
	@tools/wheel

install: all
	$(CMAKE) --install build/release --prefix $(PREFIX)

fuzz:
	@test -n "$(T)" || { echo "say which: make fuzz T=NAME, one of" tests/fuzz/fuzz_*.c; exit 2; }
	$(CMAKE) -S . -B build/fuzz -DCMAKE_C_COMPILER=clang -DEBB_FUZZ=ON -DEBB_TESTS=OFF -DEBB_DEBUG=2
	$(BUILD) build/fuzz -j$(N_JOBS) --target fuzz_$(T)
	mkdir -p build/fuzz/corpus/$(T) tests/fuzz/corpus/$(T)
	build/fuzz/fuzz_$(T) -max_total_time=$(S) build/fuzz/corpus/$(T) tests/fuzz/corpus/$(T)

test-backend:
	$(CMAKE) -S . -B build/test -DEBB_DEBUG=2 -DEBB_SANITIZE=address,undefined
	$(BUILD) build/test -j$(N_JOBS)
	tools/run-tests --only 'test_conformance_$(B)' --only 'test_$(B)*' build/test

format:
	@tools/check-format --fix

clean:
	rm -rf build/release build/cuda build/fake build/packing build/pack build/wheel build/test build/clang build/tsan build/fuzz build/demo

.PHONY: all test test-all check demo bench built-bench built-tests bench-cuda test-cuda dry-cuda wheel install fuzz test-backend format clean
