package congestion

// maxFilter is Kathleen Nichols's windowed maximum over virtual time. It keeps three candidates
// from successive parts of the window: the best sample, the best after it, and the best after that.
type maxFilter struct {
	best [3]struct {
		value float64
		at    int64
	}
}

// update adds a sample and returns the maximum of the window that ends with it.
func (f *maxFilter) update(value float64, at, window int64) float64 {
	b := &f.best
	if value >= b[0].value || at-b[2].at > window {
		for i := range b {
			b[i].value, b[i].at = value, at
		}
		return b[0].value
	}
	switch {
	case value >= b[1].value:
		b[1].value, b[1].at = value, at
		b[2] = b[1]
	case value >= b[2].value:
		b[2].value, b[2].at = value, at
	}
	// Promote the next candidate when the best leaves the window. Take this sample as a candidate
	// when a part of the window has passed without a new one.
	switch age := at - b[0].at; {
	case age > window:
		b[0], b[1] = b[1], b[2]
		b[2].value, b[2].at = value, at
		if at-b[0].at > window {
			b[0], b[1] = b[1], b[2]
		}
	case b[1].at == b[0].at && age > window/4:
		b[1].value, b[1].at = value, at
		b[2] = b[1]
	case b[2].at == b[1].at && age > window/2:
		b[2].value, b[2].at = value, at
	}
	return b[0].value
}
