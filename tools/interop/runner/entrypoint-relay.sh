#!/bin/sh
# Runs the relay under the runner's conventions: MOQT_PORT, and the certificate in /certs.
set -eu
case ${MOQT_ROLE:-relay} in
relay) ;;
*)
	echo "role $MOQT_ROLE is not supported by this image" >&2
	exit 127
	;;
esac
# --insecure: the test clients have no tokens. --http "": no web viewer.
exec relay --insecure --listen ":${MOQT_PORT:-4443}" --http "" \
	--tls-certificate "${MOQT_CERT:-/certs/cert.pem}" --tls-key "${MOQT_KEY:-/certs/priv.key}" "$@"
