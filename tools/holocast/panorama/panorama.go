// Package panorama renders a short 360° video with sound for the demo, in place of a real
// recording. It shows a plaza at dusk with balls circling the viewer at different heights and
// speeds, and a ticking clock. It loops seamlessly.
package panorama

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"holocast/internal/ffmpeg"
	"holocast/internal/spherical"
)

// Width and Height are the video's size in pixels.
const (
	Width  = 1280
	Height = 640
)

// FPS and Seconds are the video's frame rate and length.
const (
	FPS     = 30
	Seconds = 4
)

const sampleRate = 48000

type vec struct{ x, y, z float64 } // right, up, forward

func (a vec) add(b vec) vec            { return vec{a.x + b.x, a.y + b.y, a.z + b.z} }
func (a vec) sub(b vec) vec            { return vec{a.x - b.x, a.y - b.y, a.z - b.z} }
func (a vec) times(s float64) vec      { return vec{a.x * s, a.y * s, a.z * s} }
func (a vec) dot(b vec) float64        { return a.x*b.x + a.y*b.y + a.z*b.z }
func (a vec) unit() vec                { return a.times(1 / math.Sqrt(a.dot(a))) }
func (a vec) mix(b vec, t float64) vec { return a.times(1 - t).add(b.times(t)) }

// ball circles the viewer an integer number of times per loop.
type ball struct {
	radius, distance, height float64 // metres
	turns, phase, bounce     float64
	color                    vec
}

var balls = []ball{
	{0.5, 3, 0.2, 1, 0, 0.5, vec{0.95, 0.3, 0.2}},
	{0.7, 5, 1.5, -1, 0.3, 0.3, vec{0.2, 0.6, 0.95}},
	{0.4, 4, -0.6, 2, 0.6, 0.2, vec{0.95, 0.8, 0.2}},
	{1.2, 8, 3, -1, 0.8, 0.8, vec{0.4, 0.85, 0.4}},
	{0.3, 2.5, 0.8, -2, 0.15, 0.4, vec{0.9, 0.4, 0.9}},
}

// floor is the height of the viewer's eyes above the floor, in metres.
const floor = 1.6

var sun = vec{0.4, 0.5, 0.75}.unit()

// center returns a ball's position at time t of the loop, from 0 to 1.
func (b *ball) center(t float64) vec {
	a := 2 * math.Pi * (b.turns*t + b.phase)
	return vec{
		b.distance * math.Sin(a),
		b.height + b.bounce*math.Abs(math.Sin(2*math.Pi*Seconds/2*t+b.phase)),
		b.distance * math.Cos(a),
	}
}

// scene holds all positions at one moment.
type scene struct {
	centers []vec
	hand    float64 // angle of the clock's hand
}

func at(t float64) *scene {
	s := &scene{hand: 2 * math.Pi * math.Floor(t*Seconds) / Seconds}
	for i := range balls {
		s.centers = append(s.centers, balls[i].center(t))
	}
	return s
}

// hit returns the nearest ball on a ray.
func (s *scene) hit(from, d vec) (index int, distance float64) {
	index, distance = -1, math.Inf(1)
	for i := range balls {
		o := s.centers[i].sub(from)
		b := o.dot(d)
		h := b*b - o.dot(o) + balls[i].radius*balls[i].radius
		if h < 0 {
			continue
		}
		if l := b - math.Sqrt(h); l > 1e-4 && l < distance {
			index, distance = i, l
		}
	}
	return index, distance
}

// color returns the color in a direction, as values from 0 to 1.
func (s *scene) color(d vec) vec {
	i, l := s.hit(vec{}, d)
	if i >= 0 {
		p := d.times(l)
		n := p.sub(s.centers[i]).unit()
		light := 0.25 + 0.75*math.Max(0, n.dot(sun))
		shine := math.Pow(math.Max(0, d.sub(n.times(2*d.dot(n))).dot(sun)), 30)
		stripe := 1.0
		if math.Mod(math.Atan2(n.x, n.z)*4/math.Pi+8, 2) < 1 {
			stripe = 0.75
		}
		return balls[i].color.times(light * stripe).add(vec{shine, shine, shine})
	}
	if d.y < -0.02 {
		return s.ground(d.times(-floor / d.y))
	}
	return s.sky(d)
}

// ground returns the plaza's color at a point: slabs, the balls' shadows, haze.
func (s *scene) ground(p vec) vec {
	slab := vec{0.55, 0.5, 0.45}
	if (int(math.Floor(p.x))+int(math.Floor(p.z)))%2 != 0 {
		slab = vec{0.42, 0.4, 0.4}
	}
	if i, _ := s.hit(p, sun); i >= 0 {
		slab = slab.times(0.5)
	}
	far := 1 - math.Exp(-math.Hypot(p.x, p.z)/30)
	return slab.mix(vec{0.75, 0.55, 0.45}, far)
}

