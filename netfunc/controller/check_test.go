//go:build linux

package main

import (
	"testing"

	"holocast/internal/service/servicetest"
)

// "controller check" names the line and the wrong setting.
func TestCheck(t *testing.T) {
	const key = "signal:\n  key: signal.key\n"
	servicetest.Check(t, binary, map[string]string{
		" is valid":                                key + "mode: redirect\ntrigger: {count: 5}\n",
		`:3: unknown setting "rate"`:               key + "rate: 5\n",
		`:4: http.listen :4793 is open to others`:  key + "http:\n  listen: \":4793\"\n",
		`:3: mode "both" is not auto, duplicate`:   key + "mode: both\n",
		`:4: trigger.rule "mean" is not lateness`:  key + "trigger:\n  rule: mean\n",
		`:4: trigger.sensitivity must be above 0`:  key + "trigger:\n  sensitivity: 0\n",
		`:4: trigger.interval: "150" has no unit`:  key + "trigger:\n  interval: 150\n",
		`:5: trigger.merge must be at least 0`:     key + "trigger:\n  interval: 100ms\n  merge: 1s\n",
		`:3: end must be above trigger.interval`:   key + "end: 1ms\n",
		`:1: signal.key is missing`:                "signal: {resend: 20ms}\n",
		`:4: auth.edges.london: the token file is`: key + "auth: {token: t,\n  edges: {london: \"\"}}\n",
		`:3: maxFlows 5000 is more than 1024`:      key + "maxFlows: 5000\n",
		`:2: signal.from: "here"`:                  "signal:\n  from: here\n",
	})
}
