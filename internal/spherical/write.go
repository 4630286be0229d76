package spherical

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"holocast/internal/catalog"
	"holocast/internal/mp4box"
)

// writer is the StitchingSoftware of V1 and the metadata source of V2.
const writer = "Holocast"

// Of returns the metadata of a published sphere.
func Of(s *catalog.Sphere) Metadata {
	m := Metadata{Projection: Equirectangular, Stereo: Mono, Yaw: s.Yaw, Pitch: s.Pitch, Roll: s.Roll}
	if s.Eyes() == 2 {
		m.Stereo = TopBottom
	}
	return m
}

// v1XML returns V1's description of an equirectangular picture.
func v1XML(m Metadata) string {
	mode := map[string]string{TopBottom: "top-bottom", SideBySide: "left-right"}[m.Stereo]
	if mode == "" {
		mode = "mono"
	}
	view := ""
	if heading, pitch, roll := inverse(m.Yaw, m.Pitch, m.Roll); heading != 0 || pitch != 0 || roll != 0 {
		view = fmt.Sprintf("<GSpherical:InitialViewHeadingDegrees>%.0f</GSpherical:InitialViewHeadingDegrees>"+
			"<GSpherical:InitialViewPitchDegrees>%.0f</GSpherical:InitialViewPitchDegrees>"+
			"<GSpherical:InitialViewRollDegrees>%.0f</GSpherical:InitialViewRollDegrees>", heading, pitch, 0-roll)
	}
	return `<?xml version="1.0"?><rdf:SphericalVideo xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"` +
		` xmlns:GSpherical="http://ns.google.com/videos/1.0/spherical/"><GSpherical:Spherical>true</GSpherical:Spherical>` +
		`<GSpherical:Stitched>true</GSpherical:Stitched><GSpherical:StitchingSoftware>` + writer +
		`</GSpherical:StitchingSoftware>` +
		`<GSpherical:ProjectionType>equirectangular</GSpherical:ProjectionType><GSpherical:StereoMode>` + mode +
		`</GSpherical:StereoMode>` + view + `</rdf:SphericalVideo>`
}

// SampleEntryBoxes returns V2's boxes for an equirectangular picture, to be appended to its sample
// entry.
func SampleEntryBoxes(m Metadata) []byte {
	mode := map[string]byte{TopBottom: 1, SideBySide: 2}[m.Stereo]
	yaw, pitch, roll := Pose(m.Yaw, m.Pitch, m.Roll)
	pose := make([]byte, 4)
	for _, v := range []float64{yaw, pitch, roll} {
		pose = binary.BigEndian.AppendUint32(pose, uint32(int32(math.Round(math.Remainder(v, 360)*(1<<16)))))
	}
	proj := mp4box.Append(nil, "prhd", pose)
	proj = mp4box.Append(proj, "equi", make([]byte, 20))
	sv3d := mp4box.Append(nil, "svhd", make([]byte, 4), append([]byte(writer), 0))
	sv3d = mp4box.Append(sv3d, "proj", proj)
	return mp4box.Append(mp4box.Append(nil, "st3d", []byte{0, 0, 0, 0, mode}), "sv3d", sv3d)
}

// TrackBox returns V1's box for an equirectangular picture, to be appended to its track.
func TrackBox(m Metadata) []byte {
	return mp4box.Append(nil, "uuid", v1ID[:], []byte(v1XML(m)))
}

// Tag adds equirectangular metadata, V1 and V2, to the first video track of an MP4 file. The file's
// last box must be moov, as FFmpeg writes it.
func Tag(path string, m Metadata) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	p := parser{r: f}
	var moov box
	if err := p.boxes(0, info.Size(), 0, func(b box) error {
		moov = b
		return nil
	}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if moov.kind != "moov" || moov.missing > 0 {
		return fmt.Errorf("%s: its last box is %q, not moov", path, moov.kind)
	}
	old, err := p.read(moov, 1<<28)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	tagged := false
	body, err := rewrite(old, nil, &tagged, m)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !tagged {
		return fmt.Errorf("%s: it has no video track", path)
	}
	_, err = f.WriteAt(mp4box.Append(nil, "moov", body), moov.start-8)
	return errors.Join(err, f.Close())
}

// rewrite copies a box's children and adds the metadata to the first video track.
func rewrite(b []byte, path []string, tagged *bool, m Metadata) ([]byte, error) {
	var out []byte
	for len(b) > 0 {
		kind, body, rest, err := mp4box.Next(b)
		if err != nil {
			return nil, err
		}
		b = rest
		switch {
		case kind == "trak" && len(path) == 0 && !*tagged && isVideo(body):
			if body, err = rewrite(body, append(path, kind), tagged, m); err == nil {
				body = append(body, TrackBox(m)...)
			}
		case len(path) > 0 && (kind == "mdia" || kind == "minf" || kind == "stbl"):
			body, err = rewrite(body, append(path, kind), tagged, m)
		case len(path) == 4 && kind == "stsd" && len(body) > stsdHeader+8:
			entry := body[stsdHeader:]
			n := binary.BigEndian.Uint32(entry)
			if n < 8+visualHeader || uint64(n) > uint64(len(entry)) {
				return nil, fmt.Errorf("sample entry has invalid size %d", n)
			}
			*tagged = true
			first := mp4box.Append(nil, string(entry[4:8]), entry[8:n], SampleEntryBoxes(m))
			body = append(append(append([]byte(nil), body[:stsdHeader]...), first...), entry[n:]...)
		}
		if err != nil {
			return nil, err
		}
		out = mp4box.Append(out, kind, body)
	}
	return out, nil
}

// isVideo reports whether a track's handler is video.
func isVideo(trak []byte) bool {
	p := parser{r: readerAt(trak)}
	video := false
	_ = p.boxes(0, int64(len(trak)), 1, func(b box) error {
		if b.kind != "mdia" {
			return nil
		}
		return p.boxes(b.start, b.end, 2, func(b box) error {
			if b.kind == "hdlr" && b.end-b.start >= 12 {
				video = string(trak[b.start+8:b.start+12]) == "vide"
			}
			return nil
		})
	}) // an unreadable track counts as not video
	return video
}

type readerAt []byte

func (r readerAt) ReadAt(b []byte, at int64) (int, error) {
	if at < 0 || at >= int64(len(r)) {
		return 0, io.EOF
	}
	n := copy(b, r[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}
