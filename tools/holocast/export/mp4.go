package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/cmaf"
	"holocast/internal/ffmpeg"
	"holocast/internal/loc"
	"holocast/internal/prepared"
	"holocast/internal/recording"
	"holocast/internal/spherical"
)

// film is a recorded 360° video to convert.
type film struct {
	cfg    Config
	path   string
	dir    string // temporary files
	c      *catalog.Catalog
	video  *catalog.Track
	sphere *catalog.Sphere
	damage error // first read error
	tracks map[string]*filmTrack
	tiles  [][]*filmTrack // [tile], best quality first

	groups []uint64             // GoPs, ascending
	frames []int                // per GoP
	times  map[uint64]time.Time // time of each group's first frame
	sound  []cmaf.Sample
	format *loc.AudioFormat
	offset time.Duration // start of the sound
}

// filmTrack is a recorded track.
type filmTrack struct {
	catalog.Track
	config []byte
	groups map[uint64]int // number of consecutive objects, from the first on, in each complete group
	open   map[uint64]int
}

// Film summarizes the written film.
type Film struct {
	Frames  int
	Missing int // tiles shown at low resolution, counted once per GoP
}

// MP4 makes a video of the whole sphere from a recording or a folder of prepared video. In each GoP
// it uses every tile's best completely recorded quality, or the low-resolution sphere if there is
// none. The video has spherical metadata.
func MP4(ctx context.Context, path, out string, cfg Config) (Film, error) {
	f := &film{cfg: cfg, path: path, tracks: map[string]*filmTrack{}, times: map[uint64]time.Time{}}
	result, err := f.export(ctx, out)
	if err != nil {
		return result, fmt.Errorf("recording %s: %w", path, err)
	}
	return result, nil
}

func (f *film) export(ctx context.Context, out string) (result Film, err error) {
	if err := f.index(ctx); err != nil {
		return result, err
	}
	if f.dir, err = os.MkdirTemp(filepath.Dir(out), ".holocast-export-"); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(f.dir)) }()
	chosen := f.choose()
	if err := f.extract(ctx, chosen); err != nil {
		return result, err
	}
	partial := filepath.Join(f.dir, "film.mp4")
	if result, err = f.compose(ctx, chosen, partial); err != nil {
		return result, err
	}
	if err := spherical.Tag(partial, spherical.Of(f.sphere)); err != nil {
		return result, err
	}
	return result, os.Rename(partial, out)
}

