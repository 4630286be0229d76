// Package sound plays a session's microphones in step with its pictures. A [Mixer] takes packets and
// the delays of displayed pictures, and yields the mixed sound at the pace of an output: a device or
// a WAV file.
package sound

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"holocast/internal/jitter"
	"holocast/internal/opus"
)

// Output format.
const (
	SampleRate = 48000
	Channels   = 2
)

// maxTracks bounds the microphones of a session.
const maxTracks = 16

// Clock converts a local time to the session's clock.
type Clock func(local time.Time) (session time.Time, state State)

// State is the state of a Clock.
type State int

// States of a Clock.
const (
	Unknown State = iota // packets are discarded
	Paused               // packets wait
	Running
)

// Mixer plays the microphones of one session. Its methods may be called concurrently.
type Mixer struct {
	log  *slog.Logger
	lead time.Duration

	mu       sync.Mutex
	clock    Clock
	mode     Mode
	base     time.Duration // session's clock minus timestamps, of a replay
	based    bool
	astray   int // packets in a row that contradict base
	tracks   map[string]*track
	names    []string // of tracks, in order of appearance
	pictures delays
	own      int64 // largest own delay of the tracks, µs
	stats    Report
	warned   map[string]bool
}

// Format describes a track.
type Format struct {
	Channels int
	Packet   time.Duration // 0: the duration of the first packet
}

// Packet is one packet of sound.
type Packet struct {
	Timestamp time.Time // capture time of its first sample
	Data      []byte
	Previous  []byte // copy of the previous packet, or nil
}

// track is one microphone.
type track struct {
	voice    *jitter.Voice
	dec      *opus.Decoder
	channels int
	samples  int // per packet
	block    []float32
}

// New returns a mixer. lead is the maximum time from a call of Read until its first sample is
// heard.
func New(lead time.Duration, log *slog.Logger) *Mixer {
	return &Mixer{
		log: log, lead: lead, tracks: map[string]*track{}, warned: map[string]bool{},
		clock: func(time.Time) (time.Time, State) { return time.Time{}, Unknown },
	}
}

// Close frees the decoders.
func (m *Mixer) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tracks {
		t.dec.Close()
	}
	m.tracks, m.names = map[string]*track{}, nil
}

// Mode is the kind of session, which determines how timestamps relate to the clock.
type Mode int

// Modes of a mixer.
const (
	Live   Mode = iota
	Shared      // a replay shared by all viewers; timestamps are in the past
	Own         // a recording that this viewer plays at its own pace; the clock follows it
)

// Use sets the session's clock. It discards the waiting packets if the mode changes or is Own.
func (m *Mixer) Use(clock Clock, mode Mode) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clock = clock; m.mode == mode && mode != Own {
		return
	}
	m.mode, m.base, m.based = mode, 0, false
	m.forget()
}

// Seek discards waiting packets.
func (m *Mixer) Seek() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
}

func (m *Mixer) forget() {
	m.pictures = delays{}
	if m.mode == Own {
		m.pictures.fallback = new(int64)
	}
	for _, t := range m.tracks {
		t.voice.Forget()
	}
}

// now converts a local time to the timestamps' clock, in µs. The caller holds m.mu.
func (m *Mixer) now(local time.Time) (int64, State) {
	at, state := m.clock(local)
	if m.mode == Shared && !m.based {
		state = Unknown
	}
	return at.Add(-m.base).UnixMicro(), state
}

// Add adds a packet that arrived at a local time.
func (m *Mixer) Add(name string, f Format, p Packet, arrived time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.track(name, f, p.Data)
	if err == nil {
		err = check(p, t)
	}
	if err != nil {
		m.refuse(name, err)
		return
	}
	m.rebase(p.Timestamp, arrived)
	now, state := m.now(arrived)
	if state == Unknown {
		return
	}
	if m.mode == Own { // the viewer fetches ahead, so arrivals say nothing about the delay
		now = p.Timestamp.Add(-time.Second).UnixMicro()
	}
	far := t.voice.Stats().Far
	t.voice.Add(now, jitter.Packet{Timestamp: p.Timestamp.UnixMicro(), Data: p.Data}, p.Previous)
	if t.voice.Stats().Far > far {
		off := p.Timestamp.Sub(time.UnixMicro(now)).Round(time.Second)
		m.refuse(name, fmt.Errorf("a timestamp is %s from the clock", off))
	}
}

