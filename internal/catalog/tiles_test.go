package catalog

import (
	"encoding/json"
	"fmt"
	"image"
	"strings"
	"testing"
)

// room returns the catalog of a sphere of 8×4 tiles.
func room(t testing.TB) *Catalog {
	t.Helper()
	s := &Sphere{
		Projection: ProjectionEquirectangular,
		Stereo:     StereoTopBottom,
		Width:      1920,
		Height:     540,
		Columns:    8,
		Rows:       4,
		Qualities:  2,
	}
	c := &Catalog{Version: Version, Tracks: []Track{
		{
			Name:      VideoTrack,
			Packaging: PackagingLOC,
			Role:      RoleVideo,
			Codec:     "avc1.42c01e",
			Width:     480,
			Height:    268,
			Sphere:    s,
		}, NewRatesTrack(VideoTrack),
	}}
	for i := range s.Tiles() {
		for q := range s.Qualities {
			r := s.Rect(i)
			c.Tracks = append(c.Tracks, Track{
				Name: TileTrack(i, q), Packaging: PackagingLOC, Role: RoleTile, Width: r.Dx(), Height: 2 * r.Dy(),
				Tile: &Tile{Tile: i, Quality: q, X: r.Min.X, Y: r.Min.Y, Width: r.Dx(), Height: r.Dy()},
			})
		}
	}
	return c
}

func TestSphereRoundTrip(t *testing.T) {
	c := room(t)
	b, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if *got.Sphere().Sphere != *c.Tracks[0].Sphere || len(got.TileTracks(31)) != 2 ||
		got.TileTracks(9)[1].Name != "tiles/9/1" {
		t.Errorf("got %+v, %+v", got.Sphere(), got.TileTracks(9))
	}
}

// TestRectsCover checks that tiles have even edges and cover the picture without gaps or overlaps.
func TestRectsCover(t *testing.T) {
	for _, s := range []Sphere{
		{Width: 1920, Height: 960, Columns: 8, Rows: 4},
		{Width: 1920, Height: 540, Columns: 8, Rows: 4},
		{Width: 1000, Height: 502, Columns: 7, Rows: 3},
		{Width: 64, Height: 32, Columns: 1, Rows: 1},
		{Width: 4096, Height: 2048, Columns: 16, Rows: 16},
	} {
		area := 0
		for i := range s.Tiles() {
			r := s.Rect(i)
			if (r.Min.X|r.Min.Y|r.Max.X|r.Max.Y)%2 != 0 || r.Empty() {
				t.Errorf("%+v: tile %d is %v", s, i, r)
			}
			if want := image.Pt(s.Width/s.Columns, s.Height/s.Rows); (r.Dx()-want.X)*(r.Dx()-want.X) > 4 ||
				(r.Dy()-want.Y)*(r.Dy()-want.Y) > 4 {
				t.Errorf("%+v: tile %d is %v, want about %v", s, i, r.Size(), want)
			}
			if i%s.Columns > 0 && s.Rect(i-1).Max.X != r.Min.X || i >= s.Columns && s.Rect(i-s.Columns).Max.Y != r.Min.Y {
				t.Errorf("%+v: tile %d does not join those before", s, i)
			}
			area += r.Dx() * r.Dy()
		}
		if area != s.Width*s.Height {
			t.Errorf("%+v: tiles have %d pixels", s, area)
		}
	}
}

