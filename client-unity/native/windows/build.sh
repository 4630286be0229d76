#!/usr/bin/env bash
# Builds holocast.dll for HoloLens 2 on Linux and checks it: target/windows/uwp-arm64/holocast.dll,
# or in CARGO_TARGET_DIR. zig replaces Microsoft's linker.
#
# Releases are built with Microsoft's tools (.github/workflows/unity-native.yml). This build detects
# early that code does not compile, links a function unavailable to store apps, or lacks a flag.
# Requires nightly Rust with rust-src (the standard library is compiled too) and zig (ZIG; see
# ../../verify/setup.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
: "${ZIG:=$PWD/../../build/unity/zig/ziglang/zig}"
# The proper target has the vendor uwp, but crates with import libraries only recognize this name.
target=aarch64-pc-windows-gnullvm
export ZIG ZIG_TARGET=aarch64-windows-gnu
built=${CARGO_TARGET_DIR:-$PWD/target}
export ZIG_GLOBAL_CACHE_DIR=$built/zig ZIG_LOCAL_CACHE_DIR=$built/zig
variable=${target//-/_}
export "CC_$variable=$PWD/windows/cc" "CXX_$variable=$PWD/windows/cxx" "AR_$variable=$PWD/windows/ar" \
	"CARGO_TARGET_${variable^^}_LINKER=$PWD/windows/cc"
neon=$(windows/neon.sh "$built/neon" windows/cc)
export "CARGO_TARGET_${variable^^}_RUSTFLAGS=-Cdlltool=$PWD/windows/dlltool $neon --cfg=windows_slim_errors"
# OpenH264: the flags of its Makefile for store apps, UTF-16 variants of text functions, and NEON.
export "CXXFLAGS_$variable=-DWINAPI_FAMILY=WINAPI_FAMILY_APP -DUNICODE -DHAVE_NEON_AARCH64"
RUSTUP_TOOLCHAIN=${HOLOCAST_NIGHTLY:-nightly} \
	cargo build --locked --release -p capi --lib --target "windows/uwp/$target.json" \
	-Zbuild-std=std,panic_unwind -Zjson-target-spec
out=$built/windows/uwp-arm64
mkdir -p "$out"
cp "$built/$target/release/holocast.dll" "$out/"
# zig's linker has no option for this flag, without which store apps refuse the library.
python3 windows/check.py set-appcontainer "$out/holocast.dll"
python3 windows/check.py uwp-arm64 "$out/holocast.dll"
python3 simd.py arm64 "$built/$target"/release/build/openh264-sys2-*/out/*.a
