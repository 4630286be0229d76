package catalog

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"image"
	"math"
	"slices"
)

// RoleTile is the role of a tile's tracks. MSF does not define it, so players without tile support
// skip them.
const RoleTile = "tile"

// Names of a sphere's tracks. [TileTrack] returns the names of tile tracks (docs/spec/tiles.md).
const (
	VideoTrack = "video" // the whole sphere at low resolution
	AudioTrack = "audio"
	RatesTrack = "rd"
)

// TileTrack returns the name of a tile's track at a quality.
func TileTrack(tile, quality int) string { return fmt.Sprintf("tiles/%d/%d", tile, quality) }

// RatesEventType is the eventType of [RatesTrack].
const RatesEventType = "dev.holocast.tiles.rd/v1"

// Stereo layouts of a sphere, the values of [Sphere.Stereo].
const (
	StereoMono      = "mono"
	StereoTopBottom = "top-bottom" // left eye above right eye
)

// ProjectionEquirectangular is the only value of [Sphere.Projection].
const ProjectionEquirectangular = "equirectangular"

// Limits of a sphere.
const (
	MaxTiles      = 256
	MaxQualities  = 8
	MaxSphereSize = 16384 // maximum width and height in pixels
)

// Sphere is the JSON object in the field "hcsphere" of a 360° session's track "video".
type Sphere struct {
	Projection string  `json:"projection"`
	Stereo     string  `json:"stereo"`
	Width      int     `json:"width"` // pixels of one eye's picture, even
	Height     int     `json:"height"`
	Columns    int     `json:"columns"` // 0 without tiles
	Rows       int     `json:"rows"`
	Qualities  int     `json:"qualities"`
	Yaw        float64 `json:"yaw,omitempty"` // degrees
	Pitch      float64 `json:"pitch,omitempty"`
	Roll       float64 `json:"roll,omitempty"`
	Color      Color   `json:"color,omitzero"`
}

// Color describes the colour space of the sphere's samples, using WebCodecs' names for code points
// of ITU-T H.273. "" means unknown.
type Color struct {
	Primaries string `json:"primaries,omitempty"` // bt709, bt470bg, smpte170m
	Transfer  string `json:"transfer,omitempty"`  // bt709, smpte170m, iec61966-2-1
	Matrix    string `json:"matrix,omitempty"`    // bt709, bt470bg, smpte170m
	FullRange bool   `json:"fullRange,omitempty"` // luma 0 to 255 instead of 16 to 235
}

// Valid names of the fields of [Color].
var (
	colorPrimaries = []string{"", "bt709", "bt470bg", "smpte170m"}
	colorTransfers = []string{"", "bt709", "smpte170m", "iec61966-2-1"}
	colorMatrices  = []string{"", "bt709", "bt470bg", "smpte170m"}
)

func (c *Color) validate() error {
	switch {
	case !slices.Contains(colorPrimaries, c.Primaries):
		return fmt.Errorf("color.primaries: %.40q is not known", c.Primaries)
	case !slices.Contains(colorTransfers, c.Transfer):
		return fmt.Errorf("color.transfer: %.40q is not known", c.Transfer)
	case !slices.Contains(colorMatrices, c.Matrix):
		return fmt.Errorf("color.matrix: %.40q is not known", c.Matrix)
	}
	return nil
}

// Eyes returns 1, or 2 for stereo.
func (s *Sphere) Eyes() int {
	if s.Stereo == StereoTopBottom {
		return 2
	}
	return 1
}

// Tiles returns the number of tiles.
func (s *Sphere) Tiles() int { return s.Columns * s.Rows }

// Rect returns a tile's rectangle in one eye's picture, in pixels.
func (s *Sphere) Rect(tile int) image.Rectangle {
	edge := func(i, n, size int) int { return 2 * ((i*size + n) / (2 * n)) }
	c, r := tile%s.Columns, tile/s.Columns
	return image.Rect(edge(c, s.Columns, s.Width), edge(r, s.Rows, s.Height), edge(c+1, s.Columns, s.Width),
		edge(r+1, s.Rows, s.Height))
}

// minTile is the minimum tile width and height, in pixels, that encoders accept.
const minTile = 16

