package recording

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fill writes objects until the recording fails, and checks the error and the remaining file.
func fill(t *testing.T, w *Writer, path string, objects []Object) {
	t.Helper()
	var failure error
	for _, o := range objects {
		if failure = w.Write(o); failure != nil {
			break
		}
	}
	if failure == nil {
		t.Fatal("the disk did not fill up")
	}
	if !errors.Is(failure, syscall.ENOSPC) || !strings.Contains(failure.Error(), path) ||
		!strings.Contains(failure.Error(), "can be replayed") {
		t.Errorf("error %v", failure)
	}
	if err := w.Write(objects[0]); err != failure {
		t.Errorf("the next write says %v, want the same error again", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, r)
	got := replay(t, r)
	if len(got) == 0 || r.Info.Truncated == nil {
		t.Fatalf("%d objects left, truncation %v", len(got), r.Info.Truncated)
	}
	checkObjects(t, got, objects[:len(got)])
}

// TestDiskFull redirects the file descriptor to /dev/full halfway.
func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full.mcap")
	w, err := Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	objects := session(120)
	for _, o := range objects[:len(objects)/2] {
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, full)
	if err := syscall.Dup3(int(full.Fd()), int(w.file.Fd()), syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	fill(t, w, path, objects)
}

// TestDiskFullTmpfs fills a real 1 MB file system, where the kernel accepts part of a chunk before
// it fails.
func TestDiskFullTmpfs(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small tmpfs (needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "full.mcap")
	w, err := Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, path, session(240))
}

func TestCreateOnFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, full)
	_, err = NewWriter(full, nil)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "/dev/full") {
		t.Errorf("error %v", err)
	}
}
