package prepared

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/cmaf"
	"holocast/internal/equirect"
	"holocast/internal/loc"
	"holocast/internal/tileencoder"
)

// Options configures Prepare. Zero fields mean the defaults.
type Options struct {
	equirect.Options
	Columns, Rows int    // defaults: 8 and 4
	Qualities     int    // default: 5
	Quantisers    []int  // per quality, the worst first
	Preset        string // default: medium
	Log           *slog.Logger
	// Progress, if set, is called with the number of pictures done and the approximate total, which
	// is never less than done and equals it if the total is unknown.
	Progress func(done, total int64)
}

// workFolder holds the encoded GoPs, two files each, until Prepare succeeds.
const workFolder = ".prepare"

// identity must match for an interrupted preparation to resume.
type identity struct {
	Version    int
	Input      string
	Size       int64
	Modified   time.Time
	Sphere     catalog.Sphere
	FPSNum     int
	FPSDen     int
	Quantisers []int
	Preset     string
	Start      int64 // start of the media time, UNIX ms; not compared
}

// preparation is the state of a call of Prepare.
type preparation struct {
	opts  Options
	dir   string
	work  string
	video *equirect.Video
	id    identity
	enc   *tileencoder.Encoder
	gop   int64 // frames
}

// Prepare encodes a video as tiles into a folder. Calling it again resumes an interrupted
// preparation.
func Prepare(ctx context.Context, input, dir string, opts Options) error {
	if opts.Columns == 0 && opts.Rows == 0 {
		opts.Columns, opts.Rows = 8, 4
	}
	if opts.Qualities == 0 {
		opts.Qualities = 5
	}
	if opts.Preset == "" {
		opts.Preset = "medium"
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if len(opts.Quantisers) == 0 {
		opts.Quantisers = tileencoder.Quantisers(max(1, min(opts.Qualities, catalog.MaxQualities)))
	}
	p := &preparation{opts: opts, dir: dir, work: filepath.Join(dir, workFolder)}
	if err := p.run(ctx, input); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("%w: free some space, then run the same command again to resume", err)
		}
		return err
	}
	return nil
}

func (p *preparation) run(ctx context.Context, input string) error {
	var err error
	if p.video, err = equirect.Open(ctx, input, p.opts.Options); err != nil {
		return err
	}
	if p.video.Endless() {
		return fmt.Errorf("%s is live and has no end; prepare needs a file", input)
	}
	for _, note := range p.video.Notes {
		p.opts.Log.Warn(note, "input", input)
	}
	sphere := p.video.Sphere
	sphere.Columns, sphere.Rows, sphere.Qualities = p.opts.Columns, p.opts.Rows, p.opts.Qualities
	p.gop = int64(tileencoder.GOP(p.video.FPSNum, p.video.FPSDen))
	if p.enc, err = tileencoder.New(tileencoder.Config{
		Sphere: sphere, FPSNum: p.video.FPSNum, FPSDen: p.video.FPSDen,
		Quantisers: p.opts.Quantisers, Preset: p.opts.Preset, RatesEvery: 5,
	}); err != nil {
		return err
	}
	defer p.enc.Close()
	if err := p.identify(input, sphere); err != nil {
		return err
	}
	frames, sound, err := p.encode(ctx)
	if err != nil {
		return err
	}
	if err := p.assemble(frames, sound); err != nil {
		return err
	}
	return os.RemoveAll(p.work)
}

// identify creates the folders, or checks that existing ones belong to this preparation.
func (p *preparation) identify(input string, sphere catalog.Sphere) error {
	p.id = identity{
		Version: 1, Input: input, Sphere: sphere, FPSNum: p.video.FPSNum, FPSDen: p.video.FPSDen,
		Quantisers: p.opts.Quantisers, Preset: p.opts.Preset, Start: time.Now().UnixMilli(),
	}
	if file := p.video.Input.File(); file != "" {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		p.id.Input, p.id.Size, p.id.Modified = file, info.Size(), info.ModTime().UTC()
	}
	if _, err := os.Stat(filepath.Join(p.dir, catalogFile)); err == nil {
		return fmt.Errorf("%s already holds prepared video: delete it, or name another folder", p.dir)
	}
	path := filepath.Join(p.work, "settings.json")
	old, err := os.ReadFile(path)
	if err == nil {
		var was identity
		if err := json.Unmarshal(old, &was); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		now := p.id
		now.Start = was.Start
		if a, b := mustMarshal(was), mustMarshal(now); !bytes.Equal(a, b) {
			return fmt.Errorf("%s holds an unfinished preparation of %s: delete it, or name another folder", p.dir,
				was.Input)
		}
		p.id = was
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if list, err := os.ReadDir(p.dir); err == nil && len(list) > 0 {
		return fmt.Errorf("%s is not empty: name an empty folder, or a new one", p.dir)
	}
	if err := os.MkdirAll(p.work, 0o755); err != nil {
		return err
	}
	return writeFile(path, mustMarshal(p.id))
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // types of this package marshal
	}
	return b
}

