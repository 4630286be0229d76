package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
	"holocast/internal/secureobjects"
)

// Encrypted reports whether the recording at path is of an encrypted session.
func Encrypted(path string) bool {
	r, err := recording.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = r.Close() }() // read-only
	o, err := recording.FirstCatalog(path, r, nil)
	if err != nil {
		return false
	}
	c, err := catalog.Parse(o.Payload)
	return err == nil && c.Encrypted()
}

// Decrypt writes a decrypted copy of the recording at path to a folder that only this user can read,
// and returns the copy's path and the objects counted. remove deletes the copy.
func Decrypt(ctx context.Context, path string, keys *secureobjects.KeyFile) (
	plain string, stats secureobjects.Stats, remove func(), err error,
) {
	r, err := recording.Open(path)
	if err != nil {
		return "", stats, nil, err
	}
	defer func() { _ = r.Close() }() // read-only
	dir, err := os.MkdirTemp("", "holocast-export-")
	if err != nil {
		return "", stats, nil, fmt.Errorf("export: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	plain = filepath.Join(dir, filepath.Base(path))
	w, err := recording.Create(plain, nil)
	if err == nil {
		d := newDecrypter(r, w, keys)
		err = errors.Join(d.run(ctx), w.Close())
		stats = d.viewer.Stats()
	}
	if err != nil {
		remove()
		return "", stats, nil, err
	}
	return plain, stats, remove, nil
}

// decrypter copies a recording.
type decrypter struct {
	r      *recording.Reader
	w      *recording.Writer
	viewer *secureobjects.Viewer
	tracks map[string]*decrypted
}

// decrypted is a track of the copy.
type decrypted struct {
	opener moqt.ObjectOpener // nil if the track is not encrypted
	parts  *parts.Assembler  // nil unless frames are in datagrams
}

func newDecrypter(r *recording.Reader, w *recording.Writer, keys *secureobjects.KeyFile) *decrypter {
	var root wire.Namespace
	for _, t := range r.Info.Tracks {
		if t.Track.Name == catalog.TrackName && (root == nil || len(t.Track.Namespace) < len(root)) {
			root = t.Track.Namespace
		}
	}
	d := &decrypter{r: r, w: w, viewer: secureobjects.NewViewer(root, keys), tracks: map[string]*decrypted{}}
	for _, t := range r.Info.Tracks {
		d.tracks[t.Track.String()] = &decrypted{opener: d.viewer.OpenTrack(t.Track, t.Properties)}
	}
	return d
}

func (d *decrypter) run(ctx context.Context) error {
	for _, t := range d.r.Info.Tracks {
		if err := d.w.AddTrack(t); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		o, err := d.r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			continue // skips a damaged part
		}
		if err := d.copy(&o); err != nil {
			return err
		}
		if err := d.viewer.Err(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// copy decrypts and writes an object, unless it is refused.
func (d *decrypter) copy(o *recording.Object) error {
	t := d.tracks[o.Track.String()]
	if t == nil || t.opener == nil || o.EndOnly || wire.ObjectStatus(o.Status) != wire.StatusNormal {
		return d.w.Write(*o)
	}
	var ok bool
	o.Properties, o.Payload, ok = t.opener.Open(
		wire.Location{Group: o.Group, Object: o.ObjectID}, o.Priority, o.Properties, o.Payload,
	)
	if !ok {
		return nil
	}
	if o.Track.Name == catalog.TrackName {
		d.learn(o)
	}
	if o.Forwarding != recording.Datagram || t.parts == nil {
		return d.w.Write(*o)
	}
	whole := t.parts.Add(&moqt.Datagram{
		Group: o.Group, Object: o.ObjectID, Priority: o.Priority, EndOfGroup: o.EndOfGroup, Properties: o.Properties,
		Payload: bytes.Clone(o.Payload), // the assembler keeps it
	}, false, o.Arrival)
	for _, p := range whole {
		h, err := pointcloud.ParseHeader(p.Bytes)
		if err != nil {
			continue
		}
		n := uint64(h.Description)
		if err := d.w.Write(recording.Object{
			Track: o.Track, Group: p.Group, Subgroup: n, ObjectID: n, Priority: p.Priority, Payload: p.Bytes,
			FirstObject: true, EndOfGroup: p.Last, End: recording.EndFIN, Arrival: o.Arrival,
		}); err != nil {
			return err
		}
	}
	return nil
}

// learn prepares for tracks whose frames are in datagrams, which the recorder could not put together.
func (d *decrypter) learn(o *recording.Object) {
	c, err := catalog.Parse(o.Payload)
	if err != nil {
		return
	}
	for _, ct := range c.Tracks {
		t := d.tracks[wire.TrackName{Namespace: o.Track.Namespace, Name: ct.Name}.String()]
		if t == nil || t.parts != nil || ct.Points == nil || ct.Points.Delivery != catalog.DeliveryDatagram {
			continue
		}
		t.parts = parts.NewAssembler(parts.Limits{
			MaxPayload: min(12*ct.Points.MaxPoints+1<<16, recording.MaxObject-wire.MaxObjectProperties),
			Timeout:    time.Duration(ct.Points.DeliveryTimeout) * time.Millisecond,
		})
	}
}
