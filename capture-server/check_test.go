package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/service/servicetest"
)

// TestCheck checks that "capture-server check" names the faulty line and setting.
func TestCheck(t *testing.T) {
	example, err := os.ReadFile("capture-server.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Check(t, filepath.Join(bin, "capture-server"), map[string]string{
		" is valid":                    strings.Replace(string(example), "sources: []", "sources: [synthetic]", 1),
		`:2: unknown setting "source"`: "\nsource: [k4a]\n",
		`:2: relay "http://relay.example/demo" must begin`: "fps: 5\nrelay: http://relay.example/demo\n",
		`:2: fps is 300, want 0.1 to 120`:                  "sources: [synthetic]\nfps: 300\n",
		`:2: fps: "fast" is not a number`:                  "sources: [synthetic]\nfps: fast\n",
		`:1: deliveryTimeout: "2" has no unit; write 2s`:   "deliveryTimeout: 2\n",
		`:1: layout is "d", want a, b or c`:                "layout: d\nsources: [synthetic]\n",
		`:3: points.crop has 3 numbers, want 6`:            "sources: [synthetic]\npoints:\n  crop: [1, 2, 3]\n",
		`:2: client.certificate and client.key must be`:    "sources: [synthetic]\nclient: {key: a.key}\n",
		`:1: certificateHash: `:                            "certificateHash: abc\n",
	})
}

// TestExample checks that the example file matches the table of settings. With -update it writes
// the file.
func TestExample(t *testing.T) {
	cfg := defaultConfig()
	servicetest.Example(t, "capture-server.example.yaml", exampleHeader, &cfg)
}
