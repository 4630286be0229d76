// Package cmaf writes and reads the MP4 files of prepared 360° video. Each file has one track, in
// CMAF (ISO/IEC 23000-19) fragments of one GoP each, after an index (sidx). The package does no
// I/O.
package cmaf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"holocast/internal/loc"
	"holocast/internal/mp4box"
	"holocast/internal/spherical"
)

// Track describes a track in its init segment.
type Track struct {
	Timescale uint32 // units per second
	// Video.
	Width, Height int
	AVCConfig     []byte
	Spherical     *spherical.Metadata // nil unless the picture is an entire sphere
	// Sound.
	Audio *loc.AudioFormat
}

// Sample is a video frame or an audio packet.
type Sample struct {
	Data     []byte
	Duration uint32 // units of the track's timescale
	Sync     bool   // independently decodable
}

func box(kind string, parts ...[]byte) []byte { return mp4box.Append(nil, kind, parts...) }

// full returns a box with a version and flags.
func full(kind string, version byte, flags uint32, parts ...[]byte) []byte {
	return box(kind, append([][]byte{binary.BigEndian.AppendUint32(nil, uint32(version)<<24|flags)}, parts...)...)
}

func u16(v ...uint16) (b []byte) {
	for _, x := range v {
		b = binary.BigEndian.AppendUint16(b, x)
	}
	return b
}

func u32(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

// matrix is the identity transformation in movie and track headers.
var matrix = u32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)

// Init returns the init segment. duration is in units of the timescale.
func Init(t Track, duration uint64) []byte {
	zeros := func(n int) []byte { return make([]byte, n) }
	handler, header := "vide", full("vmhd", 0, 1, zeros(8))
	volume := uint16(0)
	if t.Audio != nil {
		handler, header, volume = "soun", full("smhd", 0, 0, zeros(4)), 0x100
	}
	d64 := binary.BigEndian.AppendUint64(nil, duration)
	mvhd := full("mvhd", 1, 0, zeros(16), u32(t.Timescale), d64, u32(0x10000), u16(0x100), zeros(10), matrix, zeros(24),
		u32(2))
	tkhd := full("tkhd", 1, 7, zeros(16), u32(1, 0), d64, zeros(8), u16(0, 0, volume, 0), matrix,
		u32(uint32(t.Width)<<16, uint32(t.Height)<<16))
	mdhd := full("mdhd", 1, 0, zeros(16), u32(t.Timescale), d64, u16(0x55c4, 0))
	hdlr := full("hdlr", 0, 0, zeros(4), []byte(handler), zeros(12), []byte("Holocast\x00"))
	dinf := box("dinf", full("dref", 0, 0, u32(1), full("url ", 0, 1)))
	stbl := box("stbl", full("stsd", 0, 0, u32(1), t.entry()), full("stts", 0, 0, u32(0)), full("stsc", 0, 0, u32(0)),
		full("stsz", 0, 0, u32(0, 0)), full("stco", 0, 0, u32(0)))
	trak := box("trak", tkhd, box("mdia", mdhd, hdlr, box("minf", header, dinf, stbl)))
	if t.Spherical != nil {
		trak = box("trak", trak[8:], spherical.TrackBox(*t.Spherical))
	}
	mvex := box("mvex", full("trex", 0, 0, u32(1, 1, 0, 0, 0)))
	ftyp := box("ftyp", []byte("iso6"), u32(0), []byte("iso6cmfcdashmp41"))
	return append(ftyp, box("moov", mvhd, trak, mvex)...)
}

