package opus

import (
	"math"
	"strings"
	"testing"
)

// tones returns n packets of a rising tone per channel. Such a tone matches its output at only one
// delay.
func tones(n, channels int) []float32 {
	pcm := make([]float32, n*PacketSamples*channels)
	for i := range pcm {
		t := float64(i/channels) / SampleRate
		c := float64(i % channels)
		pcm[i] = float32(0.4 * math.Sin(2*math.Pi*(200+100*c+700*t)*t))
	}
	return pcm
}

func pair(t testing.TB, channels int) (*Encoder, *Decoder) {
	t.Helper()
	e, err := NewEncoder(channels)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	d, err := NewDecoder(channels)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return e, d
}

// snr returns the ratio of want to got−want in dB.
func snr(want, got []float32) float64 {
	var signal, noise float64
	for i, w := range want {
		d := float64(got[i] - w)
		signal += float64(w) * float64(w)
		noise += d * d
	}
	return 10 * math.Log10(signal/noise)
}

// TestRoundTrip checks quality and bit rate, and that Lookahead is the delay of encoder and decoder
// together.
func TestRoundTrip(t *testing.T) {
	for channels := 1; channels <= MaxChannels; channels++ {
		const n = 100
		e, d := pair(t, channels)
		size := PacketSamples * channels
		in, out := tones(n, channels), make([]float32, n*size)
		total := 0
		for k := range n {
			b, err := e.Encode(nil, in[k*size:(k+1)*size])
			if err != nil {
				t.Fatal(err)
			}
			total += len(b)
			if err := d.Decode(out[k*size:], b); err != nil {
				t.Fatal(err)
			}
		}
		if rate := total * 8; rate > Bitrate(channels)*12/10 {
			t.Errorf("%d channels: %d bit/s, want about %d", channels, rate, Bitrate(channels))
		}
		from, best, at := 20*size, math.Inf(-1), 0
		for delay := range PacketSamples {
			if got := snr(in[from:len(in)-size], out[from+delay*channels:]); got > best {
				best, at = got, delay
			}
		}
		if max(at-e.Lookahead(), e.Lookahead()-at) > 1 || best < 25 {
			t.Errorf("%d channels: SNR %.1f dB at a delay of %d samples, want over 25 at %d", channels, best, at, e.Lookahead())
		}
	}
}

// TestLoss checks that the decoder stays in step after concealment and recovery.
func TestLoss(t *testing.T) {
	e, d := pair(t, 1)
	in := tones(60, 1)
	var packets [][]byte
	for k := range 60 {
		b, err := e.Encode(nil, in[k*PacketSamples:(k+1)*PacketSamples])
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, b)
	}
	out := make([]float32, len(in))
	for k, b := range packets {
		var err error
		switch at := out[k*PacketSamples:]; k {
		case 20:
			err = d.Conceal(at)
		case 30:
			err = d.Recover(at, packets[31])
		default:
			err = d.Decode(at, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	from := 50 * PacketSamples
	if got := snr(in[from:len(in)-e.Lookahead()], out[from+e.Lookahead():]); got < 25 {
		t.Errorf("SNR %.1f dB after losses", got)
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		packet []byte
		want   string // "" accepts
	}{
		{"10 ms of CELT mono", []byte{30 << 3}, ""},
		{"10 ms in two frames", []byte{29<<3 | 1}, ""},
		{"empty", nil, "empty"},
		{"20 ms", []byte{31 << 3}, "960 samples"},
		{"stereo", []byte{30<<3 | 4}, "2 channels, want 1"},
		{"too many frames", []byte{30<<3 | 3, 63}, "samples"},
		{"no count", []byte{30<<3 | 3}, "truncated"},
		{"too large", make([]byte, MaxPacket+1), "1276 bytes"},
	} {
		err := Check(tt.packet, 1)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestUseAfterClose(t *testing.T) {
	e, d := pair(t, 1)
	e.Close()
	d.Close()
	e.Reset()
	d.Reset()
	if _, err := e.Encode(nil, make([]float32, PacketSamples)); err != errClosed {
		t.Errorf("Encode: %v", err)
	}
	if err := d.Conceal(make([]float32, PacketSamples)); err != errClosed {
		t.Errorf("Conceal: %v", err)
	}
}

// FuzzDecode decodes arbitrary packets between valid ones.
func FuzzDecode(f *testing.F) {
	e, _ := pair(f, 1)
	b, err := e.Encode(nil, tones(1, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, false)
	f.Add([]byte{30 << 3}, true)
	f.Add([]byte{30<<3 | 4, 1}, false)
	f.Fuzz(func(t *testing.T, packet []byte, fec bool) {
		for channels := 1; channels <= MaxChannels; channels++ {
			_, d := pair(t, channels)
			out := make([]float32, PacketSamples*channels)
			if fec {
				_ = d.Recover(out, packet)
			}
			_ = d.Decode(out, packet)
			if err := d.Conceal(out); err != nil {
				t.Fatal(err)
			}
		}
	})
}
