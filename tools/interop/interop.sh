#!/usr/bin/env bash
# Tests interoperability with other implementations of MOQT, built from crates.io: moqtap-client with
# our relay in drafts 18, 20 and 22, and in draft-18 moq-test-client with our relay, our publisher and
# player through moq-relay-ietf, and each relay upstream of the other; and the same with moq-dev's
# moq-relay in drafts 18, 20 and 22. Prints TAP; exits 1 on failure.
#
#   INTEROP_RELAY_ARGS   extra arguments for our relay, such as --fastpath=chacha20
set -euo pipefail
cd "$(dirname "$0")/../.."

client=moq-test-client@0.2.0
relay=moq-relay-ietf@0.8.0
dev=moq-relay@0.17.8
scenarios=18 # in moq-test-client 0.2.0
port=${INTEROP_PORT:-$((20000 + RANDOM % 10000))} # the next three ports are used too
peers=build/peers

. tools/interop/tap.sh

for crate in "$client" "$relay" "$dev"; do
	[ -x "$peers/bin/${crate%@*}" ] && continue
	command -v cargo >/dev/null || {
		echo "Bail out! cargo is needed to build $crate: https://rustup.rs" >&2
		exit 1
	}
	echo "# building $crate"
	features=()
	[ "$crate" = "$dev" ] && features=(--no-default-features --features noq)
	cargo install --locked --quiet --root "$peers" "${features[@]}" "$crate" >&2
done
# A publisher and a viewer built on the moqtap-client library.
moqtap=build/moqtap/debug/holocast-moqtap
cargo build --locked --quiet --manifest-path tools/interop/moqtap/Cargo.toml --target-dir build/moqtap >&2
mkdir -p bin
go build -o bin/relay ./relay
go build -o "$work/roundtrip" ./tools/interop

# 1. Their client with our relay.
read -ra more <<<"${INTEROP_RELAY_ARGS:-}"
start relay bin/relay --listen "127.0.0.1:$port" --http "127.0.0.1:$port" --log-level warn "${more[@]}"
for _ in $(seq 100); do
	curl -fs "http://127.0.0.1:$port/healthz" >/dev/null && break
	sleep 0.1
done
# Stop if another run already uses this port. The scenarios share a namespace with a single owner,
# and that run's relay would refuse our publisher with UNINTERESTED ("closed, code=32").
kill -0 "${pids[0]}" 2>/dev/null || {
	echo "Bail out! our relay did not start; is port $port taken?"
	diagnose "$work/relay.log"
	exit 1
}
for scheme in moqt https; do
	out=$work/$scheme.tap
	timeout 300 "$peers/bin/moq-test-client" --relay "$scheme://127.0.0.1:$port" --tls-disable-verify >"$out" 2>&1 || true
	n=0
	while read -r line; do
		case $line in
		"not ok "*) report "not ok" "$scheme: $(sed 's/^not ok [0-9]* *-* *//' <<<"$line")" ;;
		"ok "*) report ok "$scheme: $(sed 's/^ok [0-9]* *-* *//' <<<"$line")" && n=$((n + 1)) ;;
		esac
	done <"$out"
	verdict=ok
	[ "$n" -eq "$scenarios" ] || verdict="not ok"
	report "$verdict" "$scheme: moq-test-client passes $n of $scenarios against our relay"
	[ "$verdict" = ok ] || {
		diagnose "$out" 60
		diagnose "$work/relay.log" 60
	}
done

# The relay has cached the objects that the publisher sent, so it forwards only one of two FETCHes.
for draft in 18 20 22; do
	if timeout 60 "$moqtap" "127.0.0.1:$port" "$draft" >"$work/moqtap.log" 2>&1 &&
		grep -q ' 1 of 2 ' "$work/moqtap.log"; then
		report ok "moqt-$draft: moqtap-client against our relay: $(tail -n 1 "$work/moqtap.log")"
	else
		report "not ok" "moqt-$draft: moqtap-client against our relay"
		diagnose "$work/moqtap.log"
		diagnose "$work/relay.log"
	fi
done

# Both codecs give every message the same bytes.
if "$work/roundtrip" --vectors | "$moqtap" vectors >"$work/vectors.log" 2>&1; then
	report ok "moqtap-codec: $(tail -n 1 "$work/vectors.log")"
else
	report "not ok" "moqtap-codec"
	diagnose "$work/vectors.log"
fi

# 2. Our publisher and player through their relay, and through ours.
mkdir "$work/tls" # moq-relay rereads its certificate when any file in its folder changes
cert=$work/tls/cert.pem key=$work/tls/key.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 10 -subj /CN=localhost \
	-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$key" -out "$cert" 2>/dev/null
theirs=$((port + 1))
hash=$(openssl x509 -in "$cert" -noout -fingerprint -sha256 | cut -d= -f2)
start moq-relay-ietf "$peers/bin/moq-relay-ietf" --bind "127.0.0.1:$theirs" \
	--tls-cert "$cert" --tls-key "$key" --coordinator-file "$work/coordinator.json"
await moq-relay-ietf listening
ours=$(curl -fs "http://127.0.0.1:$port/certificate.sha256")
# roundtrip NAME URL HASH [DRAFT]
roundtrip() {
	if timeout 60 "$work/roundtrip" --draft "${4-}" --certificate-hash "$3" "$2" >"$work/roundtrip.log" 2>&1; then
		report ok "${2%%:*}${4+-$4}: our publisher and player through $1: $(tail -n 1 "$work/roundtrip.log")"
	else
		report "not ok" "${2%%:*}${4+-$4}: our publisher and player through $1"
		diagnose "$work/roundtrip.log"
		diagnose "$work/$1.log"
	fi
}
for draft in 18 20 22; do
	roundtrip relay "moqt://127.0.0.1:$port/interop-$draft" "$ours" "$draft"
