//go:build linux

package bottleneck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/quantile"
)

// tilePaths returns paths below and above the tiled stream's 34 Mbit/s.
func tilePaths(quick bool) []Path {
	path := func(rate, loss float64) Path { return Path{RateMbps: rate, DelayMs: 30, QueueMs: 120, Loss: loss} }
	if quick {
		return []Path{path(20, 0.001)}
	}
	return []Path{path(10, 0.001), path(20, 0.001), path(30, 0.001), path(40, 0.001), path(20, 0.01)}
}

func tileName(track int) moqt.TrackName {
	name := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "bench"}, Name: "base"}
	if track > 0 {
		name.Name = fmt.Sprintf("tile/%d", track)
	}
	return name
}

func tileProperties(timeout time.Duration) moqt.Properties {
	if timeout == 0 {
		return nil
	}
	return wire.AppendKeyValues(nil, wire.KeyValue{
		Type: wire.PropertySubgroupDeliveryTimeout,
		Int:  uint64(timeout.Milliseconds()),
	})
}

func tileHeader(track int, group uint64) wire.SubgroupHeader {
	return wire.SubgroupHeader{
		Group: group, Mode: wire.SubgroupIDExplicit, Priority: priority(track),
		FirstObject: true, EndOfGroup: true,
	}
}

// tileSource is one contender's way of sending the tracks. send does not wait.
type tileSource struct {
	handler moqt.Handler
	send    func(track int, group, object uint64, payload []byte) error
	wait    func() // waits for writers, after the session has ended
}

func newTileSource(contender string) tileSource {
	switch contender {
	case Holocast:
		return tilesFromOrigin()
	case DeliveryTimeout:
		return tilesFromPublications(Timeout)
	}
	return tilesFromPublications(0)
}

func tilesFromOrigin() tileSource {
	var set origin.Set
	tracks, feeds := make([]*origin.Track, 1+Tiles), make([]*origin.Feed, 1+Tiles)
	for i := range tracks {
		tracks[i] = origin.NewTrack(tileName(i), tileProperties(Timeout), origin.Limits{})
		set.Add(tracks[i])
	}
	return tileSource{
		handler: set.Handler(),
		send: func(track int, group, object uint64, payload []byte) (err error) {
			if object == 0 {
				if feeds[track], err = tracks[track].OpenSubgroup(tileHeader(track, group)); err != nil {
					return err
				}
			}
			if err := feeds[track].WriteObject(moqt.Object{ID: object}, payload); err != nil {
				return err
			}
			if object == ObjectsPerS-1 {
				return feeds[track].Close()
			}
			return nil
		},
		wait: func() {},
	}
}

// tilesFromPublications writes each group's objects on its own goroutine.
func tilesFromPublications(timeout time.Duration) tileSource {
	var mu sync.Mutex
	pubs := map[string]*moqt.Publication{}
	groups := make([]chan []byte, 1+Tiles)
	writers := make([]*moqt.SubgroupWriter, 1+Tiles)
	var writing sync.WaitGroup
	return tileSource{
		handler: moqt.Handler{Subscribe: func(r *moqt.SubscribeRequest) {
			if p, err := r.Accept(moqt.TrackInfo{Properties: tileProperties(timeout)}); err == nil {
				mu.Lock()
				pubs[r.Track.Name] = p
				mu.Unlock()
			}
		}},
		send: func(track int, group, object uint64, payload []byte) error {
			if object == 0 {
				mu.Lock()
				pub := pubs[tileName(track).Name]
				mu.Unlock()
				w, err := pub.OpenSubgroup(tileHeader(track, group))
				if errors.Is(err, moqt.ErrStreamsBlocked) {
					groups[track], writers[track] = nil, nil // stream limit reached, so the group is lost
					return nil
				}
				if err != nil {
					return err
				}
				objects := make(chan []byte, ObjectsPerS)
				groups[track], writers[track] = objects, w
				writing.Go(func() {
					var id uint64
					for payload := range objects {
						// WriteObject fails if the group was late or the session has ended.
						if w.WriteObject(moqt.Object{ID: id}, payload) != nil {
							return
						}
						id++
					}
					_ = w.Close()
				})
			}
			if groups[track] == nil {
				return nil
			}
			groups[track] <- payload // never blocks, since the channel holds a group
			if object == ObjectsPerS-1 {
				if timeout > 0 {
					writers[track].SetDeadline(time.Now().Add(timeout))
				}
				close(groups[track])
				groups[track] = nil
			}
			return nil
		},
		wait: func() {
			for _, objects := range groups {
				if objects != nil {
					close(objects)
				}
			}
			writing.Wait()
		},
	}
}