// each calls do for every recorded object of the sphere's tracks.
func (f *film) each(ctx context.Context, do func(t *filmTrack, o *recording.Object) error) error {
	r, _, err := prepared.OpenSource(f.path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // read-only
	for n := uint64(0); ctx.Err() == nil; n++ {
		o, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			f.damage = cmp.Or(f.damage, err)
			continue // skip damaged records
		}
		if o.Track.Name == catalog.TrackName && f.c == nil {
			if err := f.readCatalog(&o); err != nil {
				return err
			}
		}
		if t := f.tracks[o.Track.Name]; t != nil {
			if err := do(t, &o); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (f *film) readCatalog(o *recording.Object) error {
	c, err := catalog.Parse(o.Payload)
	if err != nil {
		return err
	}
	if c.Sphere() == nil {
		return nil // a later catalog may have the sphere
	}
	f.c, f.video = c, c.Sphere()
	f.sphere = f.video.Sphere
	f.tiles = make([][]*filmTrack, f.sphere.Tiles())
	for _, name := range c.Aligned() {
		i := slices.IndexFunc(c.Tracks, func(t catalog.Track) bool { return t.Name == name })
		t := &filmTrack{Track: c.Tracks[i], groups: map[uint64]int{}, open: map[uint64]int{}}
		if t.Packaging != catalog.PackagingLOC {
			continue
		}
		if t.config, err = c.Inline(t.Track); err != nil {
			return err
		}
		f.tracks[name] = t
		if t.Tile != nil {
			f.tiles[t.Tile.Tile] = append(f.tiles[t.Tile.Tile], t)
		}
	}
	for _, list := range f.tiles {
		slices.SortFunc(list, func(a, b *filmTrack) int { return b.Tile.Quality - a.Tile.Quality })
	}
	return nil
}

// index finds the completely recorded groups.
func (f *film) index(ctx context.Context) error {
	err := f.each(ctx, func(t *filmTrack, o *recording.Object) error {
		if t.Role == catalog.RoleAudio {
			return nil
		}
		if !o.EndOnly {
			n := t.open[o.Group]
			switch {
			case n == int(o.ObjectID):
				t.open[o.Group] = n + 1
			default:
				t.open[o.Group] = -1 // an object is missing
			}
			if p, err := loc.Parse(o.Properties); err == nil && o.ObjectID == 0 {
				f.times[o.Group] = p.Timestamp
			}
		}
		if n := t.open[o.Group]; o.End == recording.EndFIN && n > 0 {
			t.groups[o.Group] = n
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch {
	case f.c == nil && f.damage != nil:
		return fmt.Errorf("cannot read any 360° video: %w", f.damage)
	case f.c == nil:
		return errors.New("it has no 360° video, or its catalog is truncated")
	}
	longest := map[uint64]int{}
	for _, t := range f.tracks {
		for g, n := range t.groups {
			longest[g] = max(longest[g], n)
		}
	}
	for g := range longest {
		f.groups = append(f.groups, g)
	}
	slices.Sort(f.groups)
	if len(f.groups) == 0 {
		return errors.New("no GoP of 360° video was recorded completely")
	}
	for _, g := range f.groups {
		f.frames = append(f.frames, longest[g])
	}
	return nil
}

// choose returns the track to show for each tile in each GoP, as [GoP][tile]; nil means the
// low-resolution sphere.
func (f *film) choose() [][]*filmTrack {
	chosen := make([][]*filmTrack, len(f.groups))
	for i, g := range f.groups {
		chosen[i] = make([]*filmTrack, len(f.tiles))
		for tile, list := range f.tiles {
			if j := slices.IndexFunc(list, func(t *filmTrack) bool { return t.groups[g] == f.frames[i] }); j >= 0 {
				chosen[i][tile] = list[j]
			}
		}
	}
	return chosen
}

// filmStream is an H.264 file for a decoder, with the chosen groups in order.
type filmStream struct {
	file    *os.File
	order   []uint64
	pending map[uint64][]byte
}

func (f *film) stream(name string) (*filmStream, error) {
	file, err := os.Create(filepath.Join(f.dir, name+".h264"))
	return &filmStream{file: file, pending: map[uint64][]byte{}}, err
}

// extract writes the chosen groups to files and collects the sound.
func (f *film) extract(ctx context.Context, chosen [][]*filmTrack) (err error) {
	streams := make([]*filmStream, 1+len(f.tiles)) // the first is the video's
	defer func() {
		for _, s := range streams {
			if s != nil {
				err = errors.Join(err, s.file.Close())
			}
		}
	}()
	for i := range streams {
		if streams[i], err = f.stream(strconv.Itoa(i)); err != nil {
			return err
		}
	}
	video := f.tracks[f.video.Name]
	position := map[uint64]int{}
	for i, g := range f.groups {
		position[g] = i
		if video.groups[g] == f.frames[i] {
			streams[0].order = append(streams[0].order, g)
		}
		for tile, t := range chosen[i] {
			if t != nil {
				streams[1+tile].order = append(streams[1+tile].order, g)
			}
		}
	}
	return f.each(ctx, func(t *filmTrack, o *recording.Object) error {
		if t.Role == catalog.RoleAudio {
			return f.addSound(t, o)
		}
		i, ok := position[o.Group]
		if !ok || o.EndOnly && o.End != recording.EndFIN {
			return nil
		}
		s := streams[0]
		if t.Tile != nil {
			s = streams[1+t.Tile.Tile]
			if chosen[i][t.Tile.Tile] != t {
				return nil
			}
		} else if t != video || video.groups[o.Group] != f.frames[i] {
			return nil
		}
		return s.add(t, o)
	})
}

// add accepts an object of a chosen group. It writes the groups that are complete and next in
// order.
func (s *filmStream) add(t *filmTrack, o *recording.Object) (err error) {
	b := s.pending[o.Group]
	if !o.EndOnly {
		if o.ObjectID == 0 {
			config := t.config
			if p, err := loc.Parse(o.Properties); err == nil && p.VideoConfig != nil {
				config = p.VideoConfig
			}
			if b, err = loc.AppendAnnexBConfig(b, config); err != nil {
				return err
			}
		}
		if b, err = loc.AppendAnnexB(b, o.Payload); err != nil {
			return fmt.Errorf("track %s: %w", t.Name, err)
		}
		s.pending[o.Group] = b
	}
	if o.End != recording.EndFIN {
		return nil
	}
	for len(s.order) > 0 && s.pending[s.order[0]] != nil && (s.order[0] == o.Group || s.order[0] < o.Group) {
		if _, err := s.file.Write(s.pending[s.order[0]]); err != nil {
			return err
		}
		delete(s.pending, s.order[0])
		s.order = s.order[1:]
	}
	return nil
}

func (f *film) addSound(t *filmTrack, o *recording.Object) error {
	p, err := loc.Parse(o.Properties)
	if err != nil || o.EndOnly || len(o.Payload) == 0 {
		return nil //nolint:nilerr // not a sound packet without a timestamp
	}
	n := len(f.groups) - 1
	first, last := f.times[f.groups[0]], f.times[f.groups[n]]
	if p.Timestamp.Before(first) || p.Timestamp.Sub(last).Seconds() > float64(f.frames[n])/f.video.Framerate {
		return nil // no picture has its time
	}
	if f.format == nil {
		channels, _ := strconv.Atoi(t.ChannelConfig)
		f.format = &loc.AudioFormat{Codec: t.Codec, SampleRate: t.Samplerate, Channels: max(1, channels), Config: t.config}
		f.offset = p.Timestamp.Sub(first)
	}
	samples := 1024
	if t.Codec == "opus" {
		if samples, err = loc.OpusSamples(o.Payload); err != nil {
			return nil //nolint:nilerr // skip damaged packets
		}
	}
	f.sound = append(f.sound, cmaf.Sample{Data: o.Payload, Duration: uint32(samples), Sync: true})
	return nil
}

// decoder is an FFmpeg process that decodes one stream.
type decoder struct {
	process       *ffmpeg.Process
	pipe          ffmpeg.Pipe
	width, height int
	frame         []byte
}

// format420 returns FFmpeg's name for 4:2:0 in the video's range.
func (f *film) format420() string {
	if f.sphere.Color.FullRange {
		return "yuvj420p"
	}
	return "yuv420p"
}

func (f *film) decode(ctx context.Context, stream, width, height int) (*decoder, error) {
	p, pipes, err := ffmpeg.Start(
		ctx, 1, nil, "-threads", "1", "-f", "h264", "-i", "file:"+filepath.Join(f.dir, strconv.Itoa(stream)+".h264"),
		"-vsync", "passthrough", "-f", "rawvideo", "-pix_fmt", f.format420(), "pipe:3",
	)
	if err != nil {
		return nil, err
	}
	return &decoder{process: p, pipe: pipes[0], width: width, height: height, frame: make([]byte, width*height*3/2)}, nil
}

func (d *decoder) next() error {
	if _, err := io.ReadFull(d.pipe, d.frame); err != nil {
		if werr := d.process.Wait(); werr != nil {
			return werr
		}
		return fmt.Errorf("a stream has fewer frames than objects: %w", err)
	}
	return nil
}

func (d *decoder) close() {
	d.process.Kill()
	_ = d.process.Wait() // it was killed
	_ = d.pipe.Close()
}

// compose decodes all streams in parallel, composes the frames and passes them to FFmpeg for
// encoding.
func (f *film) compose(ctx context.Context, chosen [][]*filmTrack, out string) (result Film, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	decoders := make([]*decoder, 1+len(f.tiles))
	defer func() {
		for _, d := range decoders {
			if d != nil {
				d.close()
			}
		}
	}()
	s := f.sphere
	for i := range decoders {
		w, h := f.video.Width, f.video.Height
		if i > 0 {
			r := s.Rect(i - 1)
			w, h = r.Dx(), r.Dy()*s.Eyes()
		}
		info, err := os.Stat(filepath.Join(f.dir, strconv.Itoa(i)+".h264"))
		if err != nil {
			return result, err
		}
		if info.Size() == 0 {
			continue // never chosen
		}
		if decoders[i], err = f.decode(ctx, i, w, h); err != nil {
			return result, err
		}
	}
	args := []string{
		"-f", "rawvideo", "-pix_fmt", f.format420(), "-s", fmt.Sprintf("%dx%d", s.Width, s.Height*s.Eyes()),
		"-r", strconv.FormatFloat(f.video.Framerate, 'f', -1, 64), "-i", "pipe:0",
	}
	if len(f.sound) > 0 {
		path := filepath.Join(f.dir, "sound.mp4")
		b := append(
			cmaf.Init(cmaf.Track{Timescale: uint32(f.format.SampleRate), Audio: f.format}, 0),
			cmaf.Fragment(1, 0, f.sound)...)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return result, err
		}
		args = append(
			args, "-itsoffset", strconv.FormatFloat(f.offset.Seconds(), 'f', 6, 64), "-i", "file:"+path, "-map", "0",
			"-map", "1", "-c:a", "copy",
		)
	}
	args = append(args, "-c:v", "libx264", "-crf", "18", "-pix_fmt", f.format420())
	for option, name := range map[string]string{
		"-color_primaries": s.Color.Primaries, "-color_trc": s.Color.Transfer, "-colorspace": s.Color.Matrix,
	} {
		if name != "" {
			args = append(args, option, name)
		}
	}
	args = append(args, "-f", "mp4", "file:"+out)
	canvas := newCanvas(s)
	total := 0
	for _, n := range f.frames {
		total += n
	}
	err = encode(ctx, args, func(_ context.Context, w io.Writer) error {
		for i, g := range f.groups {
			if i > 0 { // a gap in the recording becomes a still image
				for range int(min(g-f.groups[i-1]-1, maxGap)) * f.frames[i-1] {
					if _, err := w.Write(canvas.b); err != nil {
						return err
					}
					result.Frames++
				}
			}
			video := f.tracks[f.video.Name].groups[g] == f.frames[i] && decoders[0] != nil
			for n := range f.frames[i] {
				if video {
					if err := decoders[0].next(); err != nil {
						return err
					}
				}
				for tile, t := range chosen[i] {
					switch {
					case t != nil:
						d := decoders[1+tile]
						if err := d.next(); err != nil {
							return fmt.Errorf("tile %d: %w", tile, err)
						}
						canvas.put(s.Rect(tile), d.frame)
					case video:
						canvas.enlarge(s.Rect(tile), decoders[0])
					}
					if t == nil && n == 0 {
						result.Missing++
					}
				}
				if len(f.tiles) == 0 && video {
					canvas.whole(decoders[0])
				}
				if _, err := w.Write(canvas.b); err != nil {
					return err
				}
				result.Frames++
				if f.cfg.Progress != nil {
					f.cfg.Progress(uint64(result.Frames) * 1000 / uint64(max(total, result.Frames)))
				}
			}
		}
		return nil
	})
	return result, err
}

// maxGap is the maximum number of consecutive missing GoPs shown as a still image.
const maxGap = 60
