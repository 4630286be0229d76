#!/usr/bin/env bash
# Builds the images from source, for the interop runner's "make build-impl IMPL=holocast". The runner
# has this file as builds/holocast/build.sh.
#   build.sh [--ref REF] [--repo URL] [--target relay|client]
#   build.sh --local PATH [--target relay|client]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

repo=https://github.com/holocast/holocast ref=main local='' target=''
while [ $# -gt 0 ]; do
	[ $# -gt 1 ] || {
		echo "build.sh: $1: want --ref REF, --repo URL, --local PATH or --target relay|client" >&2
		exit 1
	}
	case $1 in
	--ref) ref=$2 ;;
	--repo) repo=$2 ;;
	--local) local=$2 ;;
	--target) target=$2 ;;
	*)
		echo "build.sh: unknown option $1" >&2
		exit 1
		;;
	esac
	shift 2
done

source=$here/.sources/holocast
if [ -n "$local" ]; then
	source=$(cd "$local" && pwd)
	ref=local
else
	rm -rf "$source"
	git init -q "$source"
	git -C "$source" fetch -q --depth 1 "$repo" "$ref"
	git -C "$source" checkout -q FETCH_HEAD
fi

images='[]'
build() { # target image
	docker build -f "$source/tools/interop/runner/Dockerfile" --target "$1" -t "$2:latest" "$source" >&2
	images=$(jq --arg target "$1" --arg image "$2:latest" '. + [{target: $target, image: $image}]' <<<"$images")
}
case $target in
'' | relay) build relay holocast-relay ;;&
'' | client) build client holocast-interop-client ;;&
'' | relay | client) ;;
*)
	echo "build.sh: no target $target" >&2
	exit 1
	;;
esac

# The runner's record of the tested version.
dirty=$([ -z "$(git -C "$source" status --porcelain --untracked-files=no)" ] && echo false || echo true)
jq -n --arg time "$(date -u +%Y-%m-%dT%H:%M:%SZ)" --arg repo "$repo" --arg ref "$ref" \
	--arg commit "$(git -C "$source" rev-parse HEAD)" --argjson dirty "$dirty" --argjson images "$images" \
	'{implementation: "holocast", timestamp: $time,
	  source: {repository: $repo, ref: $ref, commit: $commit, dirty: $dirty}, images: $images}' |
	tee "$here/.last-build.json"
