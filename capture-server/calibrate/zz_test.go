package calibrate

import (
	"fmt"
	"math"
	"testing"

	"holocast/capture-server/source"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
)

func graze(in []uint16, w, h int, f, deg float64, variant int) []uint16 {
	out := append([]uint16(nil), in...)
	k := 1 / (f * math.Tan(deg*math.Pi/180))
	if variant >= 4 {
		return graze2(in, out, w, h, k, variant)
	}
	for y := 1; y < h-1; y++ {
		for x := 1; x < w-1; x++ {
			i := y*w + x
			z := float64(in[i])
			if z == 0 {
				continue
			}
			lim := z * k
			st := func(o uint16) bool {
				if o == 0 {
					return variant != 1
				}
				return math.Abs(float64(o)-z) > lim
			}
			both := func(a, b uint16) bool {
				if variant == 2 && a == 0 && b == 0 {
					return false
				}
				return st(a) && st(b)
			}
			hz, vt := both(in[i-1], in[i+1]), both(in[i-w], in[i+w])
			d1, d2 := false, false
			if variant >= 3 {
				d1, d2 = both(in[i-w-1], in[i+w+1]), both(in[i-w+1], in[i+w-1])
			}
			if hz || vt || d1 || d2 {
				out[i] = 0
			}
		}
	}
	return out
}

func TestZZSynth(t *testing.T) {
	var exact [4][]float32
	st, err := synthetic.Open(t.Context(), synthetic.Options{Cameras: 4, Cut: 1, Room: true, Exact: func(c, f int, d []float32, _ []byte) { exact[c] = d }})
	if err != nil {
		t.Fatal(err)
	}
	var depths [][]uint16
	for _, c := range st.Cameras {
		var f source.Frame
		c.Next(t.Context(), &f)
		depths = append(depths, f.Depth)
	}
	cal := st.Cameras[0].Calibration().Depth
	for _, deg := range []float64{8, 10, 12} {
		for _, v := range []int{2, 9, 10} {
			fly, flyGone, good, goodGone := 0, 0, 0, 0
			for c, d := range depths {
				o := graze(d, cal.Width, cal.Height, cal.Fx, deg, v)
				for i, z := range d {
					if z == 0 {
						continue
					}
					if math.Abs(float64(z)-1000*float64(exact[c][i])) > 30 {
						fly++
						if o[i] == 0 {
							flyGone++
						}
					} else {
						good++
						if o[i] == 0 {
							goodGone++
						}
					}
				}
			}
			fmt.Printf("synth %4.0f° variant %d: flying %d removed %.1f%%, good %d lost %.3f%%\n", deg, v, fly, 100*float64(flyGone)/float64(fly), good, 100*float64(goodGone)/float64(good))
		}
	}
}

