package prepared

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestDiskFullSaysOneLine closes many files on a full disk. The error must be one line.
func TestDiskFullSaysOneLine(t *testing.T) {
	var outputs []*output
	for range 20 {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		o := &output{file: f, w: bufio.NewWriter(f)}
		_, _ = o.w.WriteString("buffered")
		outputs = append(outputs, o)
	}
	if err := closeAll(outputs); !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q", err)
	}
}
