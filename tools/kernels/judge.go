package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"holocast/tools/kernels/report"
)

// proofs names, for each program, the test that shows that the program handles packets correctly.
var proofs = []struct{ program, test string }{
	{"duplicate", "TestPairExactlyOnce"},
	{"duplicate_out", "TestPairExactlyOnce/clsact_egress"},
	{"monitor", "TestMonitor"},
	{"eliminate", "TestPairExactlyOnce"},
	{"publisher_ingress, viewer_ingress, viewer_egress", "TestForward"},
	{"steer", "TestSteering"},
}

// row is the result of one program on one kernel.
type row struct{ kernel, program, attach, result string }

var since = regexp.MustCompile(`needs Linux ([0-9.]+)`)

// judge turns a guest's report into table rows and a list of problems.
func judge(k kernel, lines []report.Line) (rows []row, problems []string) {
	name := k.version
	found := make(map[string]report.Program)
	results := make(map[string]string)
	ended := false
	for _, l := range lines {
		switch {
		case l.Kernel != nil:
			name = l.Kernel.Release
			if !strings.HasPrefix(name, k.version+".") {
				problems = append(problems, fmt.Sprintf("the guest runs Linux %s", name))
			}
		case l.Program != nil:
			found[l.Program.Name] = *l.Program
		case l.Test != nil:
			if results[l.Test.Name] == "" || l.Test.Result == "FAIL" {
				results[l.Test.Name] = l.Test.Result
			}
			if l.Test.Result == "FAIL" {
				problems = append(problems, fmt.Sprintf("%s of %s fails", l.Test.Name, l.Test.Package))
			}
		case l.End != nil:
			ended = true
			problems = append(problems, l.End.Failed...)
		}
	}
	if results[report.ClockTest] != "PASS" {
		problems = append(problems, report.ClockTest+" did not pass")
	}
	if !ended {
		problems = append(problems, "the guest did not shut down normally")
	}
	for _, p := range proofs {
		r := row{kernel: name, program: p.program}
		at, ok := found[p.program]
		switch {
		case !ok:
			r.result = "not tried"
			problems = append(problems, p.program+" was not tried")
		case at.TooOld && justified(at.Error, k.version):
			r.result = at.Error
		case at.Error != "":
			r.result = "fails: " + at.Error
			problems = append(problems, p.program+": "+at.Error)
		case results[p.test] != "PASS":
			r.attach, r.result = at.Attach, p.test+" does not pass"
			problems = append(problems, fmt.Sprintf("%s: %s did not pass", p.program, p.test))
		default:
			r.attach, r.result = at.Attach, "works"
		}
		rows = append(rows, r)
	}
	return rows, problems
}

// justified reports whether an error names a kernel feature newer than the given version of Linux.
func justified(text, version string) bool {
	m := since.FindStringSubmatch(text)
	return m != nil && compare(version, m[1]) < 0
}

// compare compares versions such as 5.15 and 6.1.
func compare(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		x, errA := strconv.Atoi(a)
		y, errB := strconv.Atoi(b)
		if errA != nil || errB != nil {
			return strings.Compare(a, b)
		}
		return cmp.Compare(x, y)
	})
}

// table formats rows as Markdown.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| kernel | program | attached by | |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(
			&b, "| %s | %s | %s | %s |\n", r.kernel, r.program, r.attach,
			strings.ReplaceAll(strings.ReplaceAll(r.result, "\n", " "), "|", "\\|"),
		)
	}
	return b.String()
}
