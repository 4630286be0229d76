package player

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/pointcloud"
	"holocast/tools/holocast/player/sound"
	"holocast/tools/holocast/player/sphere"
)

// soundTimeout is the age at which senders drop a packet (docs/spec/sound.md).
const soundTimeout = 500 * time.Millisecond

// relayTime is the mixer's clock for live sessions and shared replays.
func (p *Player) relayTime(local time.Time) (time.Time, sound.State) {
	p.mu.Lock()
	known := p.hasClock != clockUnknown
	p.mu.Unlock()
	if !known {
		return time.Time{}, sound.Unknown
	}
	return p.clock.At(local), sound.Running
}

// listenTo adds the receive functions for the microphones' tracks to list.
func (p *Player) listenTo(c *catalog.Catalog, list map[string]func(context.Context, *moqt.Session)) {
	if p.cfg.Sound == nil {
		return
	}
	mode := sound.Live
	if p.recorded.isShared() {
		mode = sound.Shared
	}
	p.cfg.Sound.Use(p.relayTime, mode)
	for _, t := range c.Sounds() {
		name := connect.TrackName(p.cfg.Namespace, t)
		list[name.String()] = func(ctx context.Context, s *moqt.Session) { p.listen(ctx, s, name, t) }
	}
}

// listen receives a microphone's track until the track or the connection ends.
func (p *Player) listen(ctx context.Context, s *moqt.Session, name moqt.TrackName, t catalog.Track) {
	for {
		sub, err := connect.Subscribe(ctx, s, name, soundTimeout, true)
		if err == nil {
			err = p.hear(ctx, sub, t)
			sub.Cancel()
		}
		if connect.Ended(err) {
			return
		}
		if !connect.Away(err) {
			if ctx.Err() == nil && s.Err() == nil {
				p.log.Error("could not receive sound", "track", name.String(), "err", err)
			}
			return
		}
		p.log.Warn("publisher is away", "track", name.String(), "reason", err)
	}
}

// hear plays a subscription until it ends and returns the reason.
func (p *Player) hear(ctx context.Context, sub *moqt.Subscription, t catalog.Track) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() {
		for {
			d, err := sub.AcceptDatagram(ctx)
			if err != nil {
				return
			}
			if d.Status == wire.StatusNormal {
				p.play(t, d.Properties, d.Payload)
			}
		}
	})
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			if !connect.Ended(err) {
				sub.Cancel() // unblocks readers of open subgroups
			}
			return err
		}
		wg.Go(func() { p.hearGroup(r, t) })
	}
}

// hearGroup plays the packets of a stream.
func (p *Player) hearGroup(r *moqt.SubgroupReader, t catalog.Track) {
	for {
		o, err := r.NextObject()
		if err == nil && o.Status != wire.StatusNormal {
			continue
		}
		if err == nil && o.PayloadLength > sound.MaxPacket {
			p.cfg.Sound.Refuse(t.Name, fmt.Errorf("a packet has %d bytes, more than %d", o.PayloadLength, sound.MaxPacket))
			r.Cancel(wire.StreamCancelled)
			return
		}
		var payload []byte
		if err == nil {
			payload, err = r.ReadPayload(nil, sound.MaxPacket)
		}
		if err != nil {
			if err != io.EOF {
				r.Cancel(wire.StreamCancelled)
			}
			return
		}
		p.play(t, o.Properties, payload)
	}
}

// play passes an object of a sound track to the mixer.
func (p *Player) play(t catalog.Track, properties wire.Properties, payload []byte) {
	now := time.Now()
	p.meter.Received(len(payload), now)
	packet, err := sound.ParsePacket(properties, payload)
	if err != nil {
		p.cfg.Sound.Refuse(t.Name, err)
		return
	}
	p.cfg.Sound.Add(t.Name, sound.FormatOf(t), packet, now)
}

// sphereSound returns the function that receives the packets of 360° sound, or nil if sound is off.
func (p *Player) sphereSound() func(sphere.SoundPacket) {
	if p.cfg.Sound == nil {
		return nil
	}
	return func(x sphere.SoundPacket) {
		if x.Track.Codec != catalog.CodecOpus {
			p.cfg.Sound.Refuse(x.Track.Name, fmt.Errorf("the codec is %.40q; only opus is supported", x.Track.Codec))
			return
		}
		packet, err := sound.ParsePacket(x.Properties, x.Payload)
		if err == nil && x.Track.Channels() == 0 {
			err = errors.New("the sound is neither mono nor stereo")
		}
		if err != nil {
			p.cfg.Sound.Refuse(x.Track.Name, err)
			return
		}
		if !x.Due.IsZero() {
			p.cfg.Sound.Shown(packet.Timestamp, x.Due, 0)
		}
		p.cfg.Sound.Add(x.Track.Name, sound.FormatOf(x.Track), packet, time.Now())
	}
}

// hold delays a frame that would otherwise precede its sound. It returns the frame's delay, which
// includes waiting behind earlier held frames.
func (p *Player) hold(fr *frame) time.Duration {
	if p.cfg.Sound == nil || fr.own {
		return 0
	}
	held := p.cfg.Sound.Hold()
	wait := time.Until(fr.completed.Add(held))
	if wait <= 0 {
		return 0
	}
	time.Sleep(wait)
	return held
}

// inStep tells the mixer the delay of a frame that is displayed now.
func (p *Player) inStep(h pointcloud.Header, held time.Duration) {
	if p.cfg.Sound != nil {
		p.cfg.Sound.Shown(time.UnixMicro(int64(h.CaptureTime)), time.Now(), held)
	}
}

// playhead is the mixer's clock for a recording that the player plays at its own pace.
type playhead struct {
	mu       sync.Mutex
	start    time.Time // capture time at position 0
	position time.Duration
	at       time.Time // of position
	running  bool
}

func (h *playhead) set(position time.Duration, at time.Time, running bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.position, h.at, h.running = position, at, running
}

func (h *playhead) time(local time.Time) (time.Time, sound.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.running {
		return h.start.Add(h.position), sound.Paused
	}
	return h.start.Add(h.position + local.Sub(h.at)), sound.Running
}

// followPlayhead sets the mixer's clock to the position in a recording. The returned function
// restores the relay's clock.
func (p *Player) followPlayhead(c *catalog.Catalog) (stop func()) {
	if p.cfg.Sound == nil {
		return func() {}
	}
	p.playhead.mu.Lock()
	p.playhead.start = wallclock(c)
	p.playhead.mu.Unlock()
	p.playhead.set(0, time.Now(), false)
	p.cfg.Sound.Use(p.playhead.time, sound.Own)
	return func() { p.cfg.Sound.Use(p.relayTime, sound.Shared) }
}
