//go:build linux

package main

import (
	"os"
	"testing"

	"holocast/internal/service/servicetest"
)

// "edge check" names the line and the wrong setting, even inside lists.
func TestCheck(t *testing.T) {
	example, err := os.ReadFile("edge.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const start = "name: london\nrole: sender\n"
	const paths = "paths:\n  - {index: 1, interface: wan1, peer: 10.1.0.2}\n  - {index: 2, interface: wan2, peer: " +
		"10.2.0.2}\n"
	servicetest.Check(t, edgeBinary, map[string]string{
		" is valid":                  string(example),
		`:3: unknown setting "path"`: start + "path: []\n",
		`:2: role "relay" is not sender, receiver or both`: "name: london\nrole: relay\n" + paths,
		`:5: paths[1].index 1 appears twice`: start +
			"paths:\n  - {index: 1, interface: wan1, peer: 10.1.0.2}\n  - {index: 1, interface: wan2, peer: " +
			"10.2.0.2}\n",
		`:4: paths[0].peer: "london"`: start +
			"paths:\n  - {index: 1, interface: wan1, peer: london}\n",
		`:6: onExit "stay" is not detach or keep`: start + paths +
			"onExit: stay\nsender: {attach: [{interface: lan0}]}\n",
		`:6: drain: "3" has no unit; write 3s`: start + paths + "drain: 3\n",
	})
}
