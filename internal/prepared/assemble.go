package prepared

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/cmaf"
	"holocast/internal/loc"
	"holocast/internal/spherical"
	"holocast/internal/tileencoder"
)

// output is a track's file being written.
type output struct {
	name    string
	init    []byte
	index   []byte
	entries []cmaf.Entry
	file    *os.File
	w       *bufio.Writer
	at      uint64 // media time of the next fragment
	bytes   int64
	written int // number of fragments
}

// batch is the number of files written in one pass over the parts.
const batch = 128

// assemble writes the folder's files from the parts.
func (p *preparation) assemble(frames int64, sound []loc.Packet) error {
	gops := (frames + p.gop - 1) / p.gop
	headers := make([]partHeader, gops)
	rates := make([]catalog.Rates, gops)
	for g := range headers {
		var err error
		if headers[g], err = p.readHeader(int64(g)); err != nil {
			return fmt.Errorf("%s: %w", p.part(int64(g), "json"), err)
		}
		at := time.Duration(float64(int64(g)*p.gop) * float64(p.id.FPSDen) / float64(p.id.FPSNum) * 1e9)
		rates[g] = catalog.Rates{T: p.id.Start + at.Milliseconds(), Data: headers[g].Rates}
	}
	outputs := p.outputs(headers)
	for at := 0; at < len(outputs); at += batch {
		if err := p.write(outputs, at, min(at+batch, len(outputs)), headers); err != nil {
			return err
		}
	}
	format := p.video.AudioFormat()
	if len(sound) == 0 {
		format = nil
	}
	var audio *output
	if format != nil {
		var err error
		if audio, err = p.writeSound(sound, format, int(gops)); err != nil {
			return err
		}
	}
	if err := writeFile(filepath.Join(p.dir, ratesFile), mustMarshal(rates)); err != nil {
		return err
	}
	length := time.Duration(float64(frames) * float64(p.id.FPSDen) / float64(p.id.FPSNum) * 1e9)
	c, err := p.catalog(format, length)
	if err != nil {
		return err
	}
	manifest, err := p.manifest(outputs, audio, c, length)
	if err == nil {
		err = writeFile(filepath.Join(p.dir, manifestFile), manifest)
	}
	if err != nil {
		return err
	}
	b, err := c.Marshal()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(p.dir, catalogFile), b)
}

// outputs returns the outputs of the video and the tiles, in the order of a part's tracks.
func (p *preparation) outputs(headers []partHeader) []*output {
	s := &p.id.Sphere
	var frames uint64
	for _, h := range headers {
		frames += uint64(h.Frames)
	}
	add := func(name string, t cmaf.Track, bytes func(h *partHeader) int64) *output {
		t.Timescale = uint32(p.id.FPSNum)
		o := &output{name: name, init: cmaf.Init(t, frames*uint64(p.id.FPSDen))}
		for i := range headers {
			h := &headers[i]
			o.entries = append(
				o.entries,
				cmaf.Entry{
					Size:     uint32(cmaf.FragmentSize(h.Frames, bytes(h))),
					Duration: uint32(h.Frames * p.id.FPSDen),
				},
			)
		}
		o.index = cmaf.Index(t.Timescale, o.entries)
		return o
	}
	w, h := tileencoder.VideoSize(s)
	meta := spherical.Of(s)
	list := []*output{
		add(
			catalog.VideoTrack,
			cmaf.Track{
				Width:     w,
				Height:    h * s.Eyes(),
				AVCConfig: p.enc.Config(tileencoder.Video, 0),
				Spherical: &meta,
			},
			func(h *partHeader) int64 { return h.VideoBytes },
		),
	}
	for i := range s.Tiles() {
		r := s.Rect(i)
		for q := range s.Qualities {
			list = append(list, add(catalog.TileTrack(i, q),
				cmaf.Track{Width: r.Dx(), Height: r.Dy() * s.Eyes(), AVCConfig: p.enc.Config(i, q)},
				func(h *partHeader) int64 { return *h.Rates.Bytes[i][q] }))
		}
	}
	return list
}

