#!/usr/bin/env bash
# Packs the Unity package with the native libraries of all platforms; needs npm.
#
#   package.sh LIBRARIES OUT [VERSION]
#
# LIBRARIES is a folder with the libraries, at any depth. Writes OUT/dev.holocast.client and its archive
# OUT/dev.holocast.client-VERSION.tgz; the default version is that in package.json.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=dev.holocast.client

(($# == 2 || $# == 3)) || { sed -n '2,7s/^# \?//p' "$0" >&2; exit 2; }
libraries=$1 out=$2 version=${3:-}
mkdir -p "$out"
package=$out/$name
rm -rf "$package" "$package"-*.tgz
cp -R "$here/../Packages/$name" "$package"
find "$package/Plugins" -mindepth 1 ! -name 'README.md*' -delete

mapfile -t files < <(find "$libraries" -name holocast.dll -o -name libholocast.so -o -name libholocast.dylib)
((${#files[@]} == 0)) || HOLOCAST_PLUGINS=$package/Plugins "$here/install.sh" "${files[@]}"
missing=()
while read -r meta; do
	file=${meta#"$here/"} file=${file%.meta}
	[[ -f $package/Plugins/$file ]] || missing+=("$file")
done < <(find "$here" -name '*holocast.*.meta' | sort)
if ((${#missing[@]})); then
	echo "package: $libraries lacks the libraries ${missing[*]}" >&2
	exit 1
fi

[[ -z $version ]] || (cd "$package" && npm pkg set "version=$version")
npm pack --silent --pack-destination "$out" "$package"
