// Package fakecamera sends frames of cameras through one MOQT session in fake time.
package fakecamera

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/sessiontest/fakepath"
)

const (
	fps = 30
	// Deadline is the frames' delivery timeout, the capture server's default.
	Deadline = 500 * time.Millisecond
)

// Cameras capture at the same instants, 30 times a second.
type Cameras struct {
	Number  int
	Mbps    float64 // of each
	Seconds int     // measured, after the first second
}

// Measured are the figures of the frames of Cameras.Seconds.
type Measured struct {
	Sent   int
	OnTime int       // within Deadline
	Delays []float64 // of all that arrived, from capture to the last byte, ms, ascending
}

// Share returns the share of the frames that arrived on time.
func (m Measured) Share() float64 { return float64(m.OnTime) / float64(m.Sent) }

// Run runs the cameras over a path. Call it in fakepath.Test.
func (c Cameras) Run(t *testing.T, path *fakepath.Path) (m Measured) {
	t.Helper()
	timeout := uint64(Deadline.Milliseconds())
	var set origin.Set
	tracks := make([]*origin.Track, c.Number)
	for i := range tracks {
		name := moqt.TrackName{Namespace: moqt.Namespace{"bench"}, Name: fmt.Sprintf("points/%d/full", i)}
		tracks[i] = origin.NewTrack(name, wire.AppendKeyValues(nil,
			wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: timeout},
			wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: timeout}), origin.Limits{})
		set.Add(tracks[i])
	}
	session, _ := path.Connect(t, moqt.Handler{}, set.Handler())
	var working sync.WaitGroup
	defer working.Wait()
	defer session.Close(wire.NoError, "")
	counted := time.Now().Add(time.Second)
	var mu sync.Mutex
	arrived := func(captured time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if captured.Before(counted) {
			return
		}
		d := time.Since(captured)
		m.Delays = append(m.Delays, float64(d.Microseconds())/1000)
		if d <= Deadline {
			m.OnTime++
		}
	}
	for _, track := range tracks {
		sub, err := session.Subscribe(t.Context(), track.Name(), moqt.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		working.Go(func() {
			for {
				sg, err := sub.AcceptSubgroup(context.Background())
				if err != nil {
					return
				}
				working.Go(func() { receive(sg, arrived) })
			}
		})
	}
	counted = time.Now().Add(time.Second)
	began := time.Now()
	for k := range (1 + c.Seconds) * fps {
		time.Sleep(time.Until(began.Add(time.Duration(k) * time.Second / fps)))
		frame := make([]byte, int(c.Mbps*1e6/8/fps))
		now := time.Now()
		binary.BigEndian.PutUint64(frame, uint64(now.UnixNano()))
		for _, track := range tracks {
			if err := track.WriteObject(wire.SubgroupHeader{
				Group: uint64(k + 1), Mode: wire.SubgroupIDExplicit, Priority: wire.DefaultPriority,
				FirstObject: true, EndOfGroup: true,
			}, moqt.Object{}, frame); err != nil {
				t.Error(err)
			}
			if !now.Before(counted) {
				m.Sent++
			}
		}
	}
	time.Sleep(2 * Deadline)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(m.Delays)
	return m
}

// receive reads a frame and calls arrived with its capture time.
func receive(sg *moqt.SubgroupReader, arrived func(time.Time)) {
	if _, err := sg.NextObject(); err != nil {
		return
	}
	var header [8]byte
	if _, err := io.ReadFull(sg, header[:]); err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, sg); err != nil {
		return
	}
	arrived(time.Unix(0, int64(binary.BigEndian.Uint64(header[:]))))
	_, _ = sg.NextObject() // reading to the end releases the stream
}
