#!/bin/bash
# Runs in the Debian booted by test.sh: installs, uses, upgrades and removes the packages in
# /test/*.deb. /test/next has the same packages with a later version.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cd /test

step() { printf '\n== %s\n' "$*"; }
fail() { echo "FAIL: $*" >&2; exit 1; }
install() { apt-get install -y -q --no-install-recommends "$@" >/test/apt.log 2>&1 || { cat /test/apt.log; fail "install $*"; }; }
# Lists the machine's files, users and groups, without volatile files and dpkg's records.
inventory() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /test \
		-o -path '/var/log' -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/systemd \
		-o -path '/var/tmp' \) -prune -o -print | sort
	sed 's/^/passwd /' /etc/passwd | sort
	sed 's/^/group /' /etc/group | sort
}
# Plays for three seconds; fails without frames.
play() {
	timeout 120 holocast play moqt://localhost:4443/demo --wait --duration 3s --json | tail -1 >/test/play.json ||
		fail "nothing plays"
	frames=$(sed -n 's/.*"frames":\([0-9]*\).*/\1/p' /test/play.json)
	[ "${frames:-0}" -gt 0 ] || { cat /test/play.json; fail "no frame was shown"; }
	echo "frames shown in 3 s: $frames"
}
# has PATTERN URL succeeds if a line of the page matches.
has() { curl -fsS "$2" >/test/page && grep -q "$1" /test/page; }
# Prints the number of captures that the publisher dropped.
dropped() {
	curl -fsS http://localhost:9190/metrics >/test/page &&
		awk '/^holocast_capture_frames_total.*"dropped"/ { n += $2 } END { print n + 0 }' /test/page
}
# figure NAME FILE prints an integer from the last line of a JSON file.
figure() { tail -1 "$2" | grep -o "\"$1\":[0-9]*" | sed 's/.*://; q'; }
logs() { journalctl --no-pager -u "$1" >/test/journal && grep -q "$2" /test/journal; }
state() {
	[ "$(systemctl is-active "$1")" = "$2" ] || {
		systemctl status --no-pager "$1" || true
		journalctl --no-pager -n 15 -u "$1" || true
		fail "$1 is not $2"
	}
}
# Checks that the exposure of a running unit is at most 2.9 ("OK").
exposure() {
	local line; line=$(systemd-analyze security --no-pager "$1" | tail -1)
	echo "$line"
	grep -qE ' (0|1|2)\.[0-9] ' <<<"$line" || fail "$1 is too exposed"
}

inventory >/test/before

step "A relay service and a performer"
install ./holocast-relay_*.deb ./holocast-capture_*.deb ./holocast_*.deb
sed -i "s/^fps: 30/fps: 5/" /etc/holocast/capture-server.yaml # renders faster
systemctl start holocast-capture
state holocast-relay active
state holocast-capture active
play
curl -fsS http://localhost:4443/healthz
has '<title>' http://localhost:4443/ || fail "the web viewer is not served"
has '^holocast_relay_sent_bytes_total [1-9]' http://localhost:4443/metrics || fail "the relay counts nothing"

step "Users, sandbox, manual"
user=$(ps -o user= -p "$(systemctl show -P MainPID holocast-relay)" || true)
[ "$(echo "$user" | cut -c1-8)" = holocast ] || fail "the relay runs as $user"
exposure holocast-relay.service
exposure holocast-capture.service
for page in relay relay-check capture-server capture-server-list holocast holocast-play; do
	[ -s "/usr/share/man/man1/$page.1.gz" ] || fail "manual page $page is missing"
done
bash -n /usr/share/bash-completion/completions/relay

step "Reload a changed configuration"
relay check /etc/holocast/relay.yaml
sed -i 's/^  level: info.*/  level: debug/; s/^maxSessions: 4096/maxSessions: 4000/; s/^maxConnects: 100/maxConnects: 90/' /etc/holocast/relay.yaml
pid=$(systemctl show -P MainPID holocast-relay)
systemctl reload holocast-relay
for _ in $(seq 50); do logs holocast-relay 'take effect after a restart.*settings=maxConnects$' && break; sleep 0.1; done
logs holocast-relay 'take effect after a restart.*settings=maxConnects$' || fail "SIGHUP did not reload"
[ "$pid" = "$(systemctl show -P MainPID holocast-relay)" ] || fail "a reload restarted the relay"
sed -i 's/^drain: 5s/drain: 5/' /etc/holocast/relay.yaml
if relay check /etc/holocast/relay.yaml 2>/test/check; then fail "relay check accepted an invalid file"; fi
cat /test/check
grep -q 'relay.yaml:[0-9]*: drain: "5" has no unit; write 5s' /test/check || fail "check does not name the fault"
sed -i 's/^drain: 5$/drain: 5s/' /etc/holocast/relay.yaml

