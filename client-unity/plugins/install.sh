#!/usr/bin/env bash
# Installs native libraries into the package, each with the .meta that tells Unity its platform.
#
#   install.sh FILE…       holocast.dll, libholocast.so or libholocast.dylib, for any platform
#
# HOLOCAST_PLUGINS sets a folder other than the package's Plugins.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=${HOLOCAST_PLUGINS:-$here/../Packages/dev.holocast.client/Plugins}

number() { # FILE OFFSET BYTES: little-endian, hex
	local b
	b=$(od -An -v -tx1 -j "$2" -N "$3" "$1" | tr -s ' \n' '\n' | tac | tr -d '\n')
	echo "$b"
}

place() { # FILE: prints its folder in the package
	local magic machine pe
	magic=$(number "$1" 0 4)
	case $magic in
	464c457f)
		machine=$(number "$1" 18 2)
		case $machine in
		003e) echo x86_64/libholocast.so ;;
		# The NDK marks its output with a note; Linux on ARM64 is not one of Unity's platforms.
		00b7) LC_ALL=C grep -qaP '\x08\0\0\0(?s:.{4})\x01\0\0\0Android\0' "$1" && echo Android/arm64-v8a/libholocast.so ;;
		*) return 1 ;;
		esac
		;;
	????5a4d)
		pe=$((0x$(number "$1" 60 4)))
		machine=$(number "$1" $((pe + 4)) 2)
		case $machine in
		8664) echo x86_64/holocast.dll ;;
		# Store apps load only libraries with the flag APPCONTAINER.
		aa64) ((0x$(number "$1" $((pe + 94)) 2) & 0x1000)) && echo WSA/ARM64/holocast.dll ;;
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
		echo "install: $file is not a library for Windows, Linux or macOS on x86_64, UWP or Android on ARM64" >&2
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