// entry returns the track's sample entry.
func (t *Track) entry() []byte {
	zeros := func(n int) []byte { return make([]byte, n) }
	if t.Audio == nil {
		sphere := []byte(nil)
		if t.Spherical != nil {
			sphere = spherical.SampleEntryBoxes(*t.Spherical)
		}
		return box("avc1", zeros(6), u16(1), zeros(16), u16(uint16(t.Width), uint16(t.Height)),
			u32(0x480000, 0x480000, 0), u16(1), zeros(32), u16(24, 0xffff), box("avcC", t.AVCConfig), sphere)
	}
	a := t.Audio
	head := [][]byte{zeros(6), u16(1), zeros(8), u16(uint16(a.Channels), 16), zeros(4), u32(uint32(a.SampleRate) << 16)}
	if a.Config == nil {
		dops := append([]byte{0, byte(a.Channels)}, u16(uint16(a.PreSkip))...)
		return box("Opus", append(head, box("dOps", append(dops, append(u32(uint32(a.SampleRate)), 0, 0, 0)...)))...)
	}
	descriptor := func(tag byte, parts ...[]byte) []byte {
		b := []byte{tag, 0}
		for _, p := range parts {
			b = append(b, p...)
		}
		b[1] = byte(len(b) - 2)
		return b
	}
	specific := descriptor(5, a.Config)
	config := descriptor(4, []byte{0x40, 0x15, 0, 0, 0}, u32(0, 0), specific)
	return box(
		"mp4a",
		append(head, full("esds", 0, 0, descriptor(3, []byte{0, 1, 0}, config, descriptor(6, []byte{2}))))...)
}

// FragmentSize returns the length of Fragment's result for the given number of samples and their
// total size in bytes.
func FragmentSize(samples int, bytes int64) int64 {
	return 8 + 16 + 8 + 16 + 20 + 20 + 12*int64(samples) + 8 + bytes
}

// Sample flags (ISO/IEC 14496-12 §8.8.3.1) of independent and of dependent samples.
const (
	flagsSync    = 0x02000000
	flagsDepends = 0x01010000
)

// Fragment returns a moof and an mdat box. at is the time of the first sample in units of the
// timescale. number counts fragments from 1.
func Fragment(number uint32, at uint64, samples []Sample) []byte {
	var trun []byte
	var bytes int64
	for _, s := range samples {
		flags := uint32(flagsDepends)
		if s.Sync {
			flags = flagsSync
		}
		trun = append(trun, u32(s.Duration, uint32(len(s.Data)), flags)...)
		bytes += int64(len(s.Data))
	}
	size := FragmentSize(len(samples), bytes)
	moof := box("moof", full("mfhd", 0, 0, u32(number)), box("traf",
		full("tfhd", 0, 0x020000, u32(1)), // offsets are relative to the moof box
		full("tfdt", 1, 0, binary.BigEndian.AppendUint64(nil, at)),
		full("trun", 0, 0x000701, u32(uint32(len(samples)), uint32(size-bytes)), trun)))
	out := append(make([]byte, 0, size), moof...)
	out = append(binary.BigEndian.AppendUint32(out, uint32(8+bytes)), "mdat"...)
	for _, s := range samples {
		out = append(out, s.Data...)
	}
	return out
}

// Entry describes a fragment in an index.
type Entry struct {
	Size     uint32 // bytes
	Duration uint32 // units of the timescale
}

// Index returns a sidx box for the fragments that directly follow it.
func Index(timescale uint32, entries []Entry) []byte {
	var refs []byte
	for _, e := range entries {
		refs = append(refs, u32(e.Size, e.Duration, 0x90000000)...) // starts with an independent sample
	}
	return full("sidx", 1, 0, u32(1, timescale), make([]byte, 16), u16(0, uint16(len(entries))), refs)
}

// MaxFragments is the maximum number of fragments in an index.
const MaxFragments = 1<<16 - 1

// ErrDamaged is returned for a file that is damaged or that this package did not write.
var ErrDamaged = errors.New("cmaf: not a fragmented MP4 file with one track, or damaged")