// sky returns the color of the dusk sky, with pillars in eight directions and a clock in front.
func (s *scene) sky(d vec) vec {
	a := math.Atan2(d.x, d.z)
	up := math.Asin(math.Max(-1, math.Min(1, d.y)))
	if wind := math.Abs(math.Remainder(a, math.Pi/4)); wind < 0.035 && up < 0.45 {
		light := 0.5 + 0.4*math.Cos(wind/0.035*math.Pi/2)
		return vec{0.8, 0.75, 0.7}.times(light)
	}
	x, y := a, up-0.75
	if r := math.Hypot(x, y); r < 0.2 {
		angle := math.Atan2(x, y)
		hand := math.Abs(math.Remainder(angle-s.hand, 2*math.Pi))
		switch {
		case r > 0.18, r < 0.16 && hand*r < 0.012, r > 0.15 && math.Abs(math.Remainder(angle, math.Pi/6)) < 0.06:
			return vec{0.1, 0.1, 0.15}
		}
		return vec{0.95, 0.95, 0.9}
	}
	c := vec{0.95, 0.6, 0.4}.mix(vec{0.15, 0.25, 0.55}, math.Sqrt(math.Max(0, d.y)))
	glow := math.Pow(math.Max(0, d.dot(sun)), 60)
	return c.add(vec{glow, 0.8 * glow, 0.5 * glow})
}

// Frame renders frame n as width × height RGB pixels.
func Frame(n, width, height int) []byte {
	s := at(float64(n) / (FPS * Seconds))
	b := make([]byte, 3*width*height)
	var all sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		all.Go(func() {
			for y := w; y < height; y += workers {
				lat := math.Pi * (0.5 - (float64(y)+0.5)/float64(height))
				for x := range width {
					lon := 2 * math.Pi * ((float64(x)+0.5)/float64(width) - 0.5)
					c := s.color(vec{math.Cos(lat) * math.Sin(lon), math.Sin(lat), math.Cos(lat) * math.Cos(lon)})
					for i, v := range [3]float64{c.x, c.y, c.z} {
						b[3*(y*width+x)+i] = byte(255 * math.Max(0, math.Min(1, v)))
					}
				}
			}
		})
	}
	all.Wait()
	return b
}

// sound returns the ticking clock in mono 16-bit samples: one tick per second, the first at a
// higher pitch.
func sound() []byte {
	var b bytes.Buffer
	for n := range sampleRate * Seconds {
		second, t := n/sampleRate, float64(n%sampleRate)/sampleRate
		pitch := 900.0
		if second == 0 {
			pitch = 1400
		}
		v := 0.6 * math.Exp(-60*t) * math.Sin(2*math.Pi*pitch*t)
		_ = binary.Write(&b, binary.LittleEndian, int16(v*math.MaxInt16)) // a buffer does not fail
	}
	return b.Bytes()
}

// Write renders the video to an MP4 file. progress may be nil; it receives the numbers of finished
// frames and of all frames.
func Write(ctx context.Context, path string, progress func(done, total int)) error {
	return write(ctx, path, Width, Height, progress)
}

func write(ctx context.Context, path string, width, height int, progress func(done, total int)) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".panorama-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ticks, partial := filepath.Join(dir, "sound.raw"), filepath.Join(dir, "film.mp4")
	if err := os.WriteFile(ticks, sound(), 0o600); err != nil {
		return err
	}
	r, w := io.Pipe()
	p, _, err := ffmpeg.Start(
		ctx, 0, r, "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", fmt.Sprintf("%dx%d", width, height), "-r",
		fmt.Sprint(FPS), "-i", "pipe:0", "-f", "s16le", "-ar", fmt.Sprint(sampleRate), "-ac", "1", "-i",
		"file:"+ticks, "-c:v", "libx264", "-preset", "veryfast", "-crf", "16", "-pix_fmt", "yuv420p", "-c:a", "aac",
		"-shortest", "file:"+partial,
	)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := p.Wait()
		_ = r.CloseWithError(errors.New("the encoder exited")) // reported to the writer
		ended <- err
	}()
	const total = FPS * Seconds
	for n := range total {
		if _, err = w.Write(Frame(n, width, height)); err != nil {
			break
		}
		if progress != nil {
			progress(n+1, total)
		}
	}
	_ = w.Close()
	if eerr := <-ended; eerr != nil || ctx.Err() != nil {
		return errors.Join(eerr, ctx.Err())
	}
	if err != nil {
		return err
	}
	if err := spherical.Tag(partial, spherical.Metadata{Stereo: spherical.Mono}); err != nil {
		return err
	}
	return os.Rename(partial, path)
}
