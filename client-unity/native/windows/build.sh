#!/usr/bin/env bash
# Builds holocast.dll for HoloLens 2 on Linux, as far as that can be told without Microsoft's linker, with zig in its
# place: target/windows/uwp-arm64/holocast.dll, and checks it. CARGO_TARGET_DIR takes the place of target.
#
# What ships is built by Microsoft's tools (.github/workflows/unity-native.yml); this finds out early that something does
# not compile, links a function that a store application has not, or lacks a flag.
# Needs Rust nightly with rust-src (its standard library is compiled, too) and zig (ZIG; see ../../verify/setup.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
: "${ZIG:=$PWD/../../build/unity/zig/ziglang/zig}"
# The vendor in the specification is uwp; crates that carry import libraries know the target by this name.
target=aarch64-pc-windows-gnullvm
export ZIG ZIG_TARGET=aarch64-windows-gnu
built=${CARGO_TARGET_DIR:-$PWD/target}
export ZIG_GLOBAL_CACHE_DIR=$built/zig ZIG_LOCAL_CACHE_DIR=$built/zig
variable=${target//-/_}
export "CC_$variable=$PWD/windows/cc" "CXX_$variable=$PWD/windows/cxx" "AR_$variable=$PWD/windows/ar" "CARGO_TARGET_${variable^^}_LINKER=$PWD/windows/cc"
export "CARGO_TARGET_${variable^^}_RUSTFLAGS=-Cdlltool=$PWD/windows/dlltool"
# OpenH264 for store applications, as its own Makefile compiles it for them; functions that take text are those of UTF-16.
export "CXXFLAGS_$variable=-DWINAPI_FAMILY=WINAPI_FAMILY_APP -DUNICODE"
RUSTUP_TOOLCHAIN=${HOLOCAST_NIGHTLY:-nightly} cargo build --locked --release -p capi --lib --target "windows/uwp/$target.json" \
	-Zbuild-std=std,panic_unwind -Zjson-target-spec
out=$built/windows/uwp-arm64
mkdir -p "$out"
cp "$built/$target/release/holocast.dll" "$out/"
# Zig's linker has no switch for it: a store application loads no library without.
python3 windows/check.py set-appcontainer "$out/holocast.dll"
python3 windows/check.py uwp-arm64 "$out/holocast.dll"
