#!/usr/bin/env bash
# Generates include/holocast.h from capi/src/lib.rs. With --check, fails if the committed header is
# outdated.
set -euo pipefail
cd "$(dirname "$0")"
tools=$PWD/../../build/tools/cargo
version=0.29.4
if [[ $("$tools/bin/cbindgen" --version 2>/dev/null) != "cbindgen $version" ]]; then
	cargo install --quiet --locked --root "$tools" --version "$version" cbindgen
fi
made=$(mktemp)
trap 'rm -f "$made"' EXIT
# Drop Rust's Safety sections: the header's introductory comment states the rules for callers.
"$tools/bin/cbindgen" --quiet --config cbindgen.toml --lockfile Cargo.lock --crate capi capi |
	awk '/^\/\/ # Safety/ { skip = 1 } !/^\/\// { skip = 0 } skip { next } { line[++n] = $0 }
		END { for (i = 1; i <= n; i++) if (!(line[i] == "//" && line[i + 1] !~ /^\/\//)) print line[i] }' >"$made"
if [[ ${1:-} == --check ]]; then
	if ! diff -u include/holocast.h "$made"; then
		echo "include/holocast.h is out of date: run make -C client-unity/native header" >&2
		exit 1
	fi
else
	cp "$made" include/holocast.h
fi
