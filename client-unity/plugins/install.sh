#!/usr/bin/env bash
# Installs native libraries into the package, each with the .meta that tells Unity its platform.
#
#   install.sh FILE…       holocast.dll, libholocast.so or libholocast.dylib, for any platform
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=$here/../Packages/dev.holocast.client/Plugins

number() { # FILE OFFSET BYTES: little-endian, hex
	local b
	b=$(od -An -v -tx1 -j "$2" -N "$3" "$1" | tr -s ' \n' '\n' | tac | tr -d '\n')
	echo "$b"
}

place() { # FILE: prints its folder in the package
	local magic machine
	magic=$(number "$1" 0 4)
	case $magic in
	464c457f)
		machine=$(number "$1" 18 2)
		case $machine in
		003e) echo x86_64/libholocast.so ;;
		00b7) echo Android/arm64-v8a/libholocast.so ;;
		*) return 1 ;;
		esac
		;;
	????5a4d)
		machine=$(number "$1" $((0x$(number "$1" 60 4) + 4)) 2)
		case $machine in
		8664) echo x86_64/holocast.dll ;;
		aa64) echo WSA/ARM64/holocast.dll ;;
		*) return 1 ;;
		esac
		;;
	bebafeca | feedfacf) echo macOS/libholocast.dylib ;;
	*) return 1 ;;
	esac
}

(($#)) || { sed -n '2,6s/^# \?//p' "$0" >&2; exit 2; }
for file in "$@"; do
	if ! to=$(place "$file"); then
		echo "install: $file is not a library for x86_64 or ARM64" >&2
		exit 1
	fi
	mkdir -p "$package/$(dirname "$to")"
	cp "$file" "$package/$to"
	cp "$here/$to.meta" "$package/$to.meta"
	while :; do
		to=$(dirname "$to")
		[[ $to != . ]] || break
		cp "$here/$to.meta" "$package/$to.meta"
	done
	echo "installed $(place "$file")"
done
