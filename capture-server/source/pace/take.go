package pace

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holocast/internal/timeline"
)

const (
	// sameClock is the maximum time between the starts of recordings that share a clock. Recorders
	// start the cameras of a take one by one.
	sameClock = 5 * time.Second
	// MaxPause is the longest pause that is played. If all recordings pause for longer, the pause
	// is cut.
	MaxPause = time.Minute
)

// Offsets returns the time from the start of a take to the start of each recording, by the
// recordings' clocks. Recordings that start within five seconds of each other share a clock. For
// each clock, the take starts with the earliest of its recordings.
func Offsets(starts []time.Duration) []time.Duration {
	origin := time.Duration(0)
	offsets := make([]time.Duration, len(starts))
	order := make([]int, len(starts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(starts[a], starts[b]) })
	for n, i := range order {
		if n == 0 || starts[i]-origin > sameClock {
			origin = starts[i]
		}
		offsets[i] = starts[i] - origin
	}
	return offsets
}

// Take plays recordings in step, by the times of their frames. A take that loops has one period:
// its recordings start again when all have ended. The clock of the take starts at the first call of
// [Part.Wait].
type Take struct {
	loop bool
	log  *slog.Logger

	mu      sync.Mutex
	parts   []*Part
	started bool
	start   time.Time     // due time of position 0
	pass    int           // number of the pass, from 0
	begin   time.Duration // position at which the pass begins
	moved   chan struct{} // closed and replaced when start or pass changes
}

// NewTake returns a take without recordings. It logs clock jumps to log, or to slog.Default() if
// log is nil.
func NewTake(loop bool, log *slog.Logger) *Take {
	if log == nil {
		log = slog.Default()
	}
	return &Take{loop: loop, log: log, moved: make(chan struct{})}
}

// Part is one recording of a take. Each part needs its own goroutine to call Wait, Again and Leave.
// The next pass starts only when every part has called Again or Leave.
type Part struct {
	take  *Take
	name  string        // for the log
	start time.Duration // recorded time of the first frame
	step  time.Duration // frame interval

	line   *timeline.Line // timeline of the current pass
	warned bool

	// Guarded by take.mu.
	offset time.Duration // from the start of the take to the start of the part
	at     time.Duration // position of the newest frame
	state  state
}

type state int

const (
	busy    state = iota
	waiting       // for the frame at Part.at
	ended         // waiting for the next pass
	left
)

// Join adds a recording whose frames were recorded from time start on, at intervals of step. All
// recordings must join before the first Wait.
func (t *Take) Join(name string, start, step time.Duration) *Part {
	p := &Part{take: t, name: name, start: start, step: step, line: timeline.New(start, step)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts = append(t.parts, p)
	return p
}

// Moment is the time at which a frame plays.
type Moment struct {
	Due time.Time
	// Device is the time by the recording's clock, without its jumps. It keeps growing from pass
	// to pass.
	Device time.Duration
	// Late reports whether the frame is more than an interval overdue.
	Late bool
}

// Wait blocks until a frame is due. recorded is the frame's time by the recording's clock.
func (p *Part) Wait(ctx context.Context, recorded time.Duration) (Moment, error) {
	t := p.take
	at, jumped := p.line.Place(recorded)
	if jumped && !p.warned {
		p.warned = true
		warnJump(t.log, p.name, at-p.step, recorded)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setOut()
	p.at, p.state = t.begin+p.offset+at, waiting
	defer func() { p.state = busy }()
	t.cutPause()
	for {
		due, moved := t.start.Add(p.at), t.moved
		if late := time.Since(due); late >= 0 {
			return Moment{due, p.start - p.offset + p.at, late > p.step}, ctx.Err()
		}
		t.mu.Unlock()
		err := until(ctx, due, moved)
		t.mu.Lock()
		if err != nil {
			return Moment{}, err
		}
	}
}

// setOut starts the clock.
func (t *Take) setOut() {
	if t.started {
		return
	}
	t.started, t.start = true, time.Now()
	starts := make([]time.Duration, len(t.parts))
	for i, p := range t.parts {
		starts[i] = p.start
	}
	origins := map[time.Duration]bool{}
	for i, offset := range Offsets(starts) {
		t.parts[i].offset = offset
		origins[starts[i]-offset] = true
	}
	switch n := len(t.parts); {
	case len(origins) > 1:
		t.log.Warn("recordings have different clocks; playing each clock from its first frame", "recordings", n,
			"clocks", len(origins))
	case n > 1:
		t.log.Info("playing recordings synchronized by their clock", "recordings", n)
	}
}

// cutPause skips a long pause if all parts wait for a frame after it.
func (t *Take) cutPause() {
	var next *Part
	for _, p := range t.parts {
		switch {
		case p.state == busy:
			return
		case p.state == waiting && (next == nil || p.at < next.at):
			next = p
		}
	}
	if next == nil {
		return
	}
	if pause := time.Until(t.start.Add(next.at)); pause > MaxPause {
		t.log.Warn("cut a pause in the recording", "recording", next.name, "pause", pause.Round(time.Millisecond))
		t.move(next.step - pause)
	}
}

// move shifts the take in time and wakes the parts.
func (t *Take) move(by time.Duration) {
	t.start = t.start.Add(by)
	close(t.moved)
	t.moved = make(chan struct{})
}

// Again ends the recording's pass. It returns nil at the start of the next pass, or io.EOF if the
// take does not loop.
func (p *Part) Again(ctx context.Context) error {
	t := p.take
	if !t.loop {
		p.Leave()
		return io.EOF
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pass := t.pass
	p.state = ended
	t.turn()
	for t.pass == pass {
		moved := t.moved
		t.mu.Unlock()
		var err error
		select {
		case <-moved:
		case <-ctx.Done():
			err = ctx.Err()
		}
		t.mu.Lock()
		if err != nil {
			return err
		}
	}
	p.line = timeline.New(p.start, p.step)
	return nil
}

// Leave removes the recording from the take, so that the others no longer wait for it.
func (p *Part) Leave() {
	t := p.take
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.state != left {
		p.state = left
		t.turn()
	}
}

// turn starts the next pass once all parts have ended or left.
func (t *Take) turn() {
	end, some := t.begin, false
	for _, p := range t.parts {
		switch p.state {
		case busy, waiting:
			t.cutPause()
			return
		case ended:
			end, some = max(end, p.at+p.step), true
		}
	}
	if !some {
		return
	}
	t.pass, t.begin = t.pass+1, end
	for _, p := range t.parts {
		if p.state == ended {
			p.state = busy
		}
	}
	// Delay the next pass if recordings that read too slowly are late by now.
	t.move(max(0, time.Since(t.start.Add(t.begin))))
}