// find returns the body of the first box at a path.
func find(b []byte, path ...string) ([]byte, error) {
	for len(b) > 0 {
		kind, body, rest, err := mp4box.Next(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if kind == path[0] {
			if len(path) == 1 {
				return body, nil
			}
			return find(body, path[1:]...)
		}
		b = rest
	}
	return nil, fmt.Errorf("%w: no %s box", ErrDamaged, path[0])
}

// ParseIndex parses the sidx box after the init segment at the start of a file. It returns the
// fragments and the offset of the first. It returns ErrShort if b is too short.
func ParseIndex(b []byte) (entries []Entry, first int64, err error) {
	at := int64(0)
	for {
		if int64(len(b))-at < 8 {
			return nil, 0, ErrShort
		}
		n, kind := int64(binary.BigEndian.Uint32(b[at:])), string(b[at+4:at+8])
		if n < 8 {
			return nil, 0, fmt.Errorf("%w: box %q has invalid size %d", ErrDamaged, kind, n)
		}
		if kind == "moof" || kind == "mdat" {
			return nil, 0, fmt.Errorf("%w: media before the index", ErrDamaged)
		}
		if kind == "sidx" {
			if int64(len(b))-at < n {
				return nil, 0, ErrShort
			}
			entries, err := parseIndex(b[at+8 : at+n])
			return entries, at + n, err
		}
		at += n
	}
}

// ErrShort is returned if more of the file is needed.
var ErrShort = errors.New("cmaf: truncated index or fragment")

func parseIndex(b []byte) ([]Entry, error) {
	if len(b) < 32 || b[0] != 1 {
		return nil, fmt.Errorf("%w: invalid sidx box", ErrDamaged)
	}
	count := int(binary.BigEndian.Uint16(b[30:]))
	b = b[32:]
	if len(b) != 12*count {
		return nil, fmt.Errorf("%w: sidx box has %d bytes for %d fragments", ErrDamaged, len(b), count)
	}
	entries := make([]Entry, count)
	for i := range entries {
		entries[i] = Entry{binary.BigEndian.Uint32(b[12*i:]) &^ (1 << 31), binary.BigEndian.Uint32(b[12*i+4:])}
	}
	return entries, nil
}

// ParseFragment returns the samples of a fragment written by Fragment. Their data alias b.
func ParseFragment(b []byte) ([]Sample, error) {
	samples, sizes, at, err := parseMoof(b)
	if err != nil {
		return nil, err
	}
	mdat, err := find(b[at:], "mdat")
	if err != nil {
		return nil, err
	}
	for i, n := range sizes {
		if uint64(n) > uint64(len(mdat)) {
			return nil, fmt.Errorf("%w: samples exceed the mdat box", ErrDamaged)
		}
		samples[i].Data, mdat = mdat[:n:n], mdat[n:]
	}
	return samples, nil
}

// ParseHeader is like ParseFragment but needs only the start of a fragment and returns samples
// without data. It returns ErrShort if b is too short.
func ParseHeader(b []byte) ([]Sample, error) {
	if len(b) < 8 || uint64(len(b)) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, ErrShort
	}
	samples, _, _, err := parseMoof(b)
	return samples, err
}

// parseMoof returns the samples listed in a fragment's moof box, their sizes and the end of the
// box.
func parseMoof(b []byte) (samples []Sample, sizes []uint32, end int, err error) {
	kind, moof, rest, err := mp4box.Next(b)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if kind != "moof" {
		return nil, nil, 0, fmt.Errorf("%w: a fragment begins with box %q", ErrDamaged, kind)
	}
	trun, err := find(moof, "traf", "trun")
	if err != nil {
		return nil, nil, 0, err
	}
	if len(trun) < 12 || binary.BigEndian.Uint32(trun) != 0x000701 ||
		uint64(len(trun)-12) != 12*uint64(binary.BigEndian.Uint32(trun[4:])) {
		return nil, nil, 0, fmt.Errorf("%w: invalid trun box", ErrDamaged)
	}
	for e := trun[12:]; len(e) > 0; e = e[12:] {
		samples = append(samples,
			Sample{Duration: binary.BigEndian.Uint32(e), Sync: binary.BigEndian.Uint32(e[8:]) == flagsSync})
		sizes = append(sizes, binary.BigEndian.Uint32(e[4:]))
	}
	return samples, sizes, len(b) - len(rest), nil
}
