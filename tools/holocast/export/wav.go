package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/loc"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
	"holocast/internal/wav"
	"holocast/tools/holocast/player/sound"
)

// Sound summarizes the written sound.
type Sound struct {
	sound.Report
	Length time.Duration
}

const (
	soundAhead  = time.Second // packets are read this long before their time
	soundBeyond = 10 * time.Second
	soundBlock  = 10 * time.Millisecond
)

// WAV writes the sound of a recording's microphones, mixed to 16-bit stereo at 48 kHz. The first
// sample was captured at the time of the first frame or, in a recording without frames, of the
// first packet.
func WAV(ctx context.Context, path, out string, cfg Config) (Sound, error) {
	tracks, first, err := microphones(path)
	if err != nil {
		return Sound{}, err
	}
	return writeSound(ctx, path, out, tracks, first, cfg)
}

// writeSound writes the tracks' sound from a capture time on. The zero time stands for the first packet's.
func writeSound(
	ctx context.Context, path, out string, tracks map[string]catalog.Track, from time.Time, cfg Config,
) (Sound, error) {
	r, err := recording.Open(path)
	if err != nil {
		return Sound{}, err
	}
	defer func() { _ = r.Close() }() // read-only
	x := &soundExport{
		tracks: tracks, start: from, at: from, last: from, cfg: cfg, m: sound.New(0, cmp.Or(cfg.Log, slog.Default())),
	}
	defer x.m.Close()
	x.m.Use(func(at time.Time) (time.Time, sound.State) { return at, sound.Running }, sound.Own)
	err = create(out, func(f *os.File) error {
		if x.w, err = wav.NewWriter(f, sound.Channels, sound.SampleRate); err != nil {
			return err
		}
		return errors.Join(x.run(ctx, r), x.w.Close())
	})
	if err != nil {
		return Sound{}, err
	}
	return Sound{x.m.Report(), x.at.Sub(x.start)}, nil
}

// microphones returns the recorded sound tracks by full name, and the capture time of the first frame
// or the zero time.
func microphones(path string) (tracks map[string]catalog.Track, first time.Time, err error) {
	r, root, c, err := openCatalog(path)
	if err != nil {
		return nil, first, err
	}
	defer func() { _ = r.Close() }() // read-only
	tracks = map[string]catalog.Track{}
	for _, t := range c.Sounds() {
		tracks[connect.TrackName(root.Namespace, t).String()] = t
	}
	if len(tracks) == 0 {
		return nil, first, fmt.Errorf("recording %s has no microphones", path)
	}
	for len(c.Cameras()) > 0 && first.IsZero() {
		o, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			continue // skip damaged records
		}
		if h, err := pointcloud.ParseHeader(o.Payload); err == nil && !o.EndOnly {
			first = time.UnixMicro(int64(h.CaptureTime))
		}
	}
	return tracks, first, nil
}

// soundExport plays a recording into a file.
type soundExport struct {
	cfg    Config
	tracks map[string]catalog.Track
	m      *sound.Mixer
	w      *wav.Writer
	start  time.Time // capture time of the first sample
	at     time.Time // of the next
	last   time.Time // newest capture time
}

func (x *soundExport) run(ctx context.Context, r *recording.Reader) error {
	limit := r.Info.Duration() + soundBeyond
	for n := uint64(1); ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		o, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			continue // skip damaged records
		}
		if x.cfg.Progress != nil {
			x.cfg.Progress(n)
		}
		if err := x.object(&o, limit); err != nil {
			return err
		}
	}
	if x.start.IsZero() {
		return errors.New("no sound was recorded")
	}
	return x.write(x.last)
}

// object adds a recorded object. It refuses packets timestamped long before the first one, or more
// than limit after it.
func (x *soundExport) object(o *recording.Object, limit time.Duration) error {
	if o.EndOnly || o.Status != 0 {
		return nil
	}
	t, isSound := x.tracks[o.Track.String()]
	if !isSound {
		return nil
	}
	p, err := sound.ParsePacket(o.Properties, o.Payload)
	if err != nil {
		if !errors.Is(err, loc.ErrNoTimestamp) {
			x.m.Refuse(t.Name, err)
		}
		return nil
	}
	if x.start.IsZero() {
		x.start, x.at, x.last = p.Timestamp, p.Timestamp, p.Timestamp
	}
	if d := p.Timestamp.Sub(x.start); d < -soundBeyond || d > limit {
		x.m.Refuse(t.Name, fmt.Errorf("a timestamp is %s after the recording's start", d.Round(time.Second)))
		return nil
	}
	if err := x.write(p.Timestamp.Add(-soundAhead)); err != nil {
		return err
	}
	x.m.Add(t.Name, sound.FormatOf(t), p, x.at)
	if end := p.Timestamp.Add(soundBlock); end.After(x.last) {
		x.last = end
	}
	return nil
}

// write writes the sound until a capture time.
func (x *soundExport) write(until time.Time) error {
	block := make([]float32, sound.SampleRate/100*sound.Channels)
	for ; x.at.Before(until); x.at = x.at.Add(soundBlock) {
		x.m.Read(block, x.at)
		if err := x.w.Write(block); err != nil {
			return err
		}
	}
	return nil
}
