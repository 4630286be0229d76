package pointvideo

import (
	"math/rand/v2"
	"testing"

	"holocast/internal/pointcloud"
)

// scene draws frame t of a sequence into g, which is empty.
type scene struct {
	name          string
	width, height int
	frames        int
	keys          []int // frames that start a group, besides the first
	cfg           Config
	draw          func(g *pointcloud.Grid, r *rand.Rand, t int)
}

func set(g *pointcloud.Grid, x, y int, depth uint16, red, green, blue byte) {
	i := y*g.Width + x
	g.Depth[i] = depth
	if depth != 0 {
		copy(g.Color[3*i:], []byte{red, green, blue})
	}
}

// room is a wall with holes and noise, and a ball that moves in front of it.
func room(g *pointcloud.Grid, r *rand.Rand, t int) {
	for y := range g.Height {
		for x := range g.Width {
			depth := 2400 + 6*float64(x) + r.NormFloat64()*2.6
			red, green, blue := byte(90+x), byte(120+y/2), byte(200-x)
			if dx, dy := x-8-2*t, y-g.Height/2; dx*dx+dy*dy < g.Height*g.Height/16 {
				depth = 1100 + float64(dx*dx+dy*dy) + r.NormFloat64()*2
				red, green, blue = byte(210-4*dy), byte(40+4*dx), 30
			}
			if x > g.Width-6 || r.IntN(90) == 0 {
				depth = 0
			}
			set(g, x, y, uint16(depth+0.5), red, green, blue)
		}
	}
}

func scenes() []scene {
	anything := func(g *pointcloud.Grid, r *rand.Rand, t int) {
		for i := range g.Depth {
			set(g, i%g.Width, i/g.Width, uint16(r.Uint32())*uint16(min(r.IntN(4), 1)), byte(r.Uint32()),
				byte(r.Uint32()), byte(r.Uint32()))
		}
	}
	return []scene{
		{name: "room", width: 64, height: 48, frames: 8, keys: []int{5}, draw: room},
		{name: "odd", width: 33, height: 17, frames: 4, draw: room},
		{name: "anything", width: 48, height: 32, frames: 3, draw: anything},
		{
			name: "parameters", width: 40, height: 30, frames: 3, draw: room,
			cfg: Config{Sigma0: 400, Sigma2: 3000, Step: 13, DepthQP: 30, ColorQP: 35},
		},
		{
			name: "appears", width: 32, height: 32, frames: 4,
			draw: func(g *pointcloud.Grid, r *rand.Rand, t int) {
				if t > 0 && t < 3 {
					room(g, r, t)
				}
			},
		},
		{
			name: "ramp", width: 255, height: 2, frames: 2,
			draw: func(g *pointcloud.Grid, _ *rand.Rand, t int) {
				for i := range g.Depth {
					set(g, i%g.Width, i/g.Width, uint16(65535-128*i-t), byte(i), byte(255-i), byte(i/2))
				}
			},
		},
		{
			name: "pixel", width: 1, height: 1, frames: 2,
			draw: func(g *pointcloud.Grid, _ *rand.Rand, t int) { set(g, 0, 0, uint16(700+90*t), 255, 128, 0) },
		},
	}
}

// grids returns the scene's frames.
func (s scene) grids() []pointcloud.Grid {
	r := rand.New(rand.NewPCG(7, 1))
	grids := make([]pointcloud.Grid, s.frames)
	for t := range grids {
		g := &grids[t]
		g.Resize(s.width, s.height)
		s.draw(g, r, t)
	}
	return grids
}

func (s scene) key(t int) bool {
	for _, k := range s.keys {
		if k == t {
			return true
		}
	}
	return t == 0
}

// encode returns the objects of the scene's frames.
func (s scene) encode(t testing.TB) [][]byte {
	t.Helper()
	cfg := s.cfg
	cfg.Width, cfg.Height = s.width, s.height
	e := newEncoder(t, cfg)
	var objects [][]byte
	for i, g := range s.grids() {
		h := pointcloud.Header{
			Sequence: uint32(40 + i), DeviceTime: 1<<63 + uint64(i), CaptureTime: 1763665200123456 + 33333*uint64(i), Camera: 3,
		}
		b, err := e.Encode(nil, h, &g, s.key(i))
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, b)
	}
	return objects
}

func newEncoder(t testing.TB, cfg Config) *Encoder {
	t.Helper()
	e, err := NewEncoder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func newDecoder(t testing.TB) *Decoder {
	t.Helper()
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}
