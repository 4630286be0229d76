package pace

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"holocast/internal/timeline"
)

// Times holds the recorded times of a recording's frames.
type Times struct {
	Name   string // for the log
	Frames []time.Duration
	Step   time.Duration // frame interval
}

// Schedule returns the times at which the frames of recordings play. The recordings are
// synchronized by their clocks and loop with a common period; clock jumps and long common pauses
// are removed. A [Take] does the same for recordings whose times are not all known in advance.
func Schedule(recordings []Times, log *slog.Logger) []*Recording {
	starts := make([]time.Duration, len(recordings))
	for i, r := range recordings {
		starts[i] = r.Frames[0]
	}
	planned := make([]*Recording, len(recordings))
	var slots []*time.Duration
	for i, offset := range Offsets(starts) {
		r, frames := &recordings[i], make([]time.Duration, len(recordings[i].Frames))
		line, warned := timeline.New(starts[i], r.Step), false
		for k, recorded := range r.Frames {
			at, jumped := line.Place(recorded)
			if jumped && !warned {
				warned = true
				warnJump(log, r.Name, at-r.Step, recorded)
			}
			frames[k] = offset + at
			slots = append(slots, &frames[k])
		}
		planned[i] = &Recording{Frames: frames}
	}
	cutPauses(slots, recordings[0].Step)
	var period time.Duration
	for i, r := range planned {
		period = max(period, r.Frames[len(r.Frames)-1]+recordings[i].Step)
	}
	for _, r := range planned {
		r.Period = period
	}
	return planned
}

// cutPauses shortens pauses longer than MaxPause to step.
func cutPauses(slots []*time.Duration, step time.Duration) {
	slices.SortFunc(slots, func(a, b *time.Duration) int { return cmp.Compare(*a, *b) })
	var newest, cut time.Duration
	for _, slot := range slots {
		if pause := *slot - newest; pause > MaxPause {
			cut += pause - step
		}
		newest = *slot
		*slot -= cut
	}
}

func warnJump(log *slog.Logger, name string, after, to time.Duration) {
	log.Warn("the recording's clock jumped; its frames continue at the frame rate", "recording", name, "after", after,
		"to", to)
}

// Interval returns the median interval between frames, or 0 if there is none.
func Interval(frames []time.Duration) time.Duration {
	if len(frames) < 2 {
		return 0
	}
	steps := make([]time.Duration, len(frames)-1)
	for i := range steps {
		steps[i] = frames[i+1] - frames[i]
	}
	slices.Sort(steps)
	return max(0, steps[(len(steps)-1)/2])
}