// writeFile writes a file atomically.
func writeFile(path string, parts ...[]byte) error {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	for _, b := range parts {
		if _, err = f.Write(b); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

func (p *preparation) part(gop int64, kind string) string {
	return filepath.Join(p.work, fmt.Sprintf("%06d.%s", gop, kind))
}

// partHeader describes an encoded GoP.
type partHeader struct {
	Frames     int
	VideoBytes int64
	Rates      catalog.RatesData
}

// readAhead is the number of pictures decoded ahead of the encoders.
const readAhead = 4

// encode encodes the missing GoPs. It returns the number of frames and the sound.
func (p *preparation) encode(ctx context.Context) (frames int64, sound []loc.Packet, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := p.video.Start(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	var audio sync.WaitGroup
	defer audio.Wait()
	defer cancel()
	var soundErr error
	if r.HasAudio() {
		audio.Go(func() { sound, soundErr = readSound(r) })
	}
	decoded, free := make(chan *equirect.Frame, readAhead), make(chan *equirect.Frame, readAhead+1)
	for range cap(free) {
		free <- p.video.NewFrame()
	}
	var readErr error
	go func() {
		defer close(decoded)
		for {
			select {
			case f := <-free:
				if readErr = r.Next(f); readErr != nil {
					return
				}
				select {
				case decoded <- f:
				case <-ctx.Done():
					readErr = ctx.Err()
					return
				}
			case <-ctx.Done():
				readErr = ctx.Err()
				return
			}
		}
	}()
	total := int64(p.video.Info.Duration.Seconds() * float64(p.video.FPSNum) / float64(p.video.FPSDen))
	g := p.newGOP()
	skip := false
	fail := func(err error) (int64, []loc.Packet, error) {
		cancel()
		for range decoded { // drain
			continue
		}
		return 0, nil, err
	}
	for f := range decoded {
		if frames%p.gop == 0 {
			if frames > 0 && !skip {
				if err := p.writePart(frames/p.gop-1, g); err != nil {
					return fail(err)
				}
			}
			skip = p.have(frames/p.gop, p.gop)
			g.reset()
		}
		if !skip {
			if err := p.enc.Encode(&f.Frame, frames%p.gop == 0, nil, g.add); err != nil {
				return fail(err)
			}
			g.frames++
		}
		free <- f
		frames++
		if p.opts.Progress != nil {
			p.opts.Progress(frames, max(total, frames))
		}
	}
	audio.Wait()
	switch {
	case ctx.Err() != nil:
		return 0, nil, ctx.Err()
	case readErr != io.EOF:
		return 0, nil, readErr
	case soundErr != nil:
		return 0, nil, fmt.Errorf("%s: sound: %w", p.video.Input, soundErr)
	case frames == 0:
		return 0, nil, fmt.Errorf("%s: no pictures", p.video.Input)
	case (frames+p.gop-1)/p.gop > cmaf.MaxFragments:
		return 0, nil, fmt.Errorf("%s: longer than %d GoPs", p.video.Input, cmaf.MaxFragments)
	}
	if !skip {
		if err := p.writePart((frames-1)/p.gop, g); err != nil {
			return 0, nil, err
		}
	}
	return frames, sound, nil
}

func readSound(r *equirect.Reader) (sound []loc.Packet, err error) {
	a, err := r.Audio()
	if err != nil {
		if err == io.EOF {
			return nil, nil // not a packet
		}
		return nil, err
	}
	for {
		x, err := a.Next()
		if err == io.EOF {
			return sound, nil
		}
		if err != nil {
			return nil, err
		}
		sound = append(sound, x)
	}
}

// gopBuffer holds the frames of the GoP being encoded.
type gopBuffer struct {
	mu     sync.Mutex
	frames int
	tracks [][][]byte // [track][frame]; track 0 is the video, then tiles by quality
	each   int        // qualities
}

func (p *preparation) newGOP() *gopBuffer {
	return &gopBuffer{
		tracks: make([][][]byte, 1+p.id.Sphere.Tiles()*p.id.Sphere.Qualities),
		each:   p.id.Sphere.Qualities,
	}
}

func (g *gopBuffer) reset() {
	g.frames = 0
	for i := range g.tracks {
		g.tracks[i] = g.tracks[i][:0]
	}
}

func (g *gopBuffer) add(tile, quality int, payload []byte) error {
	i := 0
	if tile != tileencoder.Video {
		i = 1 + tile*g.each + quality
	}
	b := bytes.Clone(payload)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tracks[i] = append(g.tracks[i], b)
	return nil
}

// writePart stores a GoP: first its frames, then the header that marks them complete.
func (p *preparation) writePart(gop int64, g *gopBuffer) error {
	h := partHeader{Frames: g.frames, Rates: p.enc.Rates()}
	var b []byte
	for i, frames := range g.tracks {
		for _, f := range frames {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
			if i == 0 {
				h.VideoBytes += int64(len(f))
			}
		}
	}
	if err := writeFile(p.part(gop, "frames"), b); err != nil {
		return err
	}
	return writeFile(p.part(gop, "json"), mustMarshal(h))
}

// have reports whether a GoP with the given number of frames is complete. The last GoP may be short
// and is encoded again.
func (p *preparation) have(gop, frames int64) bool {
	h, err := p.readHeader(gop)
	return err == nil && int64(h.Frames) == frames
}

func (p *preparation) readHeader(gop int64) (h partHeader, err error) {
	b, err := os.ReadFile(p.part(gop, "json"))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err == nil {
		err = (&catalog.Rates{Data: h.Rates}).Validate(&p.id.Sphere)
	}
	return h, err
}

// readPart reads a GoP's frames.
func (p *preparation) readPart(gop int64, h *partHeader) (tracks [][]cmaf.Sample, err error) {
	path := p.part(gop, "frames")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for range 1 + p.id.Sphere.Tiles()*p.id.Sphere.Qualities {
		var samples []cmaf.Sample
		for i := range h.Frames {
			if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
				return nil, fmt.Errorf("%s is damaged: delete it and run the same command again", path)
			}
			n := 4 + int(binary.BigEndian.Uint32(b))
			samples = append(samples, cmaf.Sample{Data: b[4:n:n], Duration: uint32(p.id.FPSDen), Sync: i == 0})
			b = b[n:]
		}
		tracks = append(tracks, samples)
	}
	return tracks, nil
}
