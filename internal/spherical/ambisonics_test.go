package spherical

import (
	"encoding/binary"
	"testing"

	"holocast/internal/mp4box"
)

func sa3d(version, kind byte, order uint32, normalization byte, components ...uint32) []byte {
	d := append([]byte{version, kind}, binary.BigEndian.AppendUint32(nil, order)...)
	d = binary.BigEndian.AppendUint32(append(d, 0, normalization), uint32(len(components)))
	for _, c := range components {
		d = binary.BigEndian.AppendUint32(d, c)
	}
	return d
}

func TestSA3D(t *testing.T) {
	second := []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8}
	for _, tt := range []struct {
		name string
		box  []byte
		want Ambisonics
	}{
		{"first order", sa3d(0, 0, 1, 0, 0, 1, 2, 3), ACN(1, false)},
		{"B-format's order of channels", sa3d(0, 0, 1, 0, 0, 3, 1, 2), Ambisonics{Channels: 4, W: 0, Y: 2}},
		{"second order", sa3d(0, 0, 2, 0, second...), ACN(2, false)},
		{"with stereo", sa3d(0, 0x80, 1, 0, 0, 1, 2, 3, 4, 5), ACN(1, true)},
		{"another version", sa3d(1, 0, 1, 0, 0, 1, 2, 3), Ambisonics{}},
		{"another type", sa3d(0, 1, 1, 0, 0, 1, 2, 3), Ambisonics{}},
		{"another normalization", sa3d(0, 0, 1, 1, 0, 1, 2, 3), Ambisonics{}},
		{"without a component", sa3d(0, 0, 1, 0, 0, 2, 2, 3), Ambisonics{}},
		{"order zero", sa3d(0, 0, 0, 0, 0, 1, 2, 3), Ambisonics{}},
		{"huge order", sa3d(0, 0, 1<<31, 0, 0, 1, 2, 3), Ambisonics{}},
		{"too few channels", sa3d(0, 0, 1, 0, 0, 1), Ambisonics{}},
		{"truncated", sa3d(0, 0, 1, 0, 0, 1, 2, 3)[:20], Ambisonics{}},
		{"empty", nil, Ambisonics{}},
	} {
		if got := parseSA3D(tt.box); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestSoundEntry finds SA3D boxes in sample entries of MP4 and of QuickTime, before and after the
// video track.
func TestSoundEntry(t *testing.T) {
	track := func(handler string, entry []byte) []byte {
		stsd := mp4box.Append(nil, "stsd", []byte{0, 0, 0, 0, 0, 0, 0, 1}, entry)
		hdlr := mp4box.Append(nil, "hdlr", make([]byte, 8), []byte(handler), make([]byte, 13))
		minf := mp4box.Append(nil, "minf", mp4box.Append(nil, "stbl", stsd))
		return mp4box.Append(nil, "trak", mp4box.Append(nil, "mdia", hdlr, minf))
	}
	mono := SampleEntryBoxes(Metadata{Stereo: Mono})
	video := track("vide", mp4box.Append(nil, "avc1", make([]byte, visualHeader), mono))
	box := mp4box.Append(nil, "SA3D", sa3d(0, 0, 1, 0, 0, 1, 2, 3))
	for version, length := range soundHeader {
		head := make([]byte, length)
		binary.BigEndian.PutUint16(head[8:], version)
		sound := track("soun", mp4box.Append(nil, "mp4a", head, mp4box.Append(nil, "esds", make([]byte, 9)), box))
		other := track("soun", mp4box.Append(nil, "mp4a", make([]byte, 28)))
		for name, tracks := range map[string][]byte{
			"before": append(append([]byte{}, sound...), video...), "after": append(append([]byte{}, video...), sound...),
			"first of two": append(append(append([]byte{}, video...), sound...), other...),
		} {
			b := mp4box.Append(nil, "ftyp", []byte("isom\x00\x00\x00\x00"))
			got, err := parse(mp4box.Append(b, "moov", tracks))
			want := Metadata{Projection: Equirectangular, Stereo: Mono, Ambisonics: ACN(1, false)}
			if err != nil || got != want {
				t.Errorf("version %d, %s the video: %+v, %v", version, name, got, err)
			}
		}
	}
	damaged := track("soun", mp4box.Append(nil, "mp4a", make([]byte, 28), []byte{0, 0, 0, 3, 'S', 'A', '3', 'D'}))
	got, err := parse(mp4box.Append(mp4box.Append(nil, "ftyp", []byte("isom\x00\x00\x00\x00")), "moov", video, damaged))
	if err != nil || got.Ambisonics != (Ambisonics{}) || got.Stereo != Mono {
		t.Errorf("damaged sound entry: %+v, %v", got, err)
	}
}
