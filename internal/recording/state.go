package recording

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/foxglove/mcap/go/mcap"

	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
)

// Each object of the catalog and pose tracks is valid until the track's next one. Tools that trim an
// MCAP file drop earlier messages but keep metadata, so the writer stores these objects in metadata
// records too. For a trimmed recording, the reader first returns the objects valid at its start, then
// the other tracks from their first complete group on.

const (
	stateName = "moqt.State" // of the metadata records
	maxState  = 64 << 20     // bytes of state read from one recording
)

// hasState reports whether a track's objects stay valid.
func hasState(t wire.TrackName) bool {
	return t.Name == catalog.TrackName || t.Name == catalog.PoseTrack
}

// stated reports whether o is valid until the next object of its track.
func stated(o *Object) bool { return hasState(o.Track) && !o.EndOnly && o.Status == 0 }

// stateOf returns an object's metadata record. data is the data of its message.
func stateOf(topic string, arrival int64, properties, data []byte) *mcap.Metadata {
	return &mcap.Metadata{Name: stateName, Metadata: map[string]string{
		"topic":      topic,
		"properties": hex.EncodeToString(properties),
		"arrival":    strconv.FormatInt(arrival, 10),
		"object":     base64.StdEncoding.EncodeToString(data),
	}}
}

// state is an object from a metadata record.
type state struct {
	Object
	properties []byte // the track's
}

// readState reads a metadata record at an offset. It ignores other metadata.
func (r *Reader) readState(offset, length int64) {
	if r.stateBytes += length; r.stateBytes > maxState {
		return
	}
	b := make([]byte, length)
	if r.readAt(b, offset) != nil {
		return
	}
	m, err := mcap.ParseMetadata(b)
	if err != nil || m.Name != stateName {
		return
	}
	data, err := base64.StdEncoding.DecodeString(m.Metadata["object"])
	if err != nil {
		return
	}
	s := state{}
	s.Object, err = parseObject(data)
	if err != nil {
		return
	}
	s.Track, err = wire.ParseTrackName(m.Metadata["topic"])
	if err != nil || s.Track.Validate() != nil || !stated(&s.Object) {
		return
	}
	arrival, err := strconv.ParseInt(m.Metadata["arrival"], 10, 64)
	if err != nil || arrival <= 0 {
		return
	}
	s.Arrival = time.Unix(0, arrival)
	if s.properties, err = hex.DecodeString(m.Metadata["properties"]); err != nil {
		return
	}
	r.states = append(r.states, s)
}

// restore determines the objects that precede the first object of a trimmed recording.
func (r *Reader) restore() {
	slices.SortStableFunc(r.states, func(a, b state) int { return a.Arrival.Compare(b.Arrival) })
	for _, s := range r.states {
		same := func(o Object) bool { return o.Track.Equal(s.Track) }
		absent := !slices.ContainsFunc(r.Info.Tracks, func(t TrackInfo) bool { return t.Track.Equal(s.Track) })
		switch {
		case r.Info.Records == 0:
			continue
		case s.Arrival.Before(r.Info.Start):
			r.trimmed = true
			if s.ObjectID == 0 { // replaces earlier objects
				r.restored = slices.DeleteFunc(r.restored, same)
			}
		case !absent:
			continue
		}
		if absent { // it has no message in the file
			r.Info.Tracks = append(r.Info.Tracks, TrackInfo{Track: s.Track, Properties: s.properties})
		}
		s.Arrival = r.Info.Start
		r.restored = append(r.restored, s.Object)
	}
	r.Info.Records += uint64(len(r.restored))
	r.states = nil
}

// complete reports whether o is a state object or belongs to its track's first complete group or a
// later one.
func (r *Reader) complete(o *Object) bool {
	if hasState(o.Track) {
		return true
	}
	topic := o.Track.String()
	first, ok := r.first[topic]
	if !ok {
		if o.ObjectID != 0 || o.EndOnly {
			return false
		}
		first = o.Group
		r.first[topic] = first
	}
	return o.Group >= first
}
