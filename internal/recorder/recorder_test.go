package recorder

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
)

// TestHeld checks that an object and the end of its subgroup share a record if the end follows
// soon.
func TestHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := New(w, Config{})
	object := func(group, id uint64) recording.Object {
		return recording.Object{
			Track:    wire.TrackName{Name: "x"},
			Group:    group,
			ObjectID: id,
			Payload:  []byte("x"),
			Arrival:  time.Now(),
		}
	}
	for group, flushed := range []bool{false, true} {
		h := held{r: r}
		h.next(object(uint64(group), 0))
		h.next(object(uint64(group), 1))
		if flushed {
			h.flush() // like its timer
		}
		end := object(uint64(group), 1)
		end.End = recording.EndFIN
		h.end(end)
		h.flush()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	type record struct {
		group, id uint64
		end       recording.End
		endOnly   bool
	}
	want := []record{
		{0, 0, recording.EndOpen, false},
		{0, 1, recording.EndFIN, false},
		{1, 0, recording.EndOpen, false},
		{1, 1, recording.EndOpen, false},
		{1, 1, recording.EndFIN, true},
	}
	f, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, _, n := r.Counts(); n != uint64(len(want)) || f.Info.Records != n {
		t.Errorf("%d records counted, %d in the file, want %d", n, f.Info.Records, len(want))
	}
	for i, want := range want {
		o, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := (record{o.Group, o.ObjectID, o.End, o.EndOnly}); got != want {
			t.Errorf("record %d is %+v, want %+v", i, got, want)
		}
	}
	if _, err := f.Next(); err != io.EOF {
		t.Errorf("after the last record: %v", err)
	}
}
