// Package prepared reads and writes folders of prepared 360° video. `holocast prepare` creates them
// and replays read them. A folder contains
//
//	catalog.json          the session's catalog (MSF)
//	rates.json            bytes and distortion of each tile, GoP and quality
//	manifest.mpd          MPEG-DASH with SRD, for other players
//	video.mp4, audio.mp4  the whole sphere at low resolution, and the sound
//	tiles/<tile>/<quality>.mp4
//
// Media files are CMAF with a fragment per GoP (package cmaf).
package prepared

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/cmaf"
	"holocast/internal/tileencoder"
)

// File names.
const (
	catalogFile  = "catalog.json"
	ratesFile    = "rates.json"
	manifestFile = "manifest.mpd"
)

// fileOf returns the file name of a track.
func fileOf(track string) string { return filepath.FromSlash(track) + ".mp4" }

// IsFolder reports whether path is a folder; it then holds prepared video, not a recording.
func IsFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Sphere is an open folder. Its methods are safe for concurrent use.
type Sphere struct {
	Catalog *catalog.Catalog
	// Video is the catalog's track of the entire sphere.
	Video *catalog.Track
	Rates []catalog.Rates
	Start time.Time // capture time of the first frame

	dir    string
	tracks []*file // in the catalog's order, without rates
}

// file is an open track.
type file struct {
	catalog.Track
	f         *os.File
	config    []byte // avcC; nil for sound
	timescale float64
	priority  uint8
	fragments []fragment
}

type fragment struct {
	at    int64 // offset in the file
	size  int64
	begin float64 // seconds of media time
}

// Limits enforced by Open.
const (
	maxDocument = 256 << 20 // bytes of rates.json
	maxHeader   = 4 << 20   // bytes of init segment and index
	maxFragment = 1 << 30   // bytes of a GoP
)

// Open opens a folder. Errors name the file.
func Open(dir string) (*Sphere, error) {
	s := &Sphere{dir: dir}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepared video %s: %w", dir, err), s.Close())
	}
	return s, nil
}

func (s *Sphere) open() error {
	b, err := os.ReadFile(filepath.Join(s.dir, catalogFile))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(s.dir, workFolder)); err == nil {
			return errors.New("its preparation was interrupted: run holocast prepare again to resume it")
		}
		return fmt.Errorf("it has no %s: holocast prepare did not write it", catalogFile)
	}
	if err != nil {
		return err
	}
	if s.Catalog, err = catalog.Parse(b); err != nil {
		return fmt.Errorf("%s: %w", catalogFile, err)
	}
	if s.Video = s.Catalog.Sphere(); s.Video == nil {
		return fmt.Errorf("%s: no 360° video in it", catalogFile)
	}
	s.Start = time.UnixMilli(int64(s.Video.Template.Wallclock))
	if err := s.readRates(); err != nil {
		return fmt.Errorf("%s: %w", ratesFile, err)
	}
	for _, t := range s.Catalog.Tracks {
		if t.Packaging != catalog.PackagingLOC {
			continue
		}
		if !filepath.IsLocal(fileOf(t.Name)) {
			return fmt.Errorf("%s: track %.80q", catalogFile, t.Name)
		}
		f := &file{Track: t, priority: tileencoder.PriorityTile}
		s.tracks = append(s.tracks, f)
		if err := f.open(s); err != nil {
			return fmt.Errorf("%s: %w", fileOf(t.Name), err)
		}
		if t.Role != catalog.RoleAudio && len(f.fragments) != len(s.Rates) {
			return fmt.Errorf("%s: %d GoPs, but %s has %d", fileOf(t.Name), len(f.fragments), ratesFile, len(s.Rates))
		}
	}
	return nil
}

func (s *Sphere) readRates() error {
	f, err := os.Open(filepath.Join(s.dir, ratesFile))
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return err
	}
	if len(b) > maxDocument {
		return fmt.Errorf("more than %d bytes", maxDocument)
	}
	if err := json.Unmarshal(b, &s.Rates); err != nil {
		return err
	}
	for i := range s.Rates {
		if err := s.Rates[i].Validate(s.Video.Sphere); err != nil {
			return fmt.Errorf("GoP %d: %w", i, err)
		}
	}
	if len(s.Rates) == 0 {
		return errors.New("it has no GoPs")
	}
	return nil
}

