// Package report is what a guest writes to its second serial port: one JSON object a line,
// read by the program that started it.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// SkipVariable is the guest's environment variable that names tests to be left out, by |.
const SkipVariable = "holocast_skip"

// ClockTest is the relay's test that sets the machine's clock. ClockVariable is the environment
// variable that allows it to.
const (
	ClockTest     = "TestWallClockStep"
	ClockVariable = "HOLOCAST_TEST_SET_CLOCK"
)

// Line is one thing that a guest found out. Exactly one of its pointers is set.
type Line struct {
	Kernel  *Kernel  `json:"kernel,omitempty"`
	Program *Program `json:"program,omitempty"`
	Test    *Test    `json:"test,omitempty"`
	End     *End     `json:"end,omitempty"`
}

// Kernel is what a guest runs.
type Kernel struct {
	Release string `json:"release"` // of uname
}

// Program is an eBPF program that was loaded and attached, or was not.
type Program struct {
	Name    string `json:"name"`
	Package string `json:"package"`
	Attach  string `json:"attach,omitempty"` // the hook: TCX, clsact, XDP, reuseport; "" = not attached
	Error   string `json:"error,omitempty"`  // why not
	TooOld  bool   `json:"too_old,omitempty"`
}

// Test is a test of a package with programs.
type Test struct {
	Package string `json:"package"`
	Name    string `json:"name"` // with subtests
	Result  string `json:"result"`
}

// End says that a guest did all it was to do.
type End struct {
	Failed []string `json:"failed,omitempty"` // what could not be done
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

// Read reads all lines. What a guest had not written whole when it ended is an error.
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
