package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holocast/tools/kernels/report"
)

// TestArchive checks that cpio extracts the archived files.
func TestArchive(t *testing.T) {
	files := map[string]string{
		"init":           "#!",
		"modules/a.ko":   "x",
		"modules/order":  "a.ko\n",
		"tests/p/q/test": strings.Repeat("y", 4097),
		"empty":          "",
	}
	var b bytes.Buffer
	a := archive{w: &b}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := a.file(name, 0o755, []byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	if b.Len()%4 != 0 || strings.Count(b.String(), "modules\x00") != 1 {
		t.Errorf("%d bytes, the directory modules %d times", b.Len(), strings.Count(b.String(), "modules\x00"))
	}
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	dir := t.TempDir()
	cmd := exec.Command(cpio, "--extract", "--quiet")
	cmd.Dir, cmd.Stdin = dir, &b
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, want %d; %v", name, len(got), len(want), err)
		}
	}
}

func TestEntry(t *testing.T) {
	var b bytes.Buffer
	a := archive{w: &b}
	if err := a.file("f", 0o644, []byte("12345")); err != nil {
		t.Fatal(err)
	}
	want := "070701" + "00000001" + "000081A4" + "00000000" + "00000000" + "00000001" + "00000000" + "00000005" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000002" + "00000000" + "f\x00" + "12345\x00\x00\x00"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestDependency(t *testing.T) {
	for _, test := range []struct{ out, want string }{
		{"linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n", "linux-image-6.1.0-56-cloud-amd64"},
		{
			"linux-image-virtual\n  Depends: linux-image-5.15.0-204-generic\n  Depends: linux-headers-virtual\n",
			"linux-image-5.15.0-204-generic",
		},
		{"linux-image-virtual\n  Depends: linux-base\n", ""},
	} {
		if got, err := dependency(test.out); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q: %q, %v", test.out, got, err)
		}
	}
}

func TestChoose(t *testing.T) {
	if k, err := choose(nil); err != nil || len(k) != len(kernels) {
		t.Errorf("%v, %v", k, err)
	}
	if k, err := choose([]string{"6.1"}); err != nil || len(k) != 1 || k[0].version != "6.1" {
		t.Errorf("%v, %v", k, err)
	}
	if _, err := choose([]string{"2.4"}); err == nil || !strings.Contains(err.Error(), "5.10") {
		t.Errorf("%v", err)
	}
	if !slices.IsSortedFunc(kernels, func(a, b kernel) int { return compare(a.version, b.version) }) {
		t.Error("kernels are not sorted by version")
	}
}

func TestJudge(t *testing.T) {
	k := kernel{version: "5.10"}
	fine := func() []report.Line {
		lines := []report.Line{{Kernel: &report.Kernel{Release: "5.10.0-46"}}}
		for _, p := range proofs {
			lines = append(lines, report.Line{Program: &report.Program{Name: p.program, Attach: "here"}},
				report.Line{Test: &report.Test{Name: p.test, Result: "PASS"}})
		}
		return append(
			lines, report.Line{Test: &report.Test{Name: report.ClockTest, Result: "PASS"}},
			report.Line{End: &report.End{}},
		)
	}
	program := func(lines []report.Line) *report.Program { return lines[1].Program }
	tests := []struct {
		name    string
		change  func([]report.Line) []report.Line
		result  string // for the first program
		problem string // "" = none
	}{
		{"all pass", func(l []report.Line) []report.Line { return l }, "works", ""},
		{"too old", func(l []report.Line) []report.Line {
			*program(l) = report.Program{Name: "duplicate", Error: "kernel too old: x needs Linux 5.12", TooOld: true}
			return l
		}, "kernel too old: x needs Linux 5.12", ""},
		{"not too old", func(l []report.Line) []report.Line {
			*program(l) = report.Program{Name: "duplicate", Error: "kernel too old: x needs Linux 5.8", TooOld: true}
			return l
		}, "fails: kernel too old: x needs Linux 5.8", "5.8"},
		{"refused", func(l []report.Line) []report.Line {
			*program(l) = report.Program{Name: "duplicate", Error: "permission denied"}
			return l
		}, "fails: permission denied", "permission denied"},
		{"a test fails", func(l []report.Line) []report.Line {
			return append(l, report.Line{Test: &report.Test{Package: "p", Name: "TestX", Result: "FAIL"}})
		}, "works", "TestX of p fails"},
		{"the proof is skipped", func(l []report.Line) []report.Line {
			l[2].Test.Result = "SKIP"
			return slices.Delete(l, 8, 9) // same name as for eliminate
		}, "TestPairExactlyOnce does not pass", "TestPairExactlyOnce did not pass"},
		{"the clock is not set", func(l []report.Line) []report.Line {
			l[len(l)-2].Test.Result = "SKIP"
			return l
		}, "works", "TestWallClockStep did not pass"},
		{"no end", func(l []report.Line) []report.Line { return l[:len(l)-1] }, "works", "did not shut down"},
		{"another kernel", func(l []report.Line) []report.Line {
			l[0].Kernel.Release = "5.100.1"
			return l
		}, "works", "5.100.1"},
		{"nothing", func([]report.Line) []report.Line { return nil }, "not tried", "not tried"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rows, problems := judge(k, test.change(fine()))
			if len(rows) != len(proofs) || rows[0].result != test.result {
				t.Errorf("%+v", rows)
			}
			if all := strings.Join(problems, "; "); (test.problem == "") != (all == "") || !strings.Contains(all, test.problem) {
				t.Errorf("problems: %q", all)
			}
			if got := strings.Count(table(rows), "\n"); got != len(rows)+2 {
				t.Errorf("the table has %d lines", got)
			}
		})
	}
}

// TestReport checks that the host can read the lines that guests write.
func TestReport(t *testing.T) {
	lines := []report.Line{
		{Kernel: &report.Kernel{Release: "6.1"}},
		{Program: &report.Program{Name: "p", Package: "q", Error: "a\nb", TooOld: true}},
		{Test: &report.Test{Package: "q", Name: "T/s", Result: "PASS"}},
		{End: &report.End{Failed: []string{"x"}}},
	}
	var b bytes.Buffer
	for _, l := range lines {
		if err := l.Write(&b); err != nil {
			t.Fatal(err)
		}
	}
	got, err := report.Read(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(got, lines) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := report.Read(bytes.NewReader(b.Bytes()[:b.Len()-3])); err == nil {
		t.Error("truncated line accepted")
	}
}