// open opens the track's file and reads its index.
func (f *file) open(s *Sphere) (err error) {
	if f.f, err = os.Open(filepath.Join(s.dir, fileOf(f.Name))); err != nil {
		return err
	}
	switch f.Role {
	case catalog.RoleAudio:
		f.priority, f.timescale = tileencoder.PriorityAudio, float64(f.Samplerate)
	case catalog.RoleVideo:
		f.priority = tileencoder.PriorityVideo
	}
	if f.Role != catalog.RoleAudio {
		if f.config, err = s.Catalog.Inline(f.Track); err != nil {
			return err
		}
		num, _, err := frameRate(f.Framerate)
		if err != nil {
			return err
		}
		f.timescale = float64(num)
	}
	if f.timescale <= 0 {
		return errors.New("the catalog has no frame rate for it")
	}
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	var entries []cmaf.Entry
	var at int64
	for n := int64(64 << 10); ; n *= 4 {
		b := make([]byte, min(n, info.Size()))
		if _, err := io.ReadFull(io.NewSectionReader(f.f, 0, info.Size()), b); err != nil {
			return err
		}
		entries, at, err = cmaf.ParseIndex(b)
		if err == nil {
			break
		}
		if !errors.Is(err, cmaf.ErrShort) || n >= maxHeader || n >= info.Size() {
			return err
		}
	}
	begin := 0.0
	for _, e := range entries {
		f.fragments = append(f.fragments, fragment{at, int64(e.Size), begin})
		at, begin = at+int64(e.Size), begin+float64(e.Duration)/f.timescale
		if e.Size > maxFragment {
			return fmt.Errorf("a fragment of %d bytes is too large", e.Size)
		}
	}
	if at > info.Size() {
		return fmt.Errorf("truncated: %d bytes of %d", info.Size(), at)
	}
	return nil
}

// frameRate converts a rate written by Prepare to a fraction.
func frameRate(fps float64) (num, den int, err error) {
	for _, d := range []int{1, 1001, 1000} {
		n := fps * float64(d)
		if r := int(n + 0.5); r > 0 && r < 1<<20 && abs(n-float64(r)) < 1e-6*n {
			return r, d, nil
		}
	}
	return 0, 0, fmt.Errorf("unsupported frame rate %v", fps)
}

func abs(v float64) float64 {
	if v < 0 {
		return -v
	}
	return v
}

// read reads the samples of a fragment.
func (f *file) read(i int) ([]cmaf.Sample, error) {
	x := f.fragments[i]
	b := make([]byte, x.size)
	if _, err := f.f.ReadAt(b, x.at); err != nil {
		return nil, fmt.Errorf("%s: %w", f.f.Name(), err)
	}
	samples, err := cmaf.ParseFragment(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.f.Name(), err)
	}
	return samples, nil
}

// headerGuess is larger than most fragment headers, which list the samples.
const headerGuess = 4 << 10

// list reads a fragment's list of samples, without their data.
func (f *file) list(i int) ([]cmaf.Sample, error) {
	x := f.fragments[i]
	for n := int64(headerGuess); ; n *= 8 {
		b := make([]byte, min(n, x.size))
		if _, err := f.f.ReadAt(b, x.at); err != nil {
			return nil, fmt.Errorf("%s: %w", f.f.Name(), err)
		}
		samples, err := cmaf.ParseHeader(b)
		if err == nil {
			return samples, nil
		}
		if !errors.Is(err, cmaf.ErrShort) || n >= x.size {
			return nil, fmt.Errorf("%s: %w", f.f.Name(), err)
		}
	}
}

// Close closes the files.
func (s *Sphere) Close() error {
	var errs []error
	for _, t := range s.tracks {
		if t.f != nil {
			errs = append(errs, t.f.Close())
		}
	}
	return errors.Join(errs...)
}