// write writes the files with indices from up to, but excluding, to.
func (p *preparation) write(outputs []*output, from, to int, headers []partHeader) (err error) {
	defer func() {
		closed := closeAll(outputs[from:to])
		err = cmp.Or(err, closed)
	}()
	for _, o := range outputs[from:to] {
		if err := o.create(p.dir); err != nil {
			return err
		}
	}
	for g := range headers {
		tracks, err := p.readPart(int64(g), &headers[g])
		if err != nil {
			return err
		}
		for i, o := range outputs[from:to] {
			if err := o.fragment(tracks[from+i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *output) create(dir string) error {
	path := filepath.Join(dir, fileOf(o.name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var err error
	if o.file, err = os.Create(path); err != nil {
		return err
	}
	o.w = bufio.NewWriterSize(o.file, 64<<10)
	_, err = o.w.Write(append(o.init[:len(o.init):len(o.init)], o.index...))
	return err
}

func (o *output) fragment(samples []cmaf.Sample) error {
	b := cmaf.Fragment(uint32(o.written+1), o.at, samples)
	if len(b) != int(o.entries[o.written].Size) {
		return fmt.Errorf("%s: GoP %d has %d bytes, but its index says %d", o.file.Name(), o.written, len(b),
			o.entries[o.written].Size)
	}
	o.at += uint64(o.entries[o.written].Duration)
	o.bytes += int64(len(b))
	o.written++
	_, err := o.w.Write(b)
	return err
}

// closeAll closes the outputs. It returns only the first error, because on a full disk all of them
// fail.
func closeAll(outputs []*output) (err error) {
	for _, o := range outputs {
		closed := o.close()
		err = cmp.Or(err, closed)
	}
	return err
}

func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	flushed, closed := o.w.Flush(), o.file.Close()
	return cmp.Or(flushed, closed)
}

// writeSound writes the sound in fragments aligned with the GoPs.
func (p *preparation) writeSound(sound []loc.Packet, f *loc.AudioFormat, gops int) (_ *output, err error) {
	parts := make([][]cmaf.Sample, gops)
	var at uint64
	for _, x := range sound {
		seconds := float64(at) / float64(f.SampleRate)
		g := min(int(seconds*float64(p.id.FPSNum)/float64(p.id.FPSDen)/float64(p.gop)), gops-1)
		parts[g] = append(parts[g], cmaf.Sample{Data: x.Data, Duration: uint32(x.Samples), Sync: true})
		at += uint64(x.Samples)
	}
	o := &output{name: catalog.AudioTrack, init: cmaf.Init(cmaf.Track{Timescale: uint32(f.SampleRate), Audio: f}, at)}
	for _, samples := range parts {
		var e cmaf.Entry
		var bytes int64
		for _, s := range samples {
			bytes, e.Duration = bytes+int64(len(s.Data)), e.Duration+s.Duration
		}
		if e.Size = uint32(cmaf.FragmentSize(len(samples), bytes)); len(samples) > 0 {
			o.entries = append(o.entries, e)
		}
	}
	o.index = cmaf.Index(uint32(f.SampleRate), o.entries)
	defer func() {
		closed := o.close()
		err = cmp.Or(err, closed)
	}()
	if err := o.create(p.dir); err != nil {
		return nil, err
	}
	for _, samples := range parts {
		if len(samples) == 0 {
			continue
		}
		if err := o.fragment(samples); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// catalog returns the catalog of the recorded sphere (docs/spec/tiles.md).
func (p *preparation) catalog(f *loc.AudioFormat, length time.Duration) (*catalog.Catalog, error) {
	c := &catalog.Catalog{Version: catalog.Version, GeneratedAt: time.Now().UnixMilli()}
	if err := p.enc.Describe(c, tileencoder.Description{Label: p.video.Name(), Audio: f}); err != nil {
		return nil, err
	}
	for i := range c.Tracks {
		t := &c.Tracks[i]
		t.IsLive, t.TargetLatency, t.TrackDuration = false, 0, max(1, length.Milliseconds())
		t.Template = catalog.Template{
			MediaStep:     1,
			Step:          [2]uint64{1, 0},
			Wallclock:     float64(p.id.Start),
			WallclockStep: 1,
		}
	}
	return c, nil
}

// mpd is an MPEG-DASH manifest (ISO/IEC 23009-1) with Spatial Relationship Descriptions (Annex H).
type mpd struct {
	XMLName   xml.Name `xml:"urn:mpeg:dash:schema:mpd:2011 MPD"`
	Profiles  string   `xml:"profiles,attr"`
	Type      string   `xml:"type,attr"`
	Duration  string   `xml:"mediaPresentationDuration,attr"`
	MinBuffer string   `xml:"minBufferTime,attr"`
	Sets      []mpdSet `xml:"Period>AdaptationSet"`
}

type mpdSet struct {
	ID              int      `xml:"id,attr"`
	ContentType     string   `xml:"contentType,attr"`
	MimeType        string   `xml:"mimeType,attr"`
	Aligned         bool     `xml:"subsegmentAlignment,attr"`
	StartsWithSAP   int      `xml:"subsegmentStartsWithSAP,attr"`
	Supplemental    *mpdRef  `xml:"SupplementalProperty"`
	Role            *mpdRef  `xml:"Role"`
	Representations []mpdRep `xml:"Representation"`
}

type mpdRef struct {
	Scheme string `xml:"schemeIdUri,attr"`
	Value  string `xml:"value,attr"`
}

type mpdRep struct {
	ID        string `xml:"id,attr"`
	Codecs    string `xml:"codecs,attr"`
	Bandwidth int64  `xml:"bandwidth,attr"`
	Width     int    `xml:"width,attr,omitempty"`
	Height    int    `xml:"height,attr,omitempty"`
	FrameRate string `xml:"frameRate,attr,omitempty"`
	Rate      int    `xml:"audioSamplingRate,attr,omitempty"`
	BaseURL   string `xml:"BaseURL"`
	Index     struct {
		Range string `xml:"indexRange,attr"`
		Init  struct {
			Range string `xml:"range,attr"`
		} `xml:"Initialization"`
	} `xml:"SegmentBase"`
}

// manifest returns the folder's MPEG-DASH manifest.
func (p *preparation) manifest(
	outputs []*output,
	audio *output,
	c *catalog.Catalog,
	length time.Duration,
) ([]byte, error) {
	s := &p.id.Sphere
	tracks := map[string]*catalog.Track{}
	for i := range c.Tracks {
		tracks[c.Tracks[i].Name] = &c.Tracks[i]
	}
	represent := func(o *output) mpdRep {
		t := tracks[o.name]
		r := mpdRep{
			ID: o.name, Codecs: t.Codec, Bandwidth: max(1, int64(float64(8*o.bytes)/length.Seconds())), Width: t.Width,
			Height: t.Height,
			Rate:   t.Samplerate, BaseURL: filepath.ToSlash(fileOf(o.name)),
		}
		if t.Framerate > 0 {
			r.FrameRate = fmt.Sprintf("%d/%d", p.id.FPSNum, p.id.FPSDen)
		}
		r.Index.Init.Range = fmt.Sprintf("0-%d", len(o.init)-1)
		r.Index.Range = fmt.Sprintf("%d-%d", len(o.init), len(o.init)+len(o.index)-1)
		return r
	}
	doc := mpd{
		Profiles:  "urn:mpeg:dash:profile:isoff-on-demand:2011",
		Type:      "static",
		Duration:  fmt.Sprintf("PT%.3fS", length.Seconds()),
		MinBuffer: "PT1S",
	}
	set := func(content, mime, srd, role string, list ...*output) {
		x := mpdSet{ID: len(doc.Sets) + 1, ContentType: content, MimeType: mime, Aligned: true, StartsWithSAP: 1}
		if srd != "" {
			x.Supplemental = &mpdRef{"urn:mpeg:dash:srd:2014", srd}
		}
		if role != "" {
			x.Role = &mpdRef{"urn:mpeg:dash:role:2011", role}
		}
		for _, o := range list {
			x.Representations = append(x.Representations, represent(o))
		}
		doc.Sets = append(doc.Sets, x)
	}
	whole := fmt.Sprintf("0,0,0,%d,%d,%d,%d", s.Width, s.Height, s.Width, s.Height)
	set("video", "video/mp4", whole, "main", outputs[0])
	for i := range s.Tiles() {
		r := s.Rect(i)
		set(
			"video",
			"video/mp4",
			fmt.Sprintf("0,%d,%d,%d,%d,%d,%d", r.Min.X, r.Min.Y, r.Dx(), r.Dy(), s.Width, s.Height),
			"supplementary",
			outputs[1+i*s.Qualities:1+(i+1)*s.Qualities]...)
	}
	if audio != nil {
		set("audio", "audio/mp4", "", "main", audio)
	}
	b, err := xml.MarshalIndent(doc, "", "  ")
	return append(append([]byte(xml.Header), b...), '\n'), err
}
