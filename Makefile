# heng: one binary. `make` builds it, `make demo FOLDER=/path` shows its main job on your own folder, `make test` checks everything.
SHELL := /bin/bash
# V=1 shows each command.
Q := $(if $(V),,@)
CC ?= gcc
VARIANT ?= release
OUT := build/$(VARIANT)
PREFIX ?= /usr/local
FLOORS := base sys core wire plug http sim folder lib app

PKGS := libssl libcrypto libargon2 libcurl jansson yaml-0.1 libxxhash libisal sqlite3 libpq liburing
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes -Wvla -Werror
HARDENING := -fstack-protector-strong -D_FORTIFY_SOURCE=2
# The same objects make the binary and the library. What is hidden is called directly, so the binary loses nothing by it.
PIC := -fPIC -fvisibility=hidden
# Asked for once, by the first that needs it: the packages may have been installed just before.
PKG_CFLAGS = $(eval PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS)))$(PKG_CFLAGS)
PKG_LIBS = $(eval PKG_LIBS := $(shell pkg-config --libs $(PKGS)) -lunistring -lm)$(PKG_LIBS)
CPPFLAGS_ALL = -Isrc -Iinclude -D_GNU_SOURCE $(PKG_CFLAGS)
CFLAGS_ALL = -std=gnu17 -g $(WARNINGS) -pthread $(PIC) $(VARIANT_CFLAGS) $(CFLAGS)
LDFLAGS_ALL = -pthread -pie -Wl,-z,relro,-z,now $(VARIANT_LDFLAGS) $(LDFLAGS)

ifeq ($(VARIANT),release)
VARIANT_CFLAGS := -O2 -flto=auto -ffat-lto-objects $(HARDENING)
VARIANT_LDFLAGS := -O2 -flto=auto
# Optimising the whole program again for each of fifty tests takes minutes; the objects hold machine code too.
TEST_LDFLAGS := -fno-lto
else ifeq ($(VARIANT),debug)
VARIANT_CFLAGS := -O1 $(HARDENING)
else ifeq ($(VARIANT),clang)
CC := clang
VARIANT_CFLAGS := -O1 $(HARDENING)
else ifeq ($(VARIANT),asan)
# Reports need lines, not variables (-g1), which take a fifth of the compiler's time.
VARIANT_CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
VARIANT_LDFLAGS := -fsanitize=address,undefined
else ifeq ($(VARIANT),tsan)
VARIANT_CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread
VARIANT_LDFLAGS := -fsanitize=thread
else ifeq ($(VARIANT),fuzz)
CC := clang
VARIANT_CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link
VARIANT_LDFLAGS := -fsanitize=address,undefined
else
$(error VARIANT is one of release debug clang asan tsan fuzz)
endif

