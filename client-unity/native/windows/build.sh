#!/usr/bin/env bash
# Builds holocast.dll for Windows on Linux, with zig as linker, into target/windows/NAME:
#
#   build.sh uwp-arm64   HoloLens 2, as far as that can be told without Microsoft's linker
#   build.sh x64         Windows on a PC
#
# What ships is built by Microsoft's tools (.github/workflows/unity-native.yml); this finds out early that
# something does not compile, links a function that a store application has not, or lacks a flag.
# Needs Rust nightly with rust-src (its standard library is compiled, too) and zig (ZIG; see ../../verify/setup.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
: "${ZIG:=$PWD/../../build/unity/zig/ziglang/zig}"
case ${1:-} in
# The vendor is uwp; crates that carry import libraries know the target by this name.
uwp-arm64) target=aarch64-pc-windows-gnullvm spec=windows/uwp/$target.json ZIG_TARGET=aarch64-windows-gnu ;;
x64) target=x86_64-pc-windows-gnu spec=$target ZIG_TARGET=x86_64-windows-gnu ;;
*)
	sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"
	exit 2
	;;
esac
# A PC's can be tried under wine: wine64 target/windows/x64/watch.exe URL
examples=
[[ $1 != x64 ]] || examples="--example watch"
export ZIG ZIG_TARGET
export ZIG_GLOBAL_CACHE_DIR=$PWD/target/zig ZIG_LOCAL_CACHE_DIR=$PWD/target/zig
variable=${target//-/_}
export "CC_$variable=$PWD/windows/cc" "AR_$variable=$PWD/windows/ar" "CARGO_TARGET_${variable^^}_LINKER=$PWD/windows/cc"
export "CARGO_TARGET_${variable^^}_RUSTFLAGS=-Cdlltool=$PWD/windows/dlltool"
RUSTUP_TOOLCHAIN=${HOLOCAST_NIGHTLY:-nightly} cargo build --locked --release -p capi --lib $examples --target "$spec" \
	-Zbuild-std=std,panic_unwind -Zjson-target-spec
out=target/windows/$1
mkdir -p "$out"
cp "target/$target/release/holocast.dll" "$out/"
[[ $1 != x64 ]] || cp "target/$target/release/examples/watch.exe" "$out/"
# Zig's linker has no switch for it: a store application loads no library without.
[[ $1 != uwp-arm64 ]] || python3 windows/check.py set-appcontainer "$out/holocast.dll"
python3 windows/check.py "$1" "$out/holocast.dll"
