#!/usr/bin/env bash
# Publishes a package with its libraries for git URLs: pushes it to the branch upm and the tag
# upm/vVERSION, at its path in this repository.
#
#   upm.sh PACKAGE REMOTE       PACKAGE as written by package.sh
set -euo pipefail

(($# == 2)) || { sed -n '2,5s/^# \?//p' "$0" >&2; exit 2; }
package=$(cd "$1" && pwd) remote=$2
version=$(cd "$package" && npm pkg get version | tr -d '"')
path=client-unity/Packages/dev.holocast.client

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export GIT_INDEX_FILE=$scratch/index GIT_DIR
GIT_DIR=$(git rev-parse --absolute-git-dir)
git -C "$package" --work-tree=. add --force --all .
tree=$(git write-tree)
git read-tree --empty
git read-tree --prefix="$path/" "$tree"
parent=()
if git fetch --quiet --depth 1 "$remote" refs/heads/upm 2>/dev/null; then
	parent=(-p FETCH_HEAD)
fi
commit=$(git commit-tree "${parent[@]}" -m "Holocast for Unity $version" "$(git write-tree)")
git push --quiet "$remote" "$commit:refs/heads/upm" "$commit:refs/tags/upm/v$version"