// Validate returns an error that names the first invalid field.
func (s *Sphere) Validate() error {
	if err := s.Color.validate(); err != nil {
		return err
	}
	finite := func(v float64) bool { return v >= -360 && v <= 360 }
	switch {
	case s.Projection != ProjectionEquirectangular:
		return fmt.Errorf("projection: %.40q is not %q", s.Projection, ProjectionEquirectangular)
	case s.Stereo != StereoMono && s.Stereo != StereoTopBottom:
		return fmt.Errorf("stereo: %.40q: want %s or %s", s.Stereo, StereoMono, StereoTopBottom)
	case s.Width < 2 || s.Width > MaxSphereSize || s.Width%2 != 0:
		return fmt.Errorf("width: %d is not an even number in 2…%d", s.Width, MaxSphereSize)
	case s.Height < 2 || s.Height > MaxSphereSize || s.Height%2 != 0:
		return fmt.Errorf("height: %d is not an even number in 2…%d", s.Height, MaxSphereSize)
	case !finite(s.Yaw) || !finite(s.Pitch) || !finite(s.Roll):
		return fmt.Errorf("yaw: %v, pitch %v, roll %v: want -360 to 360 degrees", s.Yaw, s.Pitch, s.Roll)
	case s.Columns == 0 && s.Rows == 0 && s.Qualities == 0:
		return nil
	case s.Columns < 1 || s.Rows < 1 || s.Columns > MaxTiles || s.Rows > MaxTiles || s.Tiles() > MaxTiles:
		return fmt.Errorf("columns: a grid of %d×%d tiles; want 1 to %d tiles in total", s.Columns, s.Rows, MaxTiles)
	case s.Width/s.Columns < minTile || s.Height/s.Rows < minTile:
		return fmt.Errorf("columns: %d×%d tiles in %d×%d pixels are smaller than %d×%d", s.Columns, s.Rows, s.Width,
			s.Height, minTile, minTile)
	case s.Qualities < 1 || s.Qualities > MaxQualities:
		return fmt.Errorf("qualities: %d is not in 1…%d", s.Qualities, MaxQualities)
	}
	return nil
}

// Tile is the JSON object in the field "hctile" of a tile's track.
type Tile struct {
	Tile    int `json:"tile"`    // row · columns + column, from the top left
	Quality int `json:"quality"` // 0 is the lowest
	X       int `json:"x"`       // rectangle in one eye's picture, pixels
	Y       int `json:"y"`
	Width   int `json:"width"`
	Height  int `json:"height"`
}

// Rect returns the rectangle.
func (t *Tile) Rect() image.Rectangle { return image.Rect(t.X, t.Y, t.X+t.Width, t.Y+t.Height) }

func (t *Tile) validate() error {
	switch {
	case t.Tile < 0 || t.Tile >= MaxTiles:
		return fmt.Errorf("tile: %d is not in 0…%d", t.Tile, MaxTiles-1)
	case t.Quality < 0 || t.Quality >= MaxQualities:
		return fmt.Errorf("quality: %d is not in 0…%d", t.Quality, MaxQualities-1)
	case t.X < 0 || t.Y < 0 || t.Width < 1 || t.Height < 1 ||
		t.X > MaxSphereSize || t.Y > MaxSphereSize || t.Width > MaxSphereSize || t.Height > MaxSphereSize:
		return fmt.Errorf("x: invalid rectangle: %d×%d at %d, %d", t.Width, t.Height, t.X, t.Y)
	}
	return nil
}

// validateSphere checks constraints across tracks: at most one sphere, and tiles that match its
// grid.
func (c *Catalog) validateSphere() error {
	var sphere *Sphere
	for i := range c.Tracks {
		t := &c.Tracks[i]
		if t.Sphere == nil {
			continue
		}
		if sphere != nil {
			return fmt.Errorf("catalog: $.tracks[%d].hcsphere: an earlier track already has one", i)
		}
		if t.Width > math.MaxUint16 || t.Height > math.MaxUint16 {
			return fmt.Errorf("catalog: $.tracks[%d].width: pictures of %d×%d exceed 65535×65535", i, t.Width, t.Height)
		}
		sphere = t.Sphere
	}
	for i := range c.Tracks {
		t := c.Tracks[i].Tile
		if t == nil {
			continue
		}
		path := fmt.Sprintf("catalog: $.tracks[%d].hctile", i)
		switch {
		case sphere == nil:
			return fmt.Errorf("%s: no track has hcsphere", path)
		case t.Tile >= sphere.Tiles():
			return fmt.Errorf("%s.tile: %d is outside the grid of %d×%d tiles", path, t.Tile, sphere.Columns, sphere.Rows)
		case t.Quality >= sphere.Qualities:
			return fmt.Errorf("%s.quality: %d is not in 0…%d", path, t.Quality, sphere.Qualities-1)
		case t.Rect() != sphere.Rect(t.Tile):
			return fmt.Errorf("%s.x: rectangle %v, but tile %d is at %v", path, t.Rect(), t.Tile, sphere.Rect(t.Tile))
		case c.Tracks[i].Width != t.Width || c.Tracks[i].Height != t.Height*sphere.Eyes():
			return fmt.Errorf("%s.width: pictures are %d×%d, want %d×%d", path, c.Tracks[i].Width,
				c.Tracks[i].Height, t.Width, t.Height*sphere.Eyes())
		}
	}
	return nil
}

// Sphere returns the track that describes the session's sphere, or nil.
func (c *Catalog) Sphere() *Track {
	for i := range c.Tracks {
		if c.Tracks[i].Sphere != nil {
			return &c.Tracks[i]
		}
	}
	return nil
}

