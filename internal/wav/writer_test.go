package wav

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriter(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "x.wav"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // for errors above its Close
	w, err := NewWriter(file, 2, 48000)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write([]float32{0.5, -0.5, 2, -2}); err != nil {
		t.Fatal(err)
	}
	for _, closed := range []bool{false, true} {
		if closed {
			err = w.Close()
		} else {
			err = w.w.Flush() // as after an interruption
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		f, err := New(file, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		var got [4]float32
		if err := f.Read(got[:], 0); err != nil || f.Length != 2 || f.Channels != 2 || f.Rate != 48000 {
			t.Errorf("closed %t: %v, %+v", closed, err, f)
		}
		for i, want := range []float32{0.5, -0.5, 1, -1} {
			if d := got[i] - want; d > 1e-4 || d < -1e-4 {
				t.Errorf("closed %t: %v", closed, got)
			}
		}
	}
}