step "Upgrade the process without ending a session"
if [ -e /test/bpf ]; then
	mkdir -p /etc/systemd/system/holocast-relay.service.d
	printf '[Service]\nAmbientCapabilities=CAP_BPF\nCapabilityBoundingSet=CAP_BPF\nSystemCallFilter=bpf\n' \
		>/etc/systemd/system/holocast-relay.service.d/upgrade.conf # as in docs/run-a-relay.md
	systemctl daemon-reload
	# Tolerate a slow machine: disable the delivery timeout, and count frames skipped by camera or
	# player separately.
	sed -i 's/^deliveryTimeout: .*/deliveryTimeout: 0s/; s/^http: .*/http: "127.0.0.1:9190"/' /etc/holocast/capture-server.yaml
	systemctl restart holocast-relay holocast-capture
	state holocast-relay active
	state holocast-capture active
	play # the publisher has reconnected
	old=$(systemctl show -P MainPID holocast-relay)
	before=$(dropped)
	timeout 120 holocast play moqt://localhost:4443/demo --wait --duration 15s --json >/test/upgraded.json 2>/dev/null &
	player=$!
	for _ in $(seq 300); do has '^holocast_relay_viewers [1-9]' http://localhost:4443/metrics && break; sleep 0.1; done
	relay upgrade --config /etc/holocast/relay.yaml
	state holocast-relay active
	for _ in $(seq 100); do new=$(systemctl show -P MainPID holocast-relay); [ "$new" != "$old" ] && break; sleep 0.1; done
	[ "$new" != "$old" ] || fail "systemd did not follow the upgrade"
	kill -0 "$old" || fail "the old process ended with a session open"
	play # through the new process, from the old one's publisher
	wait "$player" || fail "the session did not outlive the upgrade"
	lost=$(figure frames_lost /test/upgraded.json) skipped=$(figure frames_skipped /test/upgraded.json)
	dropped=$(($(dropped) - before))
	echo "$(figure frames /test/upgraded.json) frames, $lost lost ($skipped not decoded, up to $dropped not encoded in time)"
	[ $((lost - skipped)) -le "$dropped" ] || fail "the upgrade lost frames"
	systemctl restart holocast-relay # ends both
	state holocast-relay active
	! kill -0 "$old" 2>/dev/null || fail "a restart left the old process"
	rm -r /etc/systemd/system/holocast-relay.service.d
	systemctl daemon-reload
	systemctl restart holocast-relay
	pid=$(systemctl show -P MainPID holocast-relay)
else
	echo "not run: this machine does not let a container load eBPF programs"
fi

step "Package upgrade restarts services and keeps changed settings"
install ./next/holocast-relay_*.deb ./next/holocast-capture_*.deb ./next/holocast_*.deb
state holocast-relay active
state holocast-capture active
[ "$pid" != "$(systemctl show -P MainPID holocast-relay)" ] || fail "the upgrade did not restart the relay"
grep -q '^maxSessions: 4000' /etc/holocast/relay.yaml || fail "the upgrade lost a changed setting"
play

step "The pair's controller and an edge"
install ./holocast-netfunc_*.deb
[ "$(stat -c '%a %G' /etc/holocast/signal.key)" = "640 holocast-controller" ] ||
	fail "signal.key: $(stat -c '%a %U %G' /etc/holocast/signal.key)"
controller check /etc/holocast/controller.yaml
edge check /etc/holocast/edge.yaml
systemctl start holocast-controller
state holocast-controller active
controller status
exposure holocast-controller.service
for n in 1 2; do
	ip link add "wan$n" type veth peer name "far$n"
	ip addr add "10.$n.0.1/24" dev "wan$n"
	ip link set "wan$n" up && ip link set "far$n" up
done
ip link add lan0 type veth peer name host0 && ip link set lan0 up && ip link set host0 up
cat >/etc/holocast/edge.yaml <<'EOF'
name: london
role: sender
paths:
  - {index: 1, interface: wan1, peer: 10.1.0.2}
  - {index: 2, interface: wan2, peer: 10.2.0.2}
sender:
  attach: [{interface: lan0}]
  towards: [10.9.0.0/24]
signal: {key: /etc/holocast/signal.key, interfaces: [lan0], address: 10.1.0.1}
controller: {url: "http://127.0.0.1:4793"}
EOF
if [ -e /test/bpf ]; then
	systemctl start holocast-edge || state holocast-edge active
	state holocast-edge active
	edge status
	for _ in $(seq 50); do controller status | grep london >/dev/null && break; sleep 0.1; done
	controller status
	exposure holocast-edge.service
	systemctl reload holocast-edge
	sleep 1
	state holocast-edge active
	systemctl stop holocast-edge
	[ ! -e /sys/fs/bpf/holocast ] || fail "the edge left $(find /sys/fs/bpf/holocast)"
else
	echo "not run: this machine does not let a container load eBPF programs"
fi

step "Removal keeps changed files; purge removes all"
apt-get remove -y -q holocast-relay >/test/apt.log 2>&1 || { cat /test/apt.log; fail remove; }
[ -e /etc/holocast/relay.yaml ] || fail "removing took the configuration"
[ ! -e /usr/bin/relay ] || fail "removing left the program"
state holocast-relay inactive
apt-get purge -y -q holocast-relay holocast-capture holocast holocast-netfunc >/test/apt.log 2>&1 || {
	cat /test/apt.log
	fail purge
}
inventory >/test/after
diff /test/before /test/after || fail "purging left something"
echo "nothing left"
