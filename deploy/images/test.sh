#!/usr/bin/env bash
# Builds the images with Debian's buildah and runs their programs, without a registry or container
# daemon: mmdebstrap makes the Debian base, and Go and Node.js are copied from this machine. Needs
# root. "make test-images" calls it.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$EUID" = 0 ] || { echo "test.sh: root is needed to build images" >&2; exit 1; }

mkdir -p build/.images # the dot hides it from Go's ./...
state=$PWD/build/.images
run=$(mktemp -d)
work=$(mktemp -d)
touch "$work/containers"
b() { buildah --root "$state/storage" --runroot "$run" --storage-driver "${STORAGE_DRIVER:-overlay}" "$@"; }
pids=()
cleanup() {
	for p in "${pids[@]}"; do pkill -TERM -P "$p" || true; wait "$p" || true; done
	while read -r c; do b rm "$c" >/dev/null || true; done <"$work/containers"
	rm -rf "$run" "$work"
}
trap cleanup EXIT

# has reports whether an image exists.
has() { b inspect --type image "$1" >/dev/null 2>&1; }
has localhost/debian || {
	mmdebstrap --quiet --variant=minbase --format=tar --include=ca-certificates bookworm "$work/debian.tar"
	c=$(b from scratch)
	b add -q "$c" "$work/debian.tar" /
	# The registries may use this machine's own certificates.
	b copy -q "$c" /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
	b config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$c"
	b commit -q --rm "$c" localhost/debian
}
has localhost/golang || {
	c=$(b from localhost/debian)
	b copy -q "$c" "$(go env GOROOT)" /usr/local/go
	b config --env PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --env GOPATH=/go "$c"
	b commit -q --rm "$c" localhost/golang
}
has localhost/node || {
	c=$(b from localhost/debian)
	b run --isolation chroot "$c" -- sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends libstdc++6 >/dev/null'
	b copy -q "$c" "$(readlink -f "$(command -v node)")" /usr/local/bin/node
	b copy -q "$c" "$(npm root -g)/npm" /usr/local/lib/node_modules/npm
	b run --isolation chroot "$c" -- ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
	b config --env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$c"
	b commit -q --rm "$c" localhost/node
}

for target in relay edge controller capture-server tools holocast; do
	b bud --quiet --isolation chroot --layers --pull-never --ignorefile deploy/images/Containerfile.dockerignore \
		--build-arg GO=localhost/golang --build-arg NODE=localhost/node --build-arg DEBIAN=localhost/debian \
		--build-arg VERSION=test \
		--volume "$(go env GOMODCACHE):/go/pkg/mod" --volume "$(go env GOCACHE):/root/.cache/go-build" \
		--file deploy/images/Containerfile --target "$target" --tag "holocast/$target" . >/dev/null
done
b images --format '{{.Name}} {{.Size}}' --filter reference='holocast/*' | sed 's/^/image /'


# run_image runs an image's entry point with arguments, in its root file system and as its user.
run_image() {
	local image=$1 c; shift
	c=$(b from --pull-never "localhost/holocast/$image")
	echo "$c" >>"$work/containers"
	local entry
	entry=$(b inspect --type image --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}' \
		"localhost/holocast/$image")
	# shellcheck disable=SC2086 # its words are arguments
	b run --isolation chroot "$c" -- $entry "$@"
}
for image in relay controller capture-server tools holocast; do
	user=$(b inspect --type image --format '{{.OCIv1.Config.User}}' "localhost/holocast/$image")
	[ "$user" = 65532:65532 ] || { echo "test.sh: $image runs as $user" >&2; exit 1; }
done
for image in relay controller edge capture-server tools; do
	run_image "$image" --version
done
run_image relay check /etc/holocast/relay.yaml
if run_image relay --config /etc/holocast/relay.yaml >"$work/keyless.log" 2>&1; then
	echo "test.sh: the relay's image runs without a key" >&2
	exit 1
fi
grep -q 'relay.key' "$work/keyless.log"
run_image capture-server check /etc/holocast/capture-server.yaml
run_image holocast doctor || true # a fault here depends on this machine

# Run a session with three images, then test the image with all programs.
run_image relay --web /usr/share/holocast/web --listen 127.0.0.1:4443 --http 127.0.0.1:4443 >"$work/relay.log" 2>&1 &
pids+=($!)
run_image capture-server --source synthetic --fps 5 moqt://127.0.0.1:4443/demo >"$work/capture.log" 2>&1 &
pids+=($!)
run_image tools play moqt://127.0.0.1:4443/demo --wait --duration 3s --json >"$work/play.json" 2>"$work/play.log" || {
	tail "$work"/*.log >&2
	exit 1
}
curl -fsS http://127.0.0.1:4443/ | grep -q '<title>' || { echo "test.sh: the relay serves no web viewer" >&2; exit 1; }
frames() { sed -n 's/.*"frames":\([0-9]*\).*/\1/p' "$1" | tail -1; }
echo "frames shown by the image tools in 3 s: $(frames "$work/play.json")"
[ "$(frames "$work/play.json")" -gt 0 ]
ps -eo uid,args | grep -E '^ *65532 /usr/bin/relay' >/dev/null || {
	echo "test.sh: the relay does not run as 65532" >&2
	exit 1
}
run_image holocast demo --seconds 3 --source synthetic --capture-arg=--fps=5 --out /tmp/demo \
	>"$work/demo.json" 2>"$work/demo.log" || {
	tail "$work"/*.log >&2
	exit 1
}
echo "frames shown by the image holocast in 3 s: $(frames "$work/demo.json")"
[ "$(frames "$work/demo.json")" -gt 0 ]
