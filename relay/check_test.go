package main

import (
	"os"
	"testing"

	"holocast/internal/service/servicetest"
)

// TestCheck checks that "relay check" reports the line and the name of an invalid setting, in every
// section.
func TestCheck(t *testing.T) {
	example, err := os.ReadFile("relay.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Check(t, binary, map[string]string{
		" is valid":                   string(example),
		`:2: unknown setting "listn"`: "\nlistn: \":4443\"\n",
		`:1: listen: any peer could publish and subscribe at :4443`:        "listen: \":4443\"\n",
		`:1: listen: "foo" is not an address to listen on; want HOST:PORT`: "listen: foo\n",
		`:2: http: ":99999" is not an address to listen on; want HOST:PORT`: "listen: \"127.0.0.1:4443\"\nhttp: " +
			"\":99999\"\n",
		`:3: drain: "5" has no unit; write 5s`:       "listen: \"127.0.0.1:4443\"\n\ndrain: 5\n",
		`:2: cache.maxAge: "long" is not a duration`: "cache:\n  maxAge: long\n",
		`:3: cache.totalBytes must be at least cache.maxBytes`: "cache:\n  maxBytes: 2000\n  " +
			"totalBytes: 1000\n",
		`:1: maxSessions must be above 0`:                        "maxSessions: 0\n",
		`:1: tls.certificate and tls.key must be given together`: "tls: {certificate: fullchain.pem}\n",
		`:3: origins[1]: "watch.example.com" is not of the form`: "origins:\n  - https://a.example\n  " +
			"- watch.example.com\n",
		`:1: congestion: `: "congestion: reno\n",
		`:1: cluster.secret: the relays of a cluster share a secret: generate one (relay key`: "cluster: {name: studio}\n",
		`:1: cluster.name is needed for the other settings of cluster`:                        "cluster: {region: eu}\n",
		`:2: cluster.join[0]: "10.0.0.1" is not of the form HOST:PORT`: "cluster: {name: studio, secret: cluster.key,\n" +
			"  join: [10.0.0.1]}\n",
		`:2: cluster.advertise: "relay1:4443" is not of the form moqt://HOST:PORT`: "cluster: {name: studio, " +
			"secret: cluster.key,\n  advertise: relay1:4443}\n",
		`:2: log.level "loud": want debug`:                   "log:\n  level: loud\n",
		`:2: auth.anonymous.subscribe: "demo" is not a list`: "auth:\n  anonymous: {subscribe: demo}\n",
	})
}

func TestExample(t *testing.T) {
	cfg := defaultConfig()
	servicetest.Example(t, "relay.example.yaml", exampleHeader, &cfg)
}
