package player

import (
	"context"
	"slices"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
	"holocast/tools/holocast/player/sound"
	"holocast/tools/holocast/player/sphere"
)

const (
	// soundPriority is the subscriber priority of FETCHes of recorded sound.
	soundPriority = 64
	// soundAhead is how far ahead of their time packets are passed to the mixer.
	soundAhead = 200 * time.Millisecond
)

// soundBuffer holds the packets of a recorded sound track ahead of the position. Playback never waits
// for sound.
type soundBuffer struct {
	p      *Player
	ctx    context.Context
	track  catalog.Track
	start  time.Time // timestamp at position 0
	length time.Duration
	fetch  sphere.Fetch
	all    sync.WaitGroup

	mu       sync.Mutex
	packets  []sound.Packet // in order
	buffered time.Duration
	window   time.Duration
	cancel   context.CancelFunc // cancels the FETCH in flight; nil if there is none
	seeks    int
	notUntil time.Time
}

// recordedSound returns the buffers of a recording's microphones.
func (p *Player) recordedSound(
	ctx context.Context, c *catalog.Catalog, length time.Duration, fetch sphere.Fetch,
) (list []playable) {
	if p.cfg.Sound == nil {
		return nil
	}
	for _, t := range c.Sounds() {
		list = append(list, &soundBuffer{
			p: p, ctx: ctx, track: t, start: wallclock(c), length: length, fetch: fetch, window: firstWindow,
		})
	}
	return list
}

// Seek implements playable.
func (b *soundBuffer) Seek(position time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seeks++
	if b.cancel != nil {
		b.cancel()
	}
	b.cancel, b.packets, b.window, b.notUntil = nil, nil, firstWindow, time.Time{}
	b.buffered = max(0, position-framesBefore).Truncate(time.Millisecond)
}

// Close implements playable.
func (b *soundBuffer) Close() {
	b.Seek(0)
	b.all.Wait()
}

// Buffered implements playable.
func (b *soundBuffer) Buffered() time.Duration { return b.length + time.Millisecond }

// Primed implements playable.
func (b *soundBuffer) Primed() bool { return true }

// Tick implements playable.
func (b *soundBuffer) Tick(position time.Duration, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel == nil && b.buffered <= b.length && b.buffered-position <= keptAhead && !time.Now().Before(b.notUntil) {
		b.refill()
	}
	until := b.start.Add(position + soundAhead)
	for len(b.packets) > 0 && b.packets[0].Timestamp.Before(until) {
		b.p.cfg.Sound.Add(b.track.Name, sound.FormatOf(b.track), b.packets[0], time.Now())
		b.packets = b.packets[1:]
	}
}

// refill starts the next FETCH. The caller holds b.mu.
func (b *soundBuffer) refill() {
	ctx, cancel := context.WithCancel(b.ctx)
	b.cancel = cancel
	seeks, first, end := b.seeks, uint64(b.buffered.Milliseconds()), b.buffered+b.window
	b.all.Go(func() {
		defer cancel()
		var packets []sound.Packet
		over, err := b.fetch(ctx, b.track.Name, first, uint64(end.Milliseconds())-1, soundPriority, sound.MaxPacket,
			func(o wire.FetchObject, payload []byte) {
				b.p.meter.Received(len(payload), time.Now())
				packet, err := sound.ParsePacket(o.Properties, payload)
				if err != nil {
					b.p.cfg.Sound.Refuse(b.track.Name, err)
					return
				}
				packets = append(packets, packet)
			})
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.seeks != seeks {
			return
		}
		b.cancel = nil
		switch {
		case over:
			b.buffered = b.length + time.Millisecond
		case err != nil:
			b.notUntil = time.Now().Add(fetchAgain)
		default:
			b.buffered, b.window = end, window
			b.packets = append(b.packets, packets...)
			slices.SortStableFunc(b.packets, func(x, y sound.Packet) int { return x.Timestamp.Compare(y.Timestamp) })
		}
	})
}
