package tile360

// These names are exported for tests that measure the model.
type (
	Blend  = blend
	Spread = spread
)

var (
	Horizons = horizons
	Speeds   = speeds
)

func Model() (*[len(horizons)]blend, *[2][len(speeds) + 1][len(horizons)]spread, *[len(errorRings)]float64) {
	return &blends, &spreads, &errorRings
}

func (g *Gaze) Velocity() (right, up float64) { return g.velocity() }

func (v Vec) Offset(w Vec) (right, up float64) { return v.offset(w) }

func NewBlend(ownX, ownY, crowdX, crowdY, aloneX, aloneY float64) blend {
	return blend{ownX, ownY, crowdX, crowdY, aloneX, aloneY}
}

func (b blend) Values() [6]float64 {
	return [6]float64{b.ownX, b.ownY, b.crowdX, b.crowdY, b.aloneX, b.aloneY}
}

func NewSpread(x, y, crowd float64) spread { return spread{x, y, crowd} }

func (s spread) Values() [3]float64 { return [3]float64{s.x, s.y, s.crowd} }