// measureTiles sends the tiled stream from host a to host b over one path.
func measureTiles(ctx context.Context, path Path, contender string, warmup, duration time.Duration) (r TileMeasurement,
	err error,
) {
	src := newTileSource(contender)
	var running, sending sync.WaitGroup
	defer func() { sending.Wait(); src.wait() }()
	l, err := open(ctx, path, src.handler)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	v := &tileViewer{began: time.Now(), session: l.session, groups: map[tileGroup]*received{}}
	ctx, cancel := context.WithCancel(ctx)
	defer running.Wait()
	defer v.session.Close(wire.NoError, "")
	defer cancel() // runs before the session's close, which then does not count as a failure
	failed := make(chan error, 2+Tiles)
	for i := range 1 + Tiles {
		sub, err := v.session.Subscribe(ctx, tileName(i), moqt.SubscribeOptions{})
		if err != nil {
			return r, err
		}
		running.Go(func() { failed <- v.receive(ctx, i, sub) })
	}
	if err := l.lab.Begin(); err != nil {
		return r, err
	}
	began := time.Now()
	sending.Go(func() { failed <- sendTiles(ctx, v.began, src) })
	if err := pause.Unless(failed, time.Until(began.Add(warmup))); err != nil {
		return r, err
	}
	l.lab.Mark()
	bytes := v.session.Stats().BytesReceived
	v.measure(true)
	if err := pause.Unless(failed, time.Until(began.Add(warmup+duration))); err != nil {
		return r, err
	}
	v.measure(false)
	bytes = v.session.Stats().BytesReceived - bytes

	// Wait until the last group, which has just ended, would count as late.
	if err := pause.Unless(failed, time.Until(began.Add(warmup+duration+lateFrame))); err != nil {
		return r, err
	}
	r = TileMeasurement{Path: path, Contender: contender, Seconds: duration.Seconds()}
	r.TileFigures, r.CompleteOf = v.figures(uint64(warmup/time.Second), uint64((warmup+duration)/time.Second), bytes)
	report, err := l.lab.Finish()
	if err != nil {
		return r, err
	}
	r.Failures, r.Warnings = report.Failures, report.Warnings
	return r, nil
}

// sendTiles sends the tracks until ctx is done. Each payload starts with its capture time in ns
// since began.
func sendTiles(ctx context.Context, began time.Time, src tileSource) error {
	next := time.Now()
	for n := uint64(0); ; n++ {
		for track := range 1 + Tiles {
			payload := make([]byte, objectBytes(track))
			binary.BigEndian.PutUint64(payload, uint64(time.Since(began)))
			if err := src.send(track, n/ObjectsPerS, n%ObjectsPerS, payload); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return fmt.Errorf("send group %d of track %d: %w", n/ObjectsPerS, track, err)
			}
		}
		next = next.Add(time.Second / ObjectsPerS)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(next)):
		}
	}
}

type tileGroup struct {
	track int
	group uint64
}

// received is the part of a group that arrived.
type received struct {
	objects  int
	measured int // bytes received during the measurement
	delays   []time.Duration
}

// tileViewer records the objects received.
type tileViewer struct {
	session *moqt.Session
	began   time.Time

	mu        sync.Mutex
	measuring bool
	groups    map[tileGroup]*received
}

func (v *tileViewer) measure(on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.measuring = on
}

func (v *tileViewer) receive(ctx context.Context, track int, sub *moqt.Subscription) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	for {
		sg, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return fmt.Errorf("subscription to track %d ended: %w", track, err)
		}
		reading.Go(func() { v.read(track, sg) })
	}
}

func (v *tileViewer) read(track int, sg *moqt.SubgroupReader) {
	var buf []byte
	for {
		_, err := sg.NextObject()
		if err == nil {
			buf, err = sg.ReadPayload(buf, BaseBytes)
		}
		if err != nil {
			return
		}
		delay := time.Since(v.began) - time.Duration(binary.BigEndian.Uint64(buf))
		v.mu.Lock()
		key := tileGroup{track, sg.Group}
		g := v.groups[key]
		if g == nil {
			g = &received{}
			v.groups[key] = g
		}
		g.objects++
		g.delays = append(g.delays, delay)
		if v.measuring {
			g.measured += len(buf)
		}
		v.mu.Unlock()
	}
}

// complete reports whether a group arrived completely and in time. The caller holds v.mu.
func (v *tileViewer) complete(track int, group uint64) bool {
	g := v.groups[tileGroup{track, group}]
	return g != nil && g.objects == ObjectsPerS && g.delays[len(g.delays)-1] < lateFrame
}

// figures computes the figures of the groups [from, to), given the bytes received in that time.
func (v *tileViewer) figures(from, to uint64, bytes uint64) (f TileFigures, complete []float64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	groups := float64(to - from)
	complete = make([]float64, 1+Tiles)
	var inverted, tiles float64
	var delays []time.Duration
	for group := from; group < to; group++ {
		missing := false
		for track := range 1 + Tiles {
			if !v.complete(track, group) {
				missing = true
				continue
			}
			delays = append(delays, v.groups[tileGroup{track, group}].delays...)
			complete[track] += 100 / groups
			if track > 0 {
				tiles++
				if missing {
					inverted++
				}
			}
		}
	}
	useful := 0
	for key, g := range v.groups {
		if v.complete(key.track, key.group) {
			useful += g.measured
		}
	}
	f = TileFigures{
		Base: complete[0], Complete: tiles / groups, Inverted: 100 * inverted / max(tiles, 1),
		DelayP95Ms: ms(quantile.Of(delays, 0.95)),
		Wasted:     100 * max(0, 1-float64(useful)/float64(max(bytes, 1))),
	}
	return f, complete
}
