package main

import (
	"fmt"
	"testing"

	"holocast/internal/clock"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// TestEarlyData checks that with earlyData a client that resumes its session gets objects by its early
// data, and without it does not.
func TestEarlyData(t *testing.T) {
	for _, early := range []bool{true, false} {
		p := start(t, fmt.Sprintf("--early-data=%v", early))
		var resume moqt.Resumption
		for i := range 3 {
			s, err := moqt.Dial(within(t), "moqt://"+p.udp, pinned(t, p.hash), moqt.Handler{},
				moqt.Config{Log: quiet.Log, Resume: &resume, Early: true})
			if err != nil {
				t.Fatal(err)
			}
			subscribe(t, s, clock.TrackName())
			if used := s.UsedEarlyData(); used != (early && i > 0) {
				t.Errorf("earlyData %v, session %d: early data %v", early, i, used)
			}
			eventually(t, "a ticket", func() bool {
				ticket, ok := resume.Get("")
				resume.Put("", ticket)
				return ok
			})
			s.Close(wire.NoError, "")
		}
	}
}
