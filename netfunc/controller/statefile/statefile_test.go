package statefile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

type state struct {
	Name  string `json:"name"`
	Paths []int  `json:"paths"`
}

func open(t testing.TB) *File {
	t.Helper()
	f, err := Open(filepath.Join(t.TempDir(), "new", "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestSaveAndLoad(t *testing.T) {
	f := open(t)
	var got state
	if there, err := f.Load(&got); there || err != nil {
		t.Fatalf("%v, %v of no file", there, err)
	}
	for _, want := range []state{{"a", []int{1, 2}}, {"b <é>", nil}} {
		if err := f.Save(want); err != nil {
			t.Fatal(err)
		}
		got = state{}
		if there, err := f.Load(&got); !there || err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, %v; want %+v", got, there, err, want)
		}
	}
	if _, err := os.Stat(f.path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Error("the temporary file is still there")
	}
}

// A file truncated anywhere, or with any byte changed, is detected and renamed, and the next state
// can be written.
func TestDamaged(t *testing.T) {
	f := open(t)
	if err := f.Save(state{"edge-a", []int{1, 2, 5}}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	var damaged [][]byte
	for n := range good {
		damaged = append(damaged, good[:n])
	}
	for n := range good {
		b := bytes.Clone(good)
		b[n] ^= 1
		damaged = append(damaged, b)
	}
	damaged = append(damaged, append(bytes.Clone(good), 'x'), make([]byte, 4096))
	for i, b := range damaged {
		if err := os.WriteFile(f.path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var got state
		there, err := f.Load(&got)
		switch {
		case there && err == nil && reflect.DeepEqual(got, state{"edge-a", []int{1, 2, 5}}) &&
			strings.EqualFold(string(b), string(good)):
			continue // JSON ignores the case of keys
		case there || (!errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer)):
			t.Fatalf("%d: %+v, %v, %v of %s", i, got, there, err, b)
		}
		if errors.Is(err, ErrDamaged) {
			to := err.Error()[strings.LastIndex(err.Error(), " ")+1:]
			if kept, e := os.ReadFile(to); e != nil || !bytes.Equal(kept, b) {
				t.Fatalf("%v: %v", err, e)
			}
			_ = os.Remove(to)
		}
	}
	if err := f.Save(state{}); err != nil {
		t.Error(err)
	}
}

func TestLock(t *testing.T) {
	f := open(t)
	if _, err := Open(f.path); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("%v", err)
	}
	_ = f.Close()
	again, err := Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// If the disk is full, the old state is preserved.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	f, err := Open(filepath.Join(dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Save(state{Name: "small"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(state{Name: strings.Repeat("x", 64<<10)}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, want no space", err)
	}
	var got state
	if there, err := f.Load(&got); !there || err != nil || got.Name != "small" {
		t.Errorf("%+v, %v, %v", got, there, err)
	}
	if err := f.Save(state{Name: "small again"}); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"format":1,"sha256":"","state":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s state
		if err := decode(b, &s); err != nil && s.Name != "" && !errors.Is(err, ErrNewer) {
			t.Logf("%v", err)
		}
	})
}