func TestBadSpheres(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Catalog)
		want   string
	}{
		{"absurd grid", func(c *Catalog) { c.Tracks[0].Sphere.Columns = 1 << 30 }, "$.tracks[0].hcsphere.columns: a grid of 1073741824×4"},
		{"negative grid", func(c *Catalog) { c.Tracks[0].Sphere.Rows = -4 }, "hcsphere.columns"},
		{"too many tiles", func(c *Catalog) { c.Tracks[0].Sphere.Columns = 100 }, "want 1 to 256 tiles in total"},
		{"tiles too small", func(c *Catalog) { c.Tracks[0].Sphere.Width = 100 }, "smaller than 16×16"},
		{"odd width", func(c *Catalog) { c.Tracks[0].Sphere.Width = 1919 }, "hcsphere.width: 1919 is not an even number"},
		{"huge", func(c *Catalog) { c.Tracks[0].Sphere.Height = 1 << 20 }, "hcsphere.height"},
		{"projection", func(c *Catalog) { c.Tracks[0].Sphere.Projection = "mercator" }, `hcsphere.projection: "mercator"`},
		{"stereo", func(c *Catalog) { c.Tracks[0].Sphere.Stereo = "left" }, `hcsphere.stereo: "left"`},
		{"qualities", func(c *Catalog) { c.Tracks[0].Sphere.Qualities = 9 }, "hcsphere.qualities: 9"},
		{"turned", func(c *Catalog) { c.Tracks[0].Sphere.Yaw = 1e9 }, "want -360 to 360 degrees"},
		{"primaries", func(c *Catalog) { c.Tracks[0].Sphere.Color.Primaries = "bt2020" }, `hcsphere.color.primaries: "bt2020"`},
		{"transfer", func(c *Catalog) { c.Tracks[0].Sphere.Color.Transfer = "pq" }, `hcsphere.color.transfer: "pq"`},
		{"matrix", func(c *Catalog) { c.Tracks[0].Sphere.Color.Matrix = "rgb" }, `hcsphere.color.matrix: "rgb"`},
		{"two spheres", func(c *Catalog) { c.Tracks[1].Sphere = c.Tracks[0].Sphere }, "$.tracks[1].hcsphere: an earlier track already has one"},
		{"no sphere", func(c *Catalog) { c.Tracks[0].Sphere = nil }, "no track has hcsphere"},
		{"tile beyond the grid", func(c *Catalog) { c.Tracks[2].Tile.Tile = 32 }, "hctile.tile: 32 is outside the grid of 8×4"},
		{"quality beyond", func(c *Catalog) { c.Tracks[2].Tile.Quality = 2 }, "hctile.quality: 2 is not in 0…1"},
		{"rectangle", func(c *Catalog) { c.Tracks[2].Tile.X = 2 }, "hctile.x: rectangle"},
		{"picture", func(c *Catalog) { c.Tracks[2].Height /= 2 }, "hctile.width: pictures are"},
		{"negative rectangle", func(c *Catalog) { c.Tracks[2].Tile.Width = -1 }, "hctile.x: invalid rectangle: -1"},
		{"role without tile", func(c *Catalog) { c.Tracks[2].Tile = nil }, `hctile: missing, although role is "tile"`},
		{"tile of role video", func(c *Catalog) { c.Tracks[2].Role = RoleVideo }, "a tile must not be"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := room(t)
			tt.change(c)
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestRates(t *testing.T) {
	s := &Sphere{Columns: 2, Rows: 1, Qualities: 2}
	good := `[{"T":1790000000000,"data":{"bytes":[[1,2],[null,4]],"mse":[[9.5,2],[null,1]],"missing":[100,50]}}]`
	r, err := ParseRates([]byte(good), s)
	if err != nil || *r.Data.Bytes[0][1] != 2 || r.Data.Bytes[1][0] != nil || r.T != 1790000000000 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if b, err := json.Marshal([]Rates{*r}); err != nil || string(b) != good {
		t.Errorf("written %s, %v", b, err)
	}
	for _, tt := range []struct{ name, doc, want string }{
		{"no record", `[]`, "0 records"},
		{"too few tiles", `[{"data":{"bytes":[[1,2]],"mse":[[1,2]],"missing":[1]}}]`, "1, 1 and 1 tiles, want 2"},
		{"too few qualities", strings.Replace(good, "[1,2]", "[1]", 1), "tile 0 cover 1 and 2 qualities"},
		{"bytes without distortion", strings.Replace(good, "9.5", "null", 1), "tile 0 at quality 0 are invalid"},
		{"negative", strings.Replace(good, "[1,2]", "[-1,2]", 1), "are invalid"},
		{"missing", strings.Replace(good, "50", "-50", 1), "for missing tile 1"},
		{"not JSON", "[", "rates: byte"},
	} {
		if _, err := ParseRates([]byte(tt.doc), s); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func FuzzRates(f *testing.F) {
	f.Add([]byte(`[{"T":1,"data":{"bytes":[[1,2],[null,4]],"mse":[[9.5,2],[null,1]],"missing":[100,50]}}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Sphere{Columns: 2, Rows: 1, Qualities: 2}
		if r, err := ParseRates(b, s); err == nil {
			if len(r.Data.Missing) != 2 {
				t.Error(fmt.Sprint(r))
			}
		}
	})
}
