#!/usr/bin/env bash
# Assembles OpenH264's NEON functions for Windows on ARM64, which its crate leaves out because cl.exe cannot
# assemble them, and prints the rustc flags that link them.
#
#   neon.sh FOLDER COMPILER...    e.g. neon.sh target/neon clang --target=aarch64-pc-windows-msvc
#
# C++ calls them if compiled with -DHAVE_NEON_AARCH64 -D__aarch64__ (clang defines the latter itself).
set -euo pipefail
out=$1
shift
mkdir -p "$out"
crate=$(cargo metadata --locked --format-version 1 --manifest-path "$(dirname "$0")/../Cargo.toml" |
	grep -o '"manifest_path":"[^"]*openh264-sys2[^"]*"' | sed 's|.*:"||; s|\\\\|/|g; s|/Cargo.toml"$||')
codec=$crate/upstream/codec
while read -r source; do
	object=${source#"$codec/"}
	object=$out/${object//\//-}.o
	"$@" -c -DHAVE_NEON_AARCH64 -I "$codec/common/arm64" "$source" -o "$object"
	printf -- '-Clink-arg=%s ' "$object"
done < <(find "$codec" -path '*/arm64/*.S' ! -name '*_macro.S')
