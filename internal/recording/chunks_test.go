package recording

import (
	"slices"
	"strings"
	"testing"
)

// TestChunks checks that Chunks visits the whole recording, that its chunks can be read again in
// any order, and that it resets the reader.
func TestChunks(t *testing.T) {
	want := session(100)
	r, err := Open(record(t, want))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, r)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	var got []Object
	var offsets []int64
	if err := r.Chunks(func(offset int64, objects []Object) error {
		offsets = append(offsets, offset)
		got = append(got, objects...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	checkObjects(t, got, want)
	if len(offsets) < 3 {
		t.Fatalf("%d chunks, too few to tell", len(offsets))
	}
	got = nil
	for _, offset := range slices.Backward(offsets) {
		objects, err := r.ReadChunk(offset)
		if err != nil {
			t.Fatal(err)
		}
		got = append(objects, got...)
	}
	checkObjects(t, got, want)
	checkObjects(t, replay(t, r), want)
	if _, err := r.ReadChunk(offsets[1] + 1); err == nil || !strings.Contains(err.Error(), "chunk at byte") {
		t.Errorf("where no chunk begins: %v", err)
	}
}
