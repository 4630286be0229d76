package k4arecording

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"testing/synctest"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
)

// TestUnclosed loops a recording in the state that libk4arecord leaves it in when killed: a Segment
// of size 0, no Cues, and a truncated last Cluster.
func TestUnclosed(t *testing.T) {
	path := record(t, depthOnly, 4)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	segment := bytes.Index(file, []byte{0x18, 0x53, 0x80, 0x67})
	binary.BigEndian.PutUint64(file[segment+4:], 1<<56)
	lastCluster := bytes.LastIndex(file, []byte{0x1F, 0x43, 0xB6, 0x75})
	if err := os.WriteFile(path, file[:lastCluster+1000], 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p := open(t, path, Options{Take: pace.NewTake(true, nil)})
		for i, damaged := 0, 0; i < 9; {
			var f source.Frame
			if err := p.Next(t.Context(), &f); err != nil {
				if damaged++; damaged > 3 { // once a loop
					t.Fatal(err)
				}
				continue
			}
			if want := uint16(i%3 + 1); f.Depth[0] != want {
				t.Errorf("frame %d has depth %d, want %d", i, f.Depth[0], want)
			}
			i++
		}
	})
}
