package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar is a progress bar on stderr, or nothing if stderr is not a terminal.
type bar struct {
	p     *progressbar.ProgressBar
	timed bool
}

func newBar(what string, max int64, o ...progressbar.Option) *bar {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return &bar{}
	}
	o = append(o, progressbar.OptionSetDescription(what), progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	return &bar{p: progressbar.NewOptions64(max, o...)}
}

// newBytesBar counts bytes without a known total.
func newBytesBar(what string) *bar {
	return newBar(what, -1, progressbar.OptionShowBytes(true))
}

// newTimeBar shows progress through a duration.
func newTimeBar(what string, d time.Duration) *bar {
	b := newBar(what, d.Milliseconds(), progressbar.OptionSetPredictTime(true))
	b.timed = true
	return b
}

// newCountBar shows progress through n items.
func newCountBar(what string, n int64) *bar {
	return newBar(what, n, progressbar.OptionShowCount())
}

func (b *bar) set(elapsed time.Duration, n int64) {
	if b.p == nil {
		return
	}
	if b.timed {
		n = elapsed.Milliseconds()
		if limit := b.p.GetMax64(); n > limit {
			n = limit
		}
	}
	_ = b.p.Set64(n)
}

func (b *bar) end() {
	if b.p != nil {
		_ = b.p.Clear()
	}
}
