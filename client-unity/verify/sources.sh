#!/usr/bin/env bash
# Fetches into build/unity the Unity sources that verify.sh reads if they are present. Their
# licenses do not permit redistribution, so they must stay there. Idempotent.
#
#   sources.sh [BASE]     BASE: where the repositories are; default: https://github.com
set -euo pipefail
cd "$(dirname "$0")/../.."
base=${1:-https://github.com}
tools=$PWD/build/unity
clone=
trap 'rm -rf "$clone"' EXIT

fetch() { # REPOSITORY TAG FOLDER PATH…
	local repository=$1 tag=$2 folder=$tools/$3
	shift 3
	if [[ -d $folder ]]; then return; fi
	echo "sources: $repository $tag"
	mkdir -p "$tools"
	clone=$(mktemp -d "$tools/.get-XXXXXX")
	git -c advice.detachedHead=false clone --quiet --depth 1 --filter=blob:none --no-checkout --branch "$tag" \
		"$base/$repository" "$clone"
	git -C "$clone" checkout --quiet HEAD -- "$@"
	rm -rf "$clone/.git"
	mkdir -p "$(dirname "$folder")"
	mv "$clone" "$folder"
}

for package in core universal; do
	fetch "needle-mirror/com.unity.render-pipelines.$package" 13.0.0/Unity-2022.1.0a12 \
		"urp/Packages/com.unity.render-pipelines.$package" ShaderLibrary package.json
done
for version in 2022.3.76f1 6000.5.2f1; do
	fetch Unity-Technologies/UnityCsReference "$version" "reference/$version" Runtime Editor Modules artifacts
done