func TestZZReal(t *testing.T) {
	solved, err := Livescan(t.Context(), studio(t), "")
	if err != nil {
		t.Fatal(err)
	}
	views, err := firstViews(t.Context(), studio(t))
	if err != nil {
		t.Fatal(err)
	}
	// class: 1 floating, 2 confirmed
	class := make([][]byte, len(views))
	for a := range views {
		v := &views[a]
		class[a] = make([]byte, len(v.Depth))
		rays := v.Calibration.Depth.RayTable()
		for b := range views {
			if a == b {
				continue
			}
			move := solved.Poses[views[b].Name].Inverse().Compose(solved.Poses[v.Name])
			lens := views[b].Calibration.Depth
			for i, z := range v.Depth {
				if z == 0 {
					continue
				}
				d := float64(z)
				p := move.Apply([3]float64{float64(rays.X[i]) * d, float64(rays.Y[i]) * d, d})
				px, py, ok := lens.Project(p)
				x, y := int(px+0.5), int(py+0.5)
				if !ok || x < 4 || y < 4 || x >= lens.Width-4 || y >= lens.Height-4 {
					continue
				}
				floating, confirmed := true, true
				for dy := -4; dy <= 4; dy += 2 {
					for dx := -4; dx <= 4; dx += 2 {
						o := float64(views[b].Depth[(y+dy)*lens.Width+x+dx])
						if o < p[2]+60 {
							floating = false
						}
						if math.Abs(o-p[2]) > 40 {
							confirmed = false
						}
					}
				}
				if o := float64(views[b].Depth[y*lens.Width+x]); math.Abs(o-p[2]) > 20 {
					confirmed = false
				}
				if floating {
					class[a][i] = 1
				} else if confirmed && class[a][i] == 0 {
					class[a][i] = 2
				}
			}
		}
	}
	_ = camera.Identity
	for a := range views {
		v := &views[a]
		w := v.Calibration.Depth.Width
		sizes := map[int]int{}
		seen := make([]bool, len(v.Depth))
		for i := range v.Depth {
			if class[a][i] != 1 || seen[i] {
				continue
			}
			st, n := []int{i}, 0
			seen[i] = true
			for len(st) > 0 {
				k := st[len(st)-1]
				st = st[:len(st)-1]
				n++
				for _, d := range []int{1, -1, w, -w} {
					if q := k + d; q >= 0 && q < len(v.Depth) && class[a][q] == 1 && !seen[q] {
						seen[q] = true
						st = append(st, q)
					}
				}
			}
			b := 1
			for b < n {
				b *= 2
			}
			sizes[b] += n
		}
		//fmt.Println("floating points by cluster size (°)", v.Name, sizes)
	}
	for _, deg := range []float64{8, 10, 12} {
		for _, variant := range []int{2, 9, 10} {
			var n, gone [3]int
			for a := range views {
				v := &views[a]
				o := graze(v.Depth, v.Calibration.Depth.Width, v.Calibration.Depth.Height, v.Calibration.Depth.Fx, deg, variant)
				for i, z := range v.Depth {
					if z == 0 {
						continue
					}
					n[class[a][i]]++
					if o[i] == 0 {
						gone[class[a][i]]++
					}
				}
			}
			r := func(k int) float64 { return 100 * float64(gone[k]) / float64(n[k]) }
			fmt.Printf("real %3.0f° variant %d: floating %d removed %.1f%%, confirmed %d lost %.3f%%, other %d dropped %.2f%%\n", deg, variant, n[1], r(1), n[2], r(2), n[0], r(0))
		}
	}
}

func graze2(in, out []uint16, w, h int, k float64, variant int) []uint16 {
	for y := 3; y < h-3; y++ {
		for x := 3; x < w-3; x++ {
			i := y*w + x
			z := float64(in[i])
			if z == 0 {
				continue
			}
			lim := z * k
			drop := false
			st := func(o uint16) bool { return math.Abs(float64(o)-z) > lim }
			switch variant {
			case 9, 10:
				dirs := []int{1, w, w + 1, w - 1}
				lims := []float64{1, 1, 1.4, 1.4}
				for q, d := range dirs {
					a, b := in[i-d], in[i+d]
					if (a != 0 || b != 0) && (a != 0 && b != 0 || variant == 9) && math.Abs(float64(a)-z) > lim*lims[q] && math.Abs(float64(b)-z) > lim*lims[q] {
						drop = true
					}
				}
				_ = st
			case 4: // central difference steep
				for _, d := range []int{1, w} {
					a, b := float64(in[i-d]), float64(in[i+d])
					if a > 0 && b > 0 && math.Abs(a-b) > 2*lim && (math.Abs(a-z) > lim/2 && math.Abs(b-z) > lim/2) {
						drop = true
					}
				}
			case 5: // isolated 3x3, 3 neighbours of 30 mm
				n := 0
				for dy := -1; dy <= 1; dy++ {
					for dx := -1; dx <= 1; dx++ {
						if math.Abs(float64(in[i+dy*w+dx])-z) <= 30 {
							n++
						}
					}
				}
				drop = n < 4
			case 6: // erode 1 step 50
				for dy := -1; dy <= 1; dy++ {
					for dx := -1; dx <= 1; dx++ {
						o := float64(in[i+dy*w+dx])
						if o == 0 || z-o > 50 {
							drop = true
						}
					}
				}
			case 7: // grazing neighbours: fewer than 3 of 8 neighbours joined within lim
				n := 0
				for dy := -1; dy <= 1; dy++ {
					for dx := -1; dx <= 1; dx++ {
						if (dx != 0 || dy != 0) && math.Abs(float64(in[i+dy*w+dx])-z) <= lim*1.2 {
							n++
						}
					}
				}
				drop = n < 3
			case 8: // fewer than 2 of 8
				n := 0
				for dy := -1; dy <= 1; dy++ {
					for dx := -1; dx <= 1; dx++ {
						if (dx != 0 || dy != 0) && math.Abs(float64(in[i+dy*w+dx])-z) <= lim*1.2 {
							n++
						}
					}
				}
				drop = n < 2
			}
			if drop {
				out[i] = 0
			}
		}
	}
	return out
}
