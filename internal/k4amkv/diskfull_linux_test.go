package k4amkv

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestDeviceFull(t *testing.T) {
	w, err := Create("/dev/full", small)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		c := frame(small, i)
		if err = w.WriteCapture(&c); err != nil {
			break
		}
	}
	const want = "recording /dev/full stopped: write /dev/full: no space left on device"
	if err == nil || err.Error() != want {
		t.Errorf("WriteCapture: error %v, want %q", err, want)
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: error %v, want that of the disk", err)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Fatal("Close removed the device")
	}
}

// TestDiskFull simulates a full disk with a file size limit. The limit applies to a process, so the
// test runs itself in a child process.
func TestDiskFull(t *testing.T) {
	const limited = "K4AMKV_FILE_SIZE"
	if size := os.Getenv(limited); size != "" {
		recordBeyond(t, size, os.Getenv("K4AMKV_PATH"))
		return
	}
	for _, tc := range []struct {
		size     int
		captures int
	}{{3_000_000, 8}, {1000, 0}} {
		t.Run(strconv.Itoa(tc.size), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "recording.mkv")
			self := exec.Command(os.Args[0], "-test.run=^TestDiskFull$")
			self.Env = append(os.Environ(), limited+"="+strconv.Itoa(tc.size), "K4AMKV_PATH="+path)
			out, err := self.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if tc.captures == 0 {
				if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("a recording without a frame is left behind: %v", err)
				}
				return
			}
			r := open(t, path)
			if r.header.index == nil || r.Duration == 0 {
				t.Error("the recording has no index or no duration")
			}
			got, err := readAll(r)
			if err != nil || len(got) != tc.captures {
				t.Errorf("%d captures, error %v, want %d", len(got), err, tc.captures)
			}
		})
	}
}

func recordBeyond(t *testing.T, size, path string) {
	signal.Ignore(syscall.SIGXFSZ)
	limit, err := strconv.ParseUint(size, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	w, err := Create(path, small)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil && i < 100; i++ {
		c := frame(small, i)
		err = w.WriteCapture(&c)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("WriteCapture: error %v, want that of the disk", err)
	}
	err = w.Close()
	if !errors.Is(err, syscall.EFBIG) || limit > 2000 && !strings.Contains(err.Error(), "; the file holds its first ") {
		t.Fatalf("Close: error %v, want what the file holds", err)
	}
}
