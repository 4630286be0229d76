// Package timeline places recorded times on a line that always advances. Clocks of cameras and
// recorders step back, jump to another epoch or stand still.
package timeline

import "time"

const (
	// maxGap is the longest gap between two times of a running clock.
	maxGap = 24 * time.Hour
	// maxStray is the longest absence of a clock that returns after a jump.
	maxStray = time.Second
)

// Line is the timeline of one clock.
type Line struct {
	step   time.Duration
	last   time.Duration // newest recorded time
	at     time.Duration // its place
	newest time.Duration // place returned last
	begun  bool
	stray  bool          // the clock jumped to the newest time
	jumped bool          // the clock has jumped and not returned
	before time.Duration // place minus recorded time before the jump
}

// New returns a timeline that begins at recorded time start. After a jump of the clock, the next
// time follows the previous one by step.
func New(start, step time.Duration) *Line { return &Line{step: step, last: start} }

// Place returns the time from the line's start to a recorded time, and whether the clock jumped
// there. Places ascend, strictly unless the step is 0.
func (l *Line) Place(recorded time.Duration) (at time.Duration, jumped bool) {
	step, returned := recorded-l.last, recorded+l.before
	switch {
	case l.jumped && returned > l.at-l.step/2 && returned <= l.at+maxStray:
		l.at, l.jumped = returned, false
	case step > 0 && step <= maxGap, step == 0 && (l.step == 0 || !l.begun):
		l.at += step
	default:
		if !l.stray {
			l.before = l.at - l.last
		}
		l.at, l.jumped, jumped = l.newest+l.step, true, true
	}
	least := l.newest
	if l.begun {
		least += min(l.step, 1)
	}
	l.begun, l.stray, l.last, l.newest = true, jumped, recorded, max(l.at, least)
	return l.newest, jumped
}
