package moqt

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// TestPayloadGrowsWithArrival checks that memory follows the received bytes, not the announced
// length.
func TestPayloadGrowsWithArrival(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	buf, err := readPayload(
		io.MultiReader(strings.NewReader("some"), iotest.ErrReader(errors.New("reset"))),
		nil,
		1<<30,
	)
	runtime.ReadMemStats(&after)
	if err == nil || len(buf) != 0 {
		t.Errorf("%d bytes, %v", len(buf), err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated for 4 that arrived", n)
	}
}

func TestReadPayload(t *testing.T) {
	for _, n := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 5 * firstRead, 1 << 20} {
		want := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
		for _, buf := range [][]byte{nil, make([]byte, 7, 100), make([]byte, 0, 3<<20)} {
			got, err := readPayload(iotest.HalfReader(bytes.NewReader(want)), buf, uint64(n))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes into %d: %d bytes, %v", n, cap(buf), len(got), err)
			}
			if cap(buf) >= n && n > 0 && &got[0] != &buf[:1][0] {
				t.Errorf("%d bytes into %d: another buffer was made", n, cap(buf))
			}
		}
		if _, err := readPayload(bytes.NewReader(want), nil, uint64(n)+1); !errors.Is(err, io.EOF) &&
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", n, n+1, err)
		}
	}
}
