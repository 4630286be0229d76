#!/usr/bin/env bash
# Tests the packages in build/packages: Debian's lintian on each, then a Debian system of their
# own, booted with systemd in a container without a network, in which test/inside.sh installs,
# uses, upgrades and removes them. Needs root. "make test-packages" calls it.
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

include=systemd,systemd-sysv,dbus,udev,iproute2,procps,curl,ca-certificates,libturbojpeg0,libx264-164,libzstd1
base=build/deploy/debian-$(md5sum <<<"$include" | cut -c1-8).tar
if [ ! -s "$base" ]; then
	mkdir -p build/deploy
	mmdebstrap --quiet --format=tar --variant=minbase \
		--include="$include" bookworm "$base.new"
	mv "$base.new" "$base"
fi

work=$(mktemp -d)
root=$work/root
mkdir "$root"
trap 'umount "$work/bpf" 2>/dev/null; rm -rf "$work"' EXIT
tar -xf "$base" -C "$root"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts" # which an installer writes
mkdir -p "$root/test/next"
cp build/packages/*.deb deploy/test/inside.sh "$root/test/"
for package in build/packages/*.deb; do # the same, as a later version
	unpacked=$(mktemp -d)
	dpkg-deb -R "$package" "$unpacked"
	sed -i 's/^Version: .*/&+next/' "$unpacked/DEBIAN/control"
	dpkg-deb --root-owner-group -Znone -b "$unpacked" "$root/test/next/" >/dev/null
	rm -rf "$unpacked"
done
cat >"$root/etc/systemd/system/test.service" <<'EOF'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/bash /test/inside.sh >/test/log 2>&1; echo $? >/test/status; systemctl poweroff'
[Install]
WantedBy=default.target
EOF
mkdir -p "$root/etc/systemd/system/default.target.wants"
ln -sf /etc/systemd/system/test.service "$root/etc/systemd/system/default.target.wants/"
# Timers of Debian's own would change the inventory.
ln -sf /dev/null "$root/etc/systemd/system/apt-daily.timer"
ln -sf /dev/null "$root/etc/systemd/system/apt-daily-upgrade.timer"

# A bpf file system of the container's own; where the kernel has none, the edge is not run.
bpf=()
mkdir "$work/bpf"
if mount -t bpf -o mode=700 bpf "$work/bpf" 2>/dev/null; then
	touch "$root/test/bpf"
	bpf=(--bind="$work/bpf:/sys/fs/bpf" --capability=CAP_BPF,CAP_NET_ADMIN,CAP_NET_RAW,CAP_PERFMON
		--system-call-filter="bpf perf_event_open")
fi
timeout 600 systemd-nspawn --quiet --register=no --keep-unit --directory="$root" --private-network "${bpf[@]}" \
	--console=pipe --boot >"$root/test/console" 2>&1 </dev/null || true
status=$(cat "$root/test/status" 2>/dev/null || echo "did not end")
cat "$root/test/log"
[ "$status" = 0 ] || { tail -20 "$root/test/console"; echo "test.sh: the test in the container failed ($status)" >&2; exit 1; }
