#!/usr/bin/env bash
# Verifies the Unity client without Unity. See README.md; `make test-unity` runs it.
#
#   verify.sh [STEP…]      build api package unit layout plugins shaders pictures end-to-end; default: all
#   verify.sh in-step      compares sound with pictures; needs an idle machine
#   verify.sh build shaders times
#                          times points and surfaces on lavapipe, as JSON
#   verify.sh released FOLDER
#                          checks a released package
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/../.."
root=$PWD
tools=$root/build/unity
here=$root/client-unity/verify
case " $* " in
"  " | *" shaders "* | *" pictures "* | *" times "*) "$here/setup.sh" ;;
*) "$here/setup.sh" dotnet ;;
esac

export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 DOTNET_CLI_TELEMETRY_OPTOUT=1
export LD_LIBRARY_PATH=$tools/openssl/mysql/vendor
dotnet=$tools/dotnet/dotnet
out=$tools/out
mkdir -p "$out"

tool=$out/tool/verify.dll
sources=("$here"/Tool/*.cs "$root/client-unity/Packages/dev.holocast.client/Editor/NativeLibrary.cs")
if [[ ! -f $tool || -n $(find "${sources[@]}" -newer "$tool") ]]; then
	mkdir -p "$out/tool"
	references=()
	roslyn=$tools/dotnet/sdk/3.1.102/Roslyn/bincore
	framework=$tools/dotnet/packs/Microsoft.NETCore.App.Ref/3.1.0/ref/netcoreapp3.1
	for r in "$framework"/*.dll; do references+=("-r:$r"); done
	for r in "$roslyn"/Microsoft.CodeAnalysis{,.CSharp}.dll; do
		references+=("-r:$r")
		cp "$r" "$out/tool/"
	done
	"$dotnet" "$roslyn/csc.dll" -nologo -nostdlib -langversion:8 \
		-warnaserror -nowarn:1702 -optimize \
		-out:"$tool" "${references[@]}" "${sources[@]}"
	echo '{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"3.1.0"}}}' \
		>"${tool%.dll}.runtimeconfig.json"
fi
verify() { "$dotnet" "$tool" "$root" "$@"; }
run() { "$dotnet" "$out/linux/Holocast.Verify.dll" "$@"; }
publisher() { go build -o bin/publisher ./client-web/test/publisher; }

if [[ ${1:-} == released ]]; then
	verify released "$(cd "$from" && realpath "$2")"
	exit
fi
steps=("$@")
((${#steps[@]})) || steps=(build api package unit layout plugins shaders pictures end-to-end)
for step in "${steps[@]}"; do
	echo "== $step"
	case $step in
	pictures | times)
		if [[ $step == times ]]; then
			(cd "$root/client-unity/native" && cargo build --quiet --locked --profile verify -p capi)
		fi
		publisher
		CARGO_TARGET_DIR=$tools/draw cargo build --quiet --release --locked \
			--manifest-path "$here/shaders/draw/Cargo.toml"
		run "$step" "$root"
		;;
	end-to-end)
		publisher
		# "no growth" takes longest but mostly waits: run it in parallel.
		run end-to-end "$root" "no growth" >"$out/no-growth.log" 2>&1 &
		failed=
		run end-to-end "$root" "-no growth" "-in step" || failed=1
		wait $! || failed=1
		cat "$out/no-growth.log"
		[[ -z $failed ]]
		;;
	in-step)
		publisher
		if [[ ! -f $out/linux/Holocast.Verify.dll ]]; then
			(cd "$root/client-unity/native" && cargo build --quiet --locked --workspace --lib --tests --profile verify)
			verify build
		fi
		run end-to-end "$root" "in step"
		;;
	package)
		verify package
		"$here/package.sh" "$dotnet" "$tool" "$root"
		;;
	plugins)
		run plugins "$root"
		python3 "$root/client-unity/native/simd.py" x86_64 "$root/client-unity/native/target/verify/libholocast.so"
		;;
	unit | layout) run "$step" "$root" ;;
	*) verify "$step" ;;
	esac
done
