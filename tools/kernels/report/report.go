// Package report defines the lines that a guest writes to its second serial port. Each line is a
// JSON object.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// SkipVariable is the environment variable that lists the tests to skip, separated by |.
const SkipVariable = "holocast_skip"

// ClockTest is the relay's test that sets the machine's clock. It runs only if ClockVariable is
// set.
const (
	ClockTest     = "TestWallClockStep"
	ClockVariable = "HOLOCAST_TEST_SET_CLOCK"
)

// Line is one result. Exactly one of its pointers is set.
type Line struct {
	Kernel  *Kernel  `json:"kernel,omitempty"`
	Program *Program `json:"program,omitempty"`
	Test    *Test    `json:"test,omitempty"`
	End     *End     `json:"end,omitempty"`
}

// Kernel identifies the guest's kernel.
type Kernel struct {
	Release string `json:"release"` // as printed by uname
}

// Program is the result of loading and attaching an eBPF program.
type Program struct {
	Name    string `json:"name"`
	Package string `json:"package"`
	Attach  string `json:"attach,omitempty"` // hook: TCX, clsact, XDP or reuseport; "" if not attached
	Error   string `json:"error,omitempty"`  // reason if not attached
	TooOld  bool   `json:"too_old,omitempty"`
}

// Test is the result of a test.
type Test struct {
	Package string `json:"package"`
	Name    string `json:"name"` // including subtests
	Result  string `json:"result"`
}

// End marks the regular end of the report.
type End struct {
	Failed []string `json:"failed,omitempty"` // failed steps
}

// Write writes a line.
func (l Line) Write(w io.Writer) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Read reads all lines. A truncated last line is an error.
func Read(r io.Reader) (lines []Line, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l Line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return lines, fmt.Errorf("line %q: %w", s.Text(), err)
		}
		lines = append(lines, l)
	}
	return lines, s.Err()
}