// TileTracks returns a tile's tracks, lowest quality first.
func (c *Catalog) TileTracks(tile int) []Track {
	var tracks []Track
	for _, t := range c.Tracks {
		if t.Tile != nil && t.Tile.Tile == tile {
			tracks = append(tracks, t)
		}
	}
	slices.SortStableFunc(tracks, func(a, b Track) int { return cmp.Compare(a.Tile.Quality, b.Tile.Quality) })
	return tracks
}

// Rates is one record of [RatesTrack]. It holds the sizes in bytes and the distortions of one GoP's
// tiles.
type Rates struct {
	T    int64     `json:"T"` // timestamp of the GoP's first frame, ms since 1970
	Data RatesData `json:"data"`
}

// RatesData holds Bytes and MSE by tile, then by quality; nil marks a quality that was not encoded.
// Missing, by tile, is the distortion of the upscaled [VideoTrack] shown in place of a missing tile.
// Distortions are WS-MSE of luma (docs/spec/tiles.md).
type RatesData struct {
	Bytes   [][]*int64   `json:"bytes"`
	MSE     [][]*float64 `json:"mse"`
	Missing []float64    `json:"missing"`
}

// Validate checks the record against the sphere's grid.
func (r *Rates) Validate(s *Sphere) error {
	bad := func(v float64) bool { return v < 0 || math.IsNaN(v) || math.IsInf(v, 0) }
	d := &r.Data
	if n := s.Tiles(); len(d.Bytes) != n || len(d.MSE) != n || len(d.Missing) != n {
		return fmt.Errorf("catalog: bytes, mse and missing of rates cover %d, %d and %d tiles, want %d",
			len(d.Bytes), len(d.MSE), len(d.Missing), n)
	}
	for i := range d.Bytes {
		if len(d.Bytes[i]) != s.Qualities || len(d.MSE[i]) != s.Qualities {
			return fmt.Errorf("catalog: bytes and mse of tile %d cover %d and %d qualities, want %d",
				i, len(d.Bytes[i]), len(d.MSE[i]), s.Qualities)
		}
		for q := range d.Bytes[i] {
			b, m := d.Bytes[i][q], d.MSE[i][q]
			if (b == nil) != (m == nil) || b != nil && (*b < 0 || bad(*m)) {
				return fmt.Errorf("catalog: rates of tile %d at quality %d are invalid", i, q)
			}
		}
		if bad(d.Missing[i]) {
			return fmt.Errorf("catalog: invalid distortion %v for missing tile %d", d.Missing[i], i)
		}
	}
	return nil
}

// ParseRates reads the object of one group of [RatesTrack].
func ParseRates(b []byte, s *Sphere) (*Rates, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("catalog: rates: %d bytes, more than %d", len(b), MaxSize)
	}
	var list []Rates
	if err := decode(b, "rates", &list); err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("catalog: rates: %d records, want 1", len(list))
	}
	return &list[0], list[0].Validate(s)
}

// NewRatesTrack returns the catalog entry of [RatesTrack] for the given tracks.
func NewRatesTrack(depends ...string) Track {
	return Track{
		Name: RatesTrack, Packaging: PackagingEventTimeline, EventType: RatesEventType, IsLive: true,
		Role: "eventtimeline", MimeType: "application/json", Depends: depends,
	}
}

// Inline returns the inline initialization data that t.InitRef refers to, such as a codec
// configuration. It returns nil if InitRef is empty.
func (c *Catalog) Inline(t Track) ([]byte, error) {
	if t.InitRef == "" {
		return nil, nil
	}
	i := slices.IndexFunc(c.InitDataList, func(d InitData) bool { return d.ID == t.InitRef })
	if i < 0 || c.InitDataList[i].Type != "inline" {
		return nil, fmt.Errorf("catalog: track %.80q has no inline initialization data", t.Name)
	}
	b, err := base64.StdEncoding.DecodeString(c.InitDataList[i].Data)
	if err != nil {
		return nil, fmt.Errorf("catalog: $.initDataList[%d].data: %w", i, err)
	}
	return b, nil
}

// sealedSphere reports whether t is the sphere of an encrypted session, whose description is hidden.
func (t Track) sealedSphere() bool {
	return t.EncryptionScheme != "" && t.Name == VideoTrack && t.Role == RoleVideo
}

// Aligned returns the names of the tracks that share group IDs: the sphere, its tiles, the rates
// and the tracks rendered with them.
func (c *Catalog) Aligned() []string {
	sphere := c.Sphere()
	if i := slices.IndexFunc(c.Tracks, Track.sealedSphere); i >= 0 {
		sphere = &c.Tracks[i]
	}
	if sphere == nil {
		return nil
	}
	var names []string
	for i := range c.Tracks {
		t := &c.Tracks[i]
		together := t.RenderGroup != nil && sphere.RenderGroup != nil && *t.RenderGroup == *sphere.RenderGroup
		if t.Namespace == "" && (t == sphere || t.Role == RoleTile || t.EventType == RatesEventType ||
			together && t.Packaging == PackagingLOC) {
			names = append(names, t.Name)
		}
	}
	return names
}
