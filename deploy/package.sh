#!/usr/bin/env bash
# Builds Debian and RPM packages of bin/ and client-web/dist into build/packages. "make packages"
# calls it.
#
#   VERSION   package version; default: the last commit's
set -euo pipefail
cd "$(dirname "$0")/.."

nfpm=build/tools/nfpm-${NFPM_VERSION:?set by the Makefile}
version=${VERSION:-0.1.0~$(git show -s --format=%cd.%h --date=format:%Y%m%d%H%M%S HEAD)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git show -s --format=%ct HEAD)}
maintainer=$(git show -s --format='%an <%ae>' HEAD)
out=build/package
rm -rf "$out" build/packages
mkdir -p "$out"/{bin,doc,etc} build/packages

programs=(holocast relay capture-server edge controller)
declare -A dir=([holocast]=tools/holocast [relay]=relay [capture-server]=capture-server
	[edge]=netfunc/edge [controller]=netfunc/controller)
for p in "${programs[@]}"; do
	cp "bin/$p" "$out/bin/"
	go run -tags manual "./${dir[$p]}" manual "$out/doc/$p"
	gzip -9n "$out/doc/$p"/man/*.1
done
[ -f client-web/dist/index.html ] || { echo "package.sh: client-web/dist is missing: make web" >&2; exit 1; }
cp -r client-web/dist "$out/web"

# Configurations are the example files with package-specific values.
set_value() { # file, line, replacement
	grep -qxF "$2" "$1" || { echo "package.sh: $1 has no line '$2'" >&2; exit 1; }
	local line; line=$(grep -nxF "$2" "$1" | head -1 | cut -d: -f1)
	sed -i "${line}c\\$3" "$1"
}
cp relay/relay.example.yaml "$out/etc/relay.yaml"
set_value "$out/etc/relay.yaml" 'web: ""' 'web: /usr/share/holocast/web'
cp capture-server/capture-server.example.yaml "$out/etc/capture-server.yaml"
set_value "$out/etc/capture-server.yaml" 'sources: []' 'sources: [synthetic]'
cp netfunc/edge/edge.example.yaml "$out/etc/edge.yaml"
cp netfunc/controller/controller.example.yaml "$out/etc/controller.yaml"
set_value "$out/etc/controller.yaml" '  key: ""' '  key: ""' # http.key stays
sed -i '/^signal:/,/^  key:/s#^  key: ""#  key: /etc/holocast/signal.key#' "$out/etc/controller.yaml"

cat >"$out/copyright" <<EOF
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Holocast

Files: *
Copyright: $(git show -s --format=%cd --date=format:%Y HEAD) the Holocast authors
License: Apache-2.0
 On Debian systems the text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
EOF
changelog() { # package
	cat <<EOF
$1 ($version) unstable; urgency=medium

  * Built from commit $(git show -s --format=%h HEAD).

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
EOF
}

# Fills in the maintainer scripts. Arguments after the name: units to start, all units, users, the
# command after installation and the command on purge.
scripts() {
	local name=$1 start=$2 units=$3 users=$4 setup=$5 clean=$6 s
	for s in postinst prerm postrm; do
		sed -e "s#@PACKAGE@#$name#g" -e "s#@START@#$start#" -e "s#@UNITS@#$units#" -e "s#@USERS@#$users#" \
			-e "s#@SETUP@#$setup#" -e "s#@CLEAN@#$clean#" "deploy/scripts/$s.in" >"$out/$name.$s"
	done
}
scripts holocast-relay holocast-relay.service holocast-relay.service holocast-relay ":" ":"
scripts holocast-capture "" holocast-capture.service holocast-capture \
	'[ ! -d /run/udev ] || udevadm control --reload || true' ":"
scripts holocast-netfunc "" "holocast-edge.service holocast-controller.service" holocast-controller \
	'. /usr/share/holocast/make-signal-key' "rm -rf /var/lib/holocast /etc/holocast/signal.key"

arch=$(go env GOARCH)
for f in deploy/nfpm/*.yaml; do
	name=$(basename "$f" .yaml)
	sed -e "s#@OUT@#$out#g" -e "s#@NAME@#$name#g" -e "s#@ARCH@#$arch#g" -e "s#@VERSION@#$version#g" \
		-e "s#@MAINTAINER@#$maintainer#g" "$f" >"$out/$name.yaml"
	changelog "$name" | gzip -9n >"$out/changelog.gz"
	sed "s#@NAME@#$name#g" deploy/scripts/lintian-overrides.in >"$out/$name.lintian"
	"$nfpm" package --config "$out/$name.yaml" --packager rpm --target build/packages/ >/dev/null
	sed -i '/^license:/d' "$out/$name.yaml" # not a Debian field; the copyright file has the license
	"$nfpm" package --config "$out/$name.yaml" --packager deb --target build/packages/ >/dev/null
done
ls build/packages
