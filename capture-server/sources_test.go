package main

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
)

// fakeKinects installs a fake libk4a with cameras FAKE0 and FAKE1. It writes a line to the file
// starts for each camera started.
func fakeKinects(t *testing.T) (library, starts string) {
	t.Helper()
	dir := t.TempDir()
	library, starts = filepath.Join(dir, "libk4a.so"), filepath.Join(dir, "starts")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library,
		filepath.Join("source", "k4a", "testdata", "fakek4a.c")).
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cal, err := synthetic.Calibration(0, camera.NFOVUnbinned, camera.Color720P)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_K4A_CALIBRATION", writeFile(t, filepath.Join(dir, "calibration.json"), cal.Raw))
	t.Setenv("FAKE_K4A_DEVICES", "2")
	t.Setenv("FAKE_K4A_STARTS", starts)
	return library, starts
}

func TestKinectsInStep(t *testing.T) {
	const close = "depth exposures overlap"
	for _, tt := range []struct {
		name    string
		sources []string
		format  string
		starts  string
		warning bool
	}{
		{
			"each on its own",
			[]string{"k4a:FAKE1", "k4a"},
			"",
			"1: sync 0, subordinate 0 us, depth 0 us, format 1\n0: sync 0, subordinate 0 us, depth 0 us, format 1\n",
			false,
		},
		{
			"master first, which starts last",
			[]string{"k4a:FAKE1,sync=master,depth-delay=-80us", "k4a:0,sync=subordinate,depth-delay=80us"},
			"mjpg",
			"0: sync 2, subordinate 0 us, depth 80 us, format 0\n1: sync 1, subordinate 0 us, depth -80 us, format 0\n",
			false,
		},
		{
			"delayed subordinate",
			[]string{"k4a,sync=subordinate,subordinate-delay=160us", "k4a:1,sync=master"},
			"BGRA",
			"0: sync 2, subordinate 160 us, depth 0 us, format 3\n1: sync 1, subordinate 0 us, depth 0 us, format 3\n",
			false,
		},
		{
			"exposures that coincide",
			[]string{"k4a,sync=subordinate,subordinate-delay=100us", "k4a:1,sync=master"},
			"",
			"0: sync 2, subordinate 100 us, depth 0 us, format 1\n1: sync 1, subordinate 0 us, depth 0 us, format 1\n",
			true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			library, starts := fakeKinects(t)
			cfg := defaultConfig()
			cfg.Sources, cfg.K4A.Library, cfg.K4A.Format = tt.sources, library, tt.format
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			cameras, _, err := openSources(t.Context(), &cfg, nil, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			closeCameras(cameras)
			got, err := os.ReadFile(starts)
			if err != nil || string(got) != tt.starts {
				t.Errorf("started %q, %v, want %q", got, err, tt.starts)
			}
			first := "FAKE1"
			if tt.sources[0] == "k4a" || strings.HasPrefix(tt.sources[0], "k4a,") {
				first = "FAKE0"
			}
			if len(cameras) != 2 || cameras[0].Source.Name() != first {
				t.Errorf("cameras %v, want %s first", cameras, first)
			}
			if warned := strings.Contains(log.String(), close); warned != tt.warning {
				t.Errorf("log %q", log.String())
			}
		})
	}
}

func TestParseSource(t *testing.T) {
	for s, want := range map[string]string{
		"k4a,sync=slave": `source "k4a,sync=slave": sync is "slave", want standalone, master or ` +
			`subordinate`,
		"k4a:1,depth-delay=160": `source "k4a:1,depth-delay=160": depth-delay is "160", want a duration ` +
			`such as 160us`,
		"k4a:1,delay=160us": `source "k4a:1,delay=160us": option "delay=160us" is unknown: k4a ` +
			`takes ,sync=master`,
		"livescan:a,b":                     "",
		"k4amkv:a,sync=master.mkv":         "",
		"k4a:000841194412,sync=standalone": "",
	} {
		_, err := parseSource(s)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", s, err, want)
		}
	}
}
