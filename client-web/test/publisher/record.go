package main

import (
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
	"holocast/internal/recording"
)

// writeRecording writes a recording of a session. Unlike frames recorded from a live session,
// its frames arrive at exactly even intervals.
func writeRecording(path string, o options) error {
	p := &publisher{options: o, ns: moqt.Namespace{"holocast", "take"}}
	p.catalog = p.newTrack(catalog.TrackName)
	p.points = p.newTrack(catalog.PointsTrack(0, "full"))
	frames, err := o.recordedFrames()
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
	write := func(track string, at time.Time, object recording.Object) {
		if err == nil {
			object.Track, object.Arrival, object.Priority = moqt.TrackName{Namespace: p.ns, Name: track}, at, 128
			err = w.Write(object)
		}
	}
	write(catalog.TrackName, start, recording.Object{Group: 1, FirstObject: true, End: recording.EndFIN, Payload: doc})
	sound := &soundRecorder{at: start, group: 1, track: moqt.TrackName{Namespace: p.ns, Name: catalog.SoundTrack(0)}}
	if o.sound != "" {
		if sound.beeper, err = newBeeper(); err != nil {
			return err
		}
		defer sound.encoder.Close()
	}
	for i, objects := range frames {
		at := start.Add(time.Duration(i) * o.interval())
		if err := sound.write(w, at); err != nil {
			return err
		}
		for _, object := range objects {
			object.Payload = stamp(object.Payload, uint32(i), at)
			write(p.points.Name().Name, at, object)
		}
	}
	if closing := w.Close(); err == nil {
		err = closing
	}
	return err
}

// recordedFrames returns the objects of each frame.
func (o *options) recordedFrames() ([][]recording.Object, error) {
	if o.layout == "w" {
		return o.recordedVideo()
	}
	objects, err := o.encodeAll()
	if err != nil {
		return nil, err
	}
	frames := make([][]recording.Object, o.frames)
	for i := range frames {
		for d, payload := range objects {
			frames[i] = append(frames[i], recording.Object{
				Group: uint64(1 + i), Subgroup: uint64(d), ObjectID: uint64(d), FirstObject: true, End: recording.EndFIN,
				Payload: payload,
			})
		}
	}
	return frames, nil
}

// recordedVideo returns the objects of frames of layout W, in groups of one second.
func (o *options) recordedVideo() ([][]recording.Object, error) {
	enc, err := pointvideo.NewEncoder(pointvideo.Config{Width: o.width, Height: o.height})
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	scene := o.scene()
	frames := make([][]recording.Object, o.frames)
	for i := range frames {
		group, index := i/int(o.fps), i%int(o.fps)
		object := recording.Object{Group: uint64(1 + group), ObjectID: uint64(index), FirstObject: index == 0}
		if index == int(o.fps)-1 || i == o.frames-1 {
			object.End = recording.EndFIN
		}
		if object.Payload, err = enc.Encode(nil, pointcloud.Header{}, &scene.Grid, index == 0); err != nil {
			return nil, err
		}
		frames[i] = append(frames[i], object)
	}
	return frames, nil
}

// soundRecorder writes a recording's sound.
type soundRecorder struct {
	*beeper // nil without sound
	track   moqt.TrackName
	at      time.Time // capture time of the next packet
	group   uint64
}

// write writes the packets that arrive by the given time.
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
