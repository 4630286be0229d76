package moqt_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/qmux/qmuxtest"
	"holocast/internal/sessiontest/fakepath"
)

// TestBottleneckOverTCP sends a camera of 71 Mbit/s over one TCP connection of 20 Mbit/s, in fake time.
// Complete frames must fill the path, and their delay must not grow.
func TestBottleneckOverTCP(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		const (
			rate    = 20_000_000 / 8
			fps     = 30
			size    = 71_000_000 / 8 / fps
			seconds = 30
			delay   = 20 * time.Millisecond
			timeout = 400 * time.Millisecond
		)
		name := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "tcp"}, Name: "points/0/full"}
		tr := origin.NewTrack(name, nil, origin.Limits{})
		var set origin.Set
		set.Add(tr)
		viewer, server := qmuxtest.New(rate, delay)
		client, served := moqt.OverLinks(t, viewer, server, moqt.Handler{}, set.Handler())
		sub, err := client.Subscribe(t.Context(), name, moqt.SubscribeOptions{ObjectDeliveryTimeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		go func() {
			for group := range uint64(fps * seconds) {
				time.Sleep(time.Until(began.Add(time.Duration(group) * time.Second / fps)))
				if tr.WriteObject(wire.SubgroupHeader{Group: group, Mode: wire.SubgroupIDZero, Priority: 128},
					moqt.Object{}, make([]byte, size)) != nil {
					return
				}
			}
			tr.End(wire.DoneTrackEnded, "")
		}()
		var mu sync.Mutex
		var delays []time.Duration
		var late time.Duration // of the second half
		var reading sync.WaitGroup
		for sub.Err() == nil {
			sg, err := sub.AcceptSubgroup(t.Context())
			if err != nil {
				break
			}
			reading.Go(func() {
				if _, err := sg.NextObject(); err != nil {
					return
				}
				if b, err := sg.ReadPayload(nil, 1<<20); err != nil || len(b) != size {
					return
				}
				d := time.Since(began) - time.Duration(sg.Group)*time.Second/fps
				mu.Lock()
				defer mu.Unlock()
				delays = append(delays, d)
				if sg.Group > fps*seconds/2 {
					late = max(late, d)
				}
			})
		}
		reading.Wait()
		client.Close(wire.NoError, "")
		served.Close(wire.NoError, "")
		time.Sleep(time.Minute) // for all timers
		slices.Sort(delays)
		if len(delays) == 0 {
			t.Fatal("no frame arrived")
		}
		fits := float64(rate*seconds) / size
		t.Logf("%d frames arrived, of %.0f that fit; delay %v median, %v at most, %v in the second half",
			len(delays), fits, delays[len(delays)/2], delays[len(delays)-1], late)
		if float64(len(delays)) < 0.85*fits {
			t.Errorf("%d frames arrived, of %.0f that fit", len(delays), fits)
		}
		if most := delays[len(delays)-1]; most > timeout+delay {
			t.Errorf("a frame arrived after %v", most)
		}
	})
}
