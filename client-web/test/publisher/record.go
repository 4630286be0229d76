package main

import (
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/recording"
)

// writeRecording writes a recording of a session. Unlike frames recorded from a live session,
// its frames arrive at exactly even intervals.
func writeRecording(path string, o options) error {
	p := &publisher{options: o, ns: moqt.Namespace{"holocast", "take"}}
	p.catalog = p.newTrack(catalog.TrackName)
	p.points = p.newTrack(catalog.PointsTrack(0, "full"))
	objects, err := o.encodeAll()
	if err != nil {
		return err
	}
	c, err := p.newCatalog(pose)
	if err != nil {
		return err
	}
	doc, err := c.Marshal()
	if err != nil {
		return err
	}
	w, err := recording.Create(path, nil)
	if err != nil {
		return err
	}
	start := time.Now().Add(-time.Duration(o.frames) * o.interval()).Truncate(time.Second)
	write := func(track *moqt.TrackName, group uint64, subgroup int, at time.Time, payload []byte) {
		if err == nil {
			err = w.Write(recording.Object{
				Track: *track, Group: group, Subgroup: uint64(subgroup), ObjectID: uint64(subgroup), Priority: 128,
				Payload: payload, FirstObject: true, End: recording.EndFIN, Arrival: at,
			})
		}
	}
	write(&moqt.TrackName{Namespace: p.ns, Name: catalog.TrackName}, 1, 0, start, doc)
	sound := &soundRecorder{at: start, group: 1, track: moqt.TrackName{Namespace: p.ns, Name: catalog.SoundTrack(0)}}
	if o.sound != "" {
		if sound.beeper, err = newBeeper(); err != nil {
			return err
		}
		defer sound.encoder.Close()
	}
	points := p.points.Name()
	for i := range o.frames {
		at := start.Add(time.Duration(i) * o.interval())
		if err := sound.write(w, at); err != nil {
			return err
		}
		for d, object := range objects {
			write(&points, uint64(1+i), d, at, stamp(object, uint32(i), at))
		}
	}
	if closing := w.Close(); err == nil {
		err = closing
	}
	return err
}

// soundRecorder writes a recording's sound.
type soundRecorder struct {
	*beeper // nil without sound
	track   moqt.TrackName
	at      time.Time // capture time of the next packet
	group   uint64
}

// write writes the packets that arrive by a time.
func (r *soundRecorder) write(w *recording.Writer, by time.Time) error {
	if r.beeper == nil {
		return nil
	}
	for ; !r.at.Add(packetTime).After(by); r.at = r.at.Add(packetTime) {
		payload, props, err := r.packet(r.at)
		if err != nil {
			return err
		}
		r.group++
		if err := w.Write(recording.Object{
			Track: r.track, Group: r.group, Priority: soundPriority, Properties: props.Append(nil), Payload: payload,
			FirstObject: true, EndOfGroup: true, End: recording.EndFIN, Arrival: r.at.Add(packetTime),
		}); err != nil {
			return err
		}
	}
	return nil
}