SOURCES := $(foreach floor,$(FLOORS),$(wildcard src/$(floor)/*.c))
LIB_OBJECTS := $(patsubst src/%.c,$(OUT)/obj/%.o,$(filter-out src/app/main.c,$(SOURCES)))
MAIN_OBJECT := $(OUT)/obj/app/main.o
# core, wire and sim are pure and their tests have one thread: there is no race to look for.
UNIT_FLOORS := $(if $(filter tsan,$(VARIANT)),$(filter-out core wire sim,$(FLOORS)),$(FLOORS))
UNIT_SOURCES := $(foreach floor,$(UNIT_FLOORS),$(wildcard test/$(floor)/t_*.c))
UNIT_TESTS := $(patsubst test/%.c,$(OUT)/test/%,$(UNIT_SOURCES))
FUZZ_SOURCES := $(wildcard fuzz/fuzz_*.c)
FUZZ_REPLAYS := $(patsubst fuzz/%.c,$(OUT)/fuzz/replay_%,$(FUZZ_SOURCES))
FUZZ_TARGETS := $(patsubst fuzz/%.c,$(OUT)/fuzz/%,$(FUZZ_SOURCES))
BENCH_SOURCES := $(wildcard bench/*.c)
BENCH_BINARIES := $(patsubst bench/%.c,$(OUT)/bench/%,$(BENCH_SOURCES))

.PHONY: all heng lib system-asan system-tsan scale deps deps-test deps-bench demo test chaos unit units replays lint asan tsan fuzz bench bench-folder install uninstall clean compile
all: heng
heng: $(OUT)/heng
	@ln -sfn $(OUT)/heng heng

$(OUT)/heng: $(MAIN_OBJECT) $(LIB_OBJECTS)
	$(Q)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $^ $(PKG_LIBS)

# The library: of the rooms below it only what it calls, so that it needs few others. Not optimised once more as a whole: the objects hold machine
# code too, and what takes the time is in other libraries.
LIBHENG := $(OUT)/libheng.so.1
LIBHENG_INSIDE := $(filter-out $(OUT)/obj/app/% $(OUT)/obj/sim/% $(OUT)/obj/lib/%,$(LIB_OBJECTS))
LIBHENG_FLAGS := -shared -fno-lto -Wl,-soname,libheng.so.1,-z,relro,-z,now,-z,defs,-z,nodelete,--as-needed
lib: $(LIBHENG)
$(OUT)/libheng-inside.a: $(LIBHENG_INSIDE)
	$(Q)rm -f $@ && ar rcs $@ $^
$(LIBHENG): $(filter $(OUT)/obj/lib/%,$(LIB_OBJECTS)) $(OUT)/libheng-inside.a src/lib/heng.map
	$(Q)$(CC) $(CFLAGS_ALL) -pthread $(VARIANT_LDFLAGS) $(LDFLAGS) $(LIBHENG_FLAGS) -Wl,--version-script=src/lib/heng.map -o $@ $(filter %.o %.a,$^) $(PKG_LIBS)
	@ln -sfn libheng.so.1 $(OUT)/libheng.so
$(OUT)/obj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<
# A test takes of it what it calls: linking all objects into a hundred programs took longer than making them.
ALL_OBJECTS := $(OUT)/heng.a
$(ALL_OBJECTS): $(LIB_OBJECTS)
	$(Q)rm -f $@ && ar rcsT $@ $^
$(OUT)/test/%: test/%.c $(ALL_OBJECTS) Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) -Itest $(CFLAGS_ALL) -MMD -MP -MF $@.d $(LDFLAGS_ALL) $(TEST_LDFLAGS) -o $@ $< $(ALL_OBJECTS) $(PKG_LIBS) -lcmocka
$(OUT)/fuzz/replay_%: fuzz/%.c fuzz/replay.c $(ALL_OBJECTS) Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LDFLAGS_ALL) $(TEST_LDFLAGS) -o $@ $< fuzz/replay.c $(ALL_OBJECTS) $(PKG_LIBS)
$(OUT)/fuzz/fuzz_%: fuzz/fuzz_%.c $(ALL_OBJECTS) Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LDFLAGS_ALL) -fsanitize=fuzzer -o $@ $< $(ALL_OBJECTS) $(PKG_LIBS)
$(OUT)/bench/%: bench/%.c $(ALL_OBJECTS) Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $< $(ALL_OBJECTS) $(PKG_LIBS)

# Without system packages nothing else works, so each entry point below brings its own.
deps:
	@tools/deps build
deps-test:
	@tools/deps test
deps-bench:
	@tools/deps bench

demo: deps
	@$(MAKE) --no-print-directory -j"$$(nproc)" heng
	@tools/demo "$(FOLDER)"

test: deps-test
	@$(MAKE) --no-print-directory -j"$$(nproc)" heng units replays
	@tools/test-run $(OUT)

# Faults at random for as long as one likes; t_kills is its short run.   make chaos CHAOS_KILLS=500 CHAOS_SEED=1
chaos: deps-test
	@$(MAKE) --no-print-directory -j"$$(nproc)" heng
	@CHAOS_KILLS="$(CHAOS_KILLS)" CHAOS_SEED="$(CHAOS_SEED)" HENG="$(CURDIR)/$(OUT)/heng" python3 test/system/chaos.py

units: $(UNIT_TESTS)
replays: $(FUZZ_REPLAYS)
unit: units replays
	@tools/test-run $(OUT) unit
compile: $(MAIN_OBJECT) $(LIB_OBJECTS) $(UNIT_TESTS) $(BENCH_BINARIES)

lint: deps-test
	@tools/floors
	@tools/lint
	@$(MAKE) --no-print-directory -j"$$(nproc)" VARIANT=clang compile

asan tsan:
	@$(MAKE) --no-print-directory -j"$$(nproc)" VARIANT=$@ units replays
	@tools/test-run build/$@ unit

# The system tests again, with a binary that watches itself: a report of any process fails its test. Half an hour and more.
system-asan system-tsan: deps-test
	@$(MAKE) --no-print-directory -j"$$(nproc)" VARIANT=$(@:system-%=%) build/$(@:system-%=%)/heng
	@tools/test-run build/$(@:system-%=%) system

# A million files and a file of 20 GiB: minutes, and 3 GB of disk.
scale: deps-test
	@$(MAKE) --no-print-directory -j"$$(nproc)" heng
	@tools/test-run $(OUT) scale

FUZZ_SECONDS ?= 60
fuzz: deps-test
	@$(MAKE) --no-print-directory -j"$$(nproc)" VARIANT=fuzz fuzz-build
	@tools/fuzz-run build/fuzz $(FUZZ_SECONDS)
.PHONY: fuzz-build
fuzz-build: $(FUZZ_TARGETS)

bench: deps-bench
	@$(MAKE) --no-print-directory -j"$$(nproc)" heng bench-build
	@tools/bench-run $(OUT)
.PHONY: bench-build
bench-build: $(BENCH_BINARIES)
bench-folder: deps-bench
	@$(MAKE) --no-print-directory -j"$$(nproc)" heng
	@bench/folder

# The binary writes its own manual and completion, from the rows that its help prints.
MAN_NAMES := heng.1 $(shell sed -n 's/^CMD.\([a-z_0-9]*\),.*/heng-\1.1/p' src/app/cmd_list.h)
$(OUT)/man/heng.1: $(OUT)/heng
	@mkdir -p $(@D)
	$(Q)$(OUT)/heng help --man >$@.part && mv $@.part $@
$(OUT)/man/heng-%.1: $(OUT)/heng
	@mkdir -p $(@D)
	$(Q)$(OUT)/heng help --man $* >$@.part && mv $@.part $@
$(OUT)/completions/heng: $(OUT)/heng
	@mkdir -p $(@D)
	$(Q)$(OUT)/heng help --completion >$@.part && mv $@.part $@

VERSION := $(shell sed -n 's/^.define HENG_VERSION "\(.*\)"/\1/p' src/base/base.h)
$(OUT)/heng.pc: src/lib/heng.pc.in Makefile src/base/base.h
	@mkdir -p $(@D)
	$(Q)sed 's|@VERSION@|$(VERSION)|' $< >$@.part && mv $@.part $@

BIN_DIR = $(DESTDIR)$(PREFIX)/bin
LIB_DIR = $(DESTDIR)$(PREFIX)/lib
INCLUDE_DIR = $(DESTDIR)$(PREFIX)/include
MAN_DIR = $(DESTDIR)$(PREFIX)/share/man/man1
UNIT_DIR = $(DESTDIR)$(PREFIX)/lib/systemd/system
UNITS := heng-scheduler.service heng-node@.service
MAN3_DIR = $(DESTDIR)$(PREFIX)/share/man/man3
COMPLETION_DIR = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
install: heng lib $(OUT)/heng.pc $(addprefix $(OUT)/man/,$(MAN_NAMES)) $(OUT)/completions/heng
	install -D -m 0755 $(OUT)/heng "$(BIN_DIR)/heng"
	install -d "$(UNIT_DIR)" "$(MAN_DIR)" "$(MAN3_DIR)" "$(COMPLETION_DIR)" "$(LIB_DIR)/pkgconfig" "$(INCLUDE_DIR)"
	install -m 0644 $(addprefix $(OUT)/man/,$(MAN_NAMES)) "$(MAN_DIR)"
	install -m 0644 man/libheng.3 "$(MAN3_DIR)/libheng.3"
	install -m 0644 $(OUT)/completions/heng "$(COMPLETION_DIR)/heng"
	install -m 0644 $(LIBHENG) "$(LIB_DIR)/libheng.so.1"
	ln -sfn libheng.so.1 "$(LIB_DIR)/libheng.so"
	install -m 0644 include/heng.h "$(INCLUDE_DIR)/heng.h"
	for unit in $(UNITS); do sed 's|@PREFIX@|$(PREFIX)|' "etc/$$unit" >"$(UNIT_DIR)/$$unit" && chmod 0644 "$(UNIT_DIR)/$$unit"; done
	sed 's|@PREFIX@|$(PREFIX)|' $(OUT)/heng.pc >"$(LIB_DIR)/pkgconfig/heng.pc"
	chmod 0644 "$(LIB_DIR)/pkgconfig/heng.pc"
# Files alone: the folders belong to everybody.
uninstall:
	rm -f "$(BIN_DIR)/heng" $(foreach name,$(MAN_NAMES),"$(MAN_DIR)/$(name)") "$(COMPLETION_DIR)/heng"
	rm -f $(foreach unit,$(UNITS),"$(UNIT_DIR)/$(unit)")
	rm -f "$(LIB_DIR)/libheng.so" "$(LIB_DIR)/libheng.so.1" "$(LIB_DIR)/pkgconfig/heng.pc" "$(INCLUDE_DIR)/heng.h" "$(MAN3_DIR)/libheng.3"

clean:
	rm -rf build heng

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
