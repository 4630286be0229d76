package jitter

// Decoder decodes the packets of one track. Samples are interleaved.
type Decoder interface {
	// Decode decodes a packet into out, which has a packet's samples.
	Decode(out []float32, packet []byte) error
	// Recover decodes the in-band error correction that a packet has for its lost predecessor.
	Recover(out []float32, next []byte) error
	// Conceal extrapolates.
	Conceal(out []float32) error
}

// Voice plays the sound of one track. It is not safe for concurrent use.
type Voice struct {
	*Buffer
	dec      Decoder
	channels int
	splicer  *splicer
	quiet    bool      // the newest output was silence
	ready    []float32 // decoded, interleaved
	decoded  []float32 // buffer

	// Undecodable counts packets that the decoder refused. They are concealed.
	Undecodable int
}

// NewVoice returns a voice for packets of a duration in µs. See NewBuffer for lead.
func NewVoice(packet, lead int64, channels int, dec Decoder) *Voice {
	return &Voice{
		Buffer: NewBuffer(packet, lead), dec: dec, channels: channels, splicer: newSplicer(channels), quiet: true,
		decoded: make([]float32, int(packet*sampleRate/1_000_000)*channels),
	}
}

// Read fills out with the samples to play from time at, in µs on the session's clock. target is the
// result of Target.
func (v *Voice) Read(out []float32, at, target int64) {
	for len(v.ready) < len(out) {
		v.ready = append(v.ready, v.more(at+int64(len(v.ready)/v.channels)*1_000_000/sampleRate, target)...)
	}
	n := copy(out, v.ready)
	v.ready = v.ready[:copy(v.ready, v.ready[n:])]
}

// Rest fills out with silence; the packets wait.
func (v *Voice) Rest(out []float32) {
	clear(out)
	n := copy(out, v.ready)
	v.ready = v.ready[:copy(v.ready, v.ready[n:])]
	rest := out[n:]
	if !v.quiet && len(rest) > 0 {
		v.splicer.join(rest)
		v.quiet = true
	}
	v.splicer.note(rest)
}

// more returns the next samples. They are valid until the next call.
func (v *Voice) more(at, target int64) []float32 {
	d := v.Next(at, target)
	x := v.decoded[:d.Samples*v.channels]
	if d.Kind == Silence {
		clear(x)
		if !v.quiet {
			v.splicer.join(x)
		}
		v.quiet = true
		v.splicer.note(x)
		return x
	}
	v.decode(d, x)
	if d.Jump || v.quiet {
		v.splicer.join(x)
	}
	v.quiet = false
	n := 0
	switch {
	case d.Stretch > 0:
		x, n = v.splicer.lengthen(x)
	case d.Stretch < 0:
		x, n = v.splicer.shorten(x)
	}
	if n > 0 {
		v.Stretched(n)
	}
	v.splicer.note(x)
	return x
}

// decode decodes a decision into x.
func (v *Voice) decode(d Decision, x []float32) {
	switch d.Kind {
	case Play:
		if v.dec.Decode(x, d.Packet.Data) == nil {
			return
		}
		v.Undecodable++
		v.stats.Concealed += v.packet
	case Correct:
		if v.dec.Recover(x, d.Packet.Data) == nil {
			return
		}
	}
	if v.dec.Conceal(x) != nil {
		clear(x)
	}
}
