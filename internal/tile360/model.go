package tile360

// This file is a model of gaze prediction, fitted to recorded head movements. TestModel fits it to
// the traces of Nasrabadi et al., "A Taxonomy and Dataset for 360° Videos" (MMSys 2019), viewers
// 1–15 of each video, and writes model_data.go with -update.

// blend holds the weights of the regression's and the crowd's offset, to the right (X) and up (Y),
// with a crowd and alone.
type blend struct {
	ownX, ownY, crowdX, crowdY, aloneX, aloneY float64
}

// spread is the scale of prediction errors to the right and up in radians, and the probability
// given to the crowd's own directions.
type spread struct{ x, y, crowd float64 }

// horizons are the tables' prediction horizons in seconds.
var horizons = [...]float64{0, 0.25, 0.5, 1, 1.5, 2, 3}

// speeds separate the classes of speed, in radians per second.
var speeds = [...]float64{0.1, 0.4}

// between returns the table indices around a horizon, and its fraction between them.
func between(ahead float64) (i, j int, f float64) {
	n := len(horizons)
	for k := 1; k < n; k++ {
		if ahead < horizons[k] {
			return k - 1, k, max(0, (ahead-horizons[k-1])/(horizons[k]-horizons[k-1]))
		}
	}
	return n - 1, n - 1, 0
}

func modelAt(ahead float64) blend {
	i, j, f := between(ahead)
	a, b := blends[i], blends[j]
	mix := func(a, b float64) float64 { return a + f*(b-a) }
	return blend{
		mix(a.ownX, b.ownX), mix(a.ownY, b.ownY), mix(a.crowdX, b.crowdX), mix(a.crowdY, b.crowdY),
		mix(a.aloneX, b.aloneX), mix(a.aloneY, b.aloneY),
	}
}

func errorAt(ahead, speed float64, crowd bool) spread {
	class := 0
	for class < len(speeds) && speed > speeds[class] {
		class++
	}
	with := 0
	if crowd {
		with = 1
	}
	i, j, f := between(ahead)
	a, b := spreads[with][class][i], spreads[with][class][j]
	return spread{a.x + f*(b.x-a.x), a.y + f*(b.y-a.y), a.crowd + f*(b.crowd-a.crowd)}
}