done
roundtrip relay "https://127.0.0.1:$port/interop" "$ours"
# Skip WebTransport: webtransport-go's client needs RESET_STREAM_AT, which moq-relay-ietf's QUIC
# library, quinn, lacks.
roundtrip moq-relay-ietf "moqt://127.0.0.1:$theirs/interop" "$hash"

# 3. The released programs through their relay.
go build -o bin/ ./capture-server ./tools/holocast
url=moqt://127.0.0.1:$theirs/programs
start capture-server bin/capture-server "$url" --certificate-hash "$hash" --source synthetic --fps 10
if timeout 60 bin/holocast play "$url" --certificate-hash "$hash" --wait --duration 5s --json >"$work/play.log" 2>&1 &&
	tail -n 1 "$work/play.log" | grep -Eq '"frames": ?[1-9]'; then
	report ok "moqt: capture-server and holocast play through moq-relay-ietf: $(tail -n 1 "$work/play.log")"
else
	report "not ok" "moqt: capture-server and holocast play through moq-relay-ietf"
	diagnose "$work/play.log"
	diagnose "$work/capture-server.log"
fi

# 4. Our relay downstream of theirs; ours dials. Theirs can also dial ours and announce there
# (--announce, or for a coordinator's namespace_subscribers), but it answers no SUBSCRIBE on such
# sessions (moq-relay-ietf 0.8.0, src/consumer.rs:358 and 415).
if timeout 60 "$work/roundtrip" --behind --certificate-hash "$hash" "moqt://127.0.0.1:$theirs/upstream" \
	>"$work/roundtrip.log" 2>&1; then
	report ok "moqt: our publisher at moq-relay-ietf, our player at our relay behind it: $(tail -n 1 "$work/roundtrip.log")"
else
	report "not ok" "moqt: our publisher at moq-relay-ietf, our player at our relay behind it"
	diagnose "$work/roundtrip.log"
	diagnose "$work/moq-relay-ietf.log"
fi

# 5. Their relay downstream of ours: its coordinator maps scope /behind to our relay.
hex() { printf %s "$1" | od -An -v -tx1 | tr -d ' \n'; }
behind=$((port + 2))
cat >"$work/behind.json" <<JSON
{"namespaces": {"/behind": {"$(hex holocast).$(hex behind)": "moqt://127.0.0.1:$port/"}},
"tracks": {}, "namespace_subscribers": {}}
JSON
start behind "$peers/bin/moq-relay-ietf" --bind "127.0.0.1:$behind" \
	--tls-cert "$cert" --tls-key "$key" --tls-disable-verify --coordinator-file "$work/behind.json"
await behind listening
if timeout 60 "$work/roundtrip" --certificate-hash "$ours" --play "moqt://127.0.0.1:$behind/behind" \
	--play-certificate-hash "$hash" "moqt://127.0.0.1:$port/behind" >"$work/roundtrip.log" 2>&1; then
	report ok "moqt: our publisher at our relay, our player at moq-relay-ietf behind it: $(tail -n 1 "$work/roundtrip.log")"
else
	report "not ok" "moqt: our publisher at our relay, our player at moq-relay-ietf behind it"
	diagnose "$work/roundtrip.log"
	diagnose "$work/behind.log"
fi

# 6. moq-dev's relay, which dials ours as a neighbor: each announces its namespaces to the other. It
# takes a session's path as a prefix of namespaces, and drops subgroups other than 0
# (moq-net 0.3.16, src/ietf/subscriber.rs:2215).
neighbor=$((port + 3))
start moq-relay "$peers/bin/moq-relay" --listen "127.0.0.1:$neighbor" --listen-tls-cert "$cert" \
	--listen-tls-key "$key" --auth-public '**' --cluster-connect "moqt://127.0.0.1:$port" --connect-tls-insecure
await moq-relay 'connection.*connected ' # to our relay
# through DESCRIPTION ARGUMENT...
through() {
	local what=$1
	shift
	if timeout 60 "$work/roundtrip" --no-path --descriptions 1 "$@" >"$work/roundtrip.log" 2>&1; then
		report ok "$what: $(tail -n 1 "$work/roundtrip.log")"
	else
		report "not ok" "$what"
		diagnose "$work/roundtrip.log"
		diagnose "$work/moq-relay.log"
	fi
}
for draft in 18 20 22; do
	through "moqt-$draft: our publisher and player through moq-relay" --draft "$draft" --certificate-hash "$hash" \
		"moqt://127.0.0.1:$neighbor/dev-$draft"
done
through "moqt: our publisher at moq-relay, our player at our relay behind it" --behind --certificate-hash "$hash" \
	"moqt://127.0.0.1:$neighbor/dev-behind"
through "moqt: our publisher at moq-relay, which publishes at our relay, our player there" --certificate-hash "$hash" \
	--play "moqt://127.0.0.1:$port/dev-into" --play-certificate-hash "$ours" "moqt://127.0.0.1:$neighbor/dev-into"
through "moqt: our publisher at our relay, our player at moq-relay behind it" --certificate-hash "$ours" \
	--play "moqt://127.0.0.1:$neighbor/dev-up" --play-certificate-hash "$hash" "moqt://127.0.0.1:$port/dev-up"

echo "1..$tests"
if [ "$failed" -gt 0 ]; then
	echo "# $failed of $tests failed"
	exit 1
fi
echo "# all of $tests passed"