// When a replay starts over, its timestamps jump: by at least jumpOver, in jumpAfter consecutive
// packets.
const (
	jumpOver  = time.Second
	jumpAfter = 3 // packets in a row
)

// rebase updates base, the offset of a shared replay's timestamps from the clock. The caller holds
// m.mu.
func (m *Mixer) rebase(stamp, arrived time.Time) {
	at, state := m.clock(arrived)
	if state == Unknown || m.mode != Shared {
		return
	}
	base := at.Sub(stamp)
	if m.based && (base-m.base).Abs() < jumpOver {
		m.astray = 0
		return
	}
	if m.astray++; m.based && m.astray < jumpAfter {
		return
	}
	m.base, m.based, m.astray = base, true, 0
	m.forget()
}

// Refuse counts a packet that cannot be played, by the name of its track.
func (m *Mixer) Refuse(name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse(name, err)
}

// refuse is Refuse for callers that hold m.mu.
func (m *Mixer) refuse(name string, err error) {
	m.stats.Refused++
	m.stats.Error = fmt.Sprintf("packets of %s refused: %v", name, err)
	if !m.warned[name] {
		m.warned[name] = true
		m.log.Warn("sound refused", "track", name, "err", err)
	}
}

// track returns the named track, which it creates for the track's first packet. The caller holds
// m.mu.
func (m *Mixer) track(name string, f Format, packet []byte) (*track, error) {
	if t := m.tracks[name]; t != nil {
		return t, nil
	}
	if len(m.tracks) == maxTracks {
		return nil, fmt.Errorf("the session has more than %d microphones", maxTracks)
	}
	samples := int(f.Packet * SampleRate / time.Second)
	if samples == 0 {
		var err error
		if samples, err = samplesOf(packet); err != nil {
			return nil, err
		}
	}
	dec, err := opus.NewPacketDecoder(f.Channels, samples)
	if err != nil {
		return nil, err
	}
	duration := int64(samples) * 1_000_000 / SampleRate
	t := &track{
		dec: dec, channels: f.Channels, samples: samples,
		voice: jitter.NewVoice(duration, m.lead.Microseconds()+duration, f.Channels, dec),
	}
	m.tracks[name] = t
	m.names = append(m.names, name)
	return t, nil
}

// Shown records a picture that was captured at a time on the session's clock and displayed at a
// local time. held is how long it was held back for its sound.
func (m *Mixer) Shown(captured, at time.Time, held time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, state := m.now(at)
	if d := now - captured.UnixMicro(); state != Unknown && d > -maxPictureDelay && d < maxPictureDelay {
		m.pictures.add(d-held.Microseconds(), at)
	}
}

// maxPictureDelay bounds plausible delays of pictures, µs.
const maxPictureDelay = 10_000_000

// Hold returns how long to delay pictures that would otherwise precede their sound.
func (m *Mixer) Hold() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.hold()) * time.Microsecond
}

func (m *Mixer) hold() int64 {
	d, ok := m.pictures.median()
	if !ok || len(m.tracks) == 0 {
		return 0
	}
	return jitter.Postpone(d, m.own)
}

// Read fills out with stereo samples within ±1 to be played from a local time on.
func (m *Mixer) Read(out []float32, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(out)
	now, state := m.now(at)
	pictures, some := m.pictures.median()
	m.own = 0
	for i, name := range m.names {
		if own := m.tracks[name].voice.Own(); i == 0 || own > m.own {
			m.own = own
		}
	}
	target := m.own
	if some {
		limited := int64(0)
		for _, name := range m.names {
			v := m.tracks[name].voice
			limited = max(limited, v.Limit(v.Own(), jitter.Latest(pictures)))
		}
		target = max(pictures, limited)
	}
	for _, name := range m.names {
		m.tracks[name].mix(out, now, target, state == Running)
	}
	for i, v := range out { // hostile Opus packets decode to far more than full scale
		out[i] = min(max(v, -1), 1)
	}
	if state == Running {
		m.note()
	}
}

// mix adds the track's samples to out.
func (t *track) mix(out []float32, at, target int64, playing bool) {
	n := len(out) / Channels
	if len(t.block) < n*t.channels {
		t.block = make([]float32, n*t.channels)
	}
	block := t.block[:n*t.channels]
	if playing {
		t.voice.Read(block, at, target)
	} else {
		t.voice.Rest(block)
	}
	right := t.channels - 1
	for i := range n {
		out[2*i] += block[i*t.channels]
		out[2*i+1] += block[i*t.channels+right]
	}
}
