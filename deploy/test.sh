#!/usr/bin/env bash
# Tests the packages in build/packages: runs lintian, then boots Debian systems with systemd in
# containers without a network. In the first, a plain Debian, test/first.sh runs the commands of
# docs/install.md, whose output must match the page except for versions and figures. In the second,
# test/inside.sh installs, uses, upgrades and removes the packages. Needs root. "make test-packages"
# calls it.
#
#   --update   write the commands' output, and the picture, into docs/
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$EUID" = 0 ] || { echo "test.sh: root is needed for the container" >&2; exit 1; }

for unit in deploy/systemd/*.service; do
	systemd-analyze security --offline=true --threshold=30 --no-pager "$unit" | tail -1
done
for package in build/packages/*.deb; do
	lintian --no-cfg --fail-on error,warning "$package" 2>&1 | grep -v 'root privileges' || [ "${PIPESTATUS[0]}" = 0 ]
done
for package in build/packages/*.rpm; do
	rpm -qp --nosignature "$package" >/dev/null
done

work=$(mktemp -d)
trap 'umount "$work/bpf" 2>/dev/null; rm -rf "$work"' EXIT
export LC_ALL=C.UTF-8

# make_base NAME PACKAGES [HOOKS…] builds build/deploy/NAME-HASH.tar, a Debian with PACKAGES, unless
# it exists, and prints its name.
make_base() {
	local name=$1 include=$2 base; shift 2
	base=build/deploy/$name-$(printf '%s\n' "$include" "$@" | md5sum | cut -c1-8).tar
	if [ ! -s "$base" ]; then
		mkdir -p build/deploy
		mmdebstrap --quiet --format=tar --variant=minbase --include="$include" "$@" bookworm "$base.new"
		mv "$base.new" "$base"
	fi
	echo "$base"
}

# unpack BASE ROOT SCRIPT unpacks a base into ROOT, which runs /test/SCRIPT at boot and then powers
# off.
unpack() {
	mkdir "$2"
	tar -xf "$1" -C "$2"
	printf '127.0.0.1 localhost\n::1 localhost\n' >"$2/etc/hosts" # as an installer would
	mkdir -p "$2/test" "$2/etc/systemd/system/default.target.wants"
	cp build/packages/*.deb "deploy/test/$3" "$2/test/"
	cat >"$2/etc/systemd/system/test.service" <<UNIT
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/bash /test/$3 >/test/log 2>&1; echo \$? >/test/status; systemctl poweroff'
[Install]
WantedBy=default.target
UNIT
	ln -sf /etc/systemd/system/test.service "$2/etc/systemd/system/default.target.wants/"
	# Debian's apt timers would change the inventory.
	ln -sf /dev/null "$2/etc/systemd/system/apt-daily.timer"
	ln -sf /dev/null "$2/etc/systemd/system/apt-daily-upgrade.timer"
}

# boot ROOT [OPTIONS…] boots ROOT and fails if its script fails.
boot() {
	local root=$1 status; shift
	timeout 600 systemd-nspawn --quiet --register=no --keep-unit --directory="$root" --private-network "$@" \
		--console=pipe --boot >"$root/test/console" 2>&1 </dev/null || true
	status=$(cat "$root/test/status" 2>/dev/null || echo "did not end")
	cat "$root/test/log" || true
	[ "$status" = 0 ] || { tail -20 "$root/test/console"; echo "test.sh: the test in the container failed ($status)" >&2; exit 1; }
}

# block FILE MARK prints the shell block that follows the line <!-- MARK -->.
block() { awk -v mark="<!-- $2 -->" '$0 == mark { found = 1; next } found && /^```/ { if (inside) exit; inside = 1; next } inside' "$1"; }
# general replaces versions, figures and durations.
general() { sed -E 's/^(Setting up [^ ]+) .*/\1/; s/[0-9]+(\.[0-9]+)?/N/g; s/ +/ /g'; }

# Start from a plain Debian whose apt cache holds the dependencies, since the container has no
# network.
echo "== docs/install.md on a plain Debian"
depends=$(for p in build/packages/holocast{,-relay,-capture}_*.deb; do dpkg-deb -f "$p" Depends Recommends; done |
	tr ',' '\n' |
	sed -E 's/^(Depends|Recommends): *//; s/ *\(.*//; s/ *\|.*//; s/^ *//' | sort -u | grep -v '^systemd$' | paste -sd' ')
download="apt-get install --yes --quiet --option APT::Install-Recommends=true --download-only $depends"
plain=$(make_base plain systemd,systemd-sysv,dbus --skip=cleanup/apt --customize-hook="chroot \"\$1\" $download >&2")
first=$work/first
unpack "$plain" "$first" first.sh
block docs/install.md install >"$first/test/commands"
boot "$first"
if [ "${1:-}" = --update ]; then
	awk -v file="$first/test/transcript" '{ print } $0 == "<!-- transcript -->" { found = 1; next }
		found && /^```/ { while ((getline line <file) > 0) print line; while ((getline line) > 0 && line !~ /^```/); print "```"; found = 0 }' \
		docs/install.md >"$work/install.md"
	cat "$work/install.md" >docs/install.md
	cp "$first/test/performer.png" docs/images/performer.png
fi
diff <(block docs/install.md transcript | general) <(general <"$first/test/transcript") ||
	{ echo "test.sh: the output differs from docs/install.md: deploy/test.sh --update" >&2; exit 1; }
rm -rf "$first"

echo "== install, use, upgrade, remove"
base=$(make_base debian systemd,systemd-sysv,dbus,udev,iproute2,procps,curl,ca-certificates,libopus0,libturbojpeg0,libx264-164,libzstd1)
root=$work/root
unpack "$base" "$root" inside.sh
mkdir "$root/test/next"
for package in build/packages/*.deb; do # the same, with a later version
	unpacked=$(mktemp -d)
	dpkg-deb -R "$package" "$unpacked"
	sed -i 's/^Version: .*/&+next/' "$unpacked/DEBIAN/control"
	dpkg-deb --root-owner-group -Znone -b "$unpacked" "$root/test/next/" >/dev/null
	rm -rf "$unpacked"
done
# Mount a separate bpf file system; without kernel support, skip the edge.
bpf=()
mkdir "$work/bpf"
if mount -t bpf -o mode=700 bpf "$work/bpf" 2>/dev/null; then
	touch "$root/test/bpf"
	bpf=(--bind="$work/bpf:/sys/fs/bpf" --capability=CAP_BPF,CAP_NET_ADMIN,CAP_NET_RAW,CAP_PERFMON
		--system-call-filter="bpf perf_event_open")
fi
boot "$root" "${bpf[@]}"
