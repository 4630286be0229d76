package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/capture-server/source/synthetic"
	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/opus"
	"holocast/internal/pointcloud"
	"holocast/internal/programtest"
	"holocast/internal/pulse"
)

// soundPacket is a received packet.
type soundPacket struct {
	group uint64
	loc.Properties
	payload []byte
}

// nextSound returns the next packet of a track with datagram delivery.
func nextSound(ctx context.Context, t *testing.T, sub *moqt.Subscription) soundPacket {
	t.Helper()
	d, err := sub.AcceptDatagram(ctx)
	if err != nil {
		t.Fatal(err)
	}
	props, err := loc.Parse(d.Properties)
	if err != nil || d.Object != 0 || !d.EndOfGroup || d.Priority != 8 {
		t.Fatalf("datagram %+v: %v", d, err)
	}
	return soundPacket{d.Group, props, d.Payload}
}

// decode decodes consecutive packets. A missing packet is taken from the copy in the next one.
func decode(t *testing.T, packets []soundPacket) (pcm []float32) {
	t.Helper()
	d, err := opus.NewDecoder(1)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	add := func(b []byte) {
		var out [opus.PacketSamples]float32
		if err := d.Decode(out[:], b); err != nil {
			t.Fatal(err)
		}
		pcm = append(pcm, out[:]...)
	}
	for i, p := range packets {
		if i > 0 && p.group == packets[i-1].group+2 && p.Previous != nil {
			add(p.Previous)
		}
		add(p.payload)
	}
	return pcm
}

// sweep returns the sample at time t of a rising tone that repeats every 2 s.
func sweep(t float64) float64 {
	t = math.Mod(t, 2)
	return 0.4 * math.Sin(2*math.Pi*(200*t+100*t*t))
}

// sweepWAV writes a 16-bit 44.1 kHz WAV file with one period of sweep.
func sweepWAV(t *testing.T) string {
	t.Helper()
	const rate = 44100
	le := binary.LittleEndian
	b := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"), 0x44, 0xac, 0, 0)
	b = append(le.AppendUint32(b, 2*rate), "\x02\x00\x10\x00data"...)
	b = le.AppendUint32(b, 4*rate)
	for i := range 2 * rate {
		b = le.AppendUint16(b, uint16(int16(32767*sweep(float64(i)/rate))))
	}
	path := filepath.Join(t.TempDir(), "sweep.wav")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// alignedSNR returns the median SNR in dB of 40 ms pieces against sweep. Each piece is aligned on
// its own, since the estimate of the relay's clock changes during playback on a busy machine.
func alignedSNR(pcm []float32) float64 {
	try := func(pcm []float32, from, to, by float64, stride int) (best, at float64) {
		best = math.Inf(-1)
		for delay := from; delay < to; delay += by {
			signal, noise := 0.0, 0.0
			for i := 0; i < len(pcm); i += stride {
				want := sweep(delay + float64(i)/opus.SampleRate)
				signal += want * want
				noise += (float64(pcm[i]) - want) * (float64(pcm[i]) - want)
			}
			if snr := 10 * math.Log10(signal/noise); snr > best {
				best, at = snr, delay
			}
		}
		return best, at
	}
	_, at := try(pcm, 0, 2, 4e-4, 197)
	var pieces []float64
	const piece = opus.SampleRate / 25
	for from := 0; from+piece <= len(pcm); from += piece {
		begin := at + float64(from)/opus.SampleRate
		snr, _ := try(pcm[from:from+piece], begin-1e-3, begin+1e-3, 1e-5, 5)
		pieces = append(pieces, snr)
	}
	slices.Sort(pieces)
	return pieces[len(pieces)/2]
}

// TestSoundReachesViewerOfRelay plays a recording to a viewer of a relay.
func TestSoundReachesViewerOfRelay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	target, ns := startRelay(t)
	start(t, filepath.Join(bin, "capture-server"), "--audio", sweepWAV(t)+",position=0/1600/0", target.URL)
	s := view(ctx, t, target)
	c, err := catalog.Parse(newestObject(ctx, t, subscribe(ctx, t, s, ns, catalog.TrackName)))
	if err != nil {
		t.Fatal(err)
	}
	sounds := c.Sounds()
	if len(sounds) != 1 || sounds[0].Name != "audio/0" || sounds[0].Channels() != 1 ||
		sounds[0].Sound.MicrophoneName != "sweep.wav" || sounds[0].Sound.Delivery != catalog.DeliveryDatagram ||
		!slices.Equal(sounds[0].Sound.Position, []float64{0, 1600, 0}) {
		t.Fatalf("catalog has %+v", sounds)
	}
	sub := subscribe(ctx, t, s, ns, sounds[0].Name)
	var packets []soundPacket
	missing := uint64(0)
	for len(packets) < 200 {
		p := nextSound(ctx, t, sub)
		if n := len(packets); n > 0 {
			before := packets[n-1]
			if p.group <= before.group {
				t.Fatalf("group %d after %d", p.group, before.group)
			}
			steps := p.group - before.group
			missing += steps - 1
			if got := p.Timestamp.Sub(before.Timestamp); got != time.Duration(steps)*10*time.Millisecond {
				t.Errorf("timestamps are %v apart, groups %d", got, steps)
			}
			if steps == 1 && !bytes.Equal(p.Previous, before.payload) {
				t.Errorf("group %d does not repeat the packet before it", p.group)
			}
			if steps > 2 { // an overloaded machine loses datagrams
				packets = packets[:0]
			}
		}
		packets = append(packets, p)
	}
	pcm := decode(t, packets)
	if snr := alignedSNR(pcm[20*opus.PacketSamples:]); snr < 25 {
		t.Errorf("SNR %.1f dB", snr)
	} else {
		t.Logf("SNR %.1f dB, %d packets lost", snr, missing)
	}
}

// TestSoundOfTake publishes the sound next to a take, unless told otherwise.
func TestSoundOfTake(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	take := studio(t, 1280, 720)
	if err := os.Rename(sweepWAV(t), filepath.Join(take, "audio.wav")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want int
	}{{"by default", nil, 1}, {"disabled", []string{"--audio", "none"}, 0}} {
		t.Run(c.name, func(t *testing.T) {
			target, ns := startRelay(t)
			args := append([]string{"--source", "livescan:" + take}, c.args...)
			start(t, filepath.Join(bin, "capture-server"), append(args, target.URL)...)
			s := view(ctx, t, target)
			list, err := catalog.Parse(newestObject(ctx, t, subscribe(ctx, t, s, ns, catalog.TrackName)))
			if err != nil {
				t.Fatal(err)
			}
			sounds := list.Sounds()
			if len(sounds) != c.want {
				t.Fatalf("catalog has %+v", sounds)
			}
			if c.want == 0 {
				return
			}
			if sounds[0].Label != "audio.wav" {
				t.Errorf("sound %q", sounds[0].Label)
			}
			if p := nextSound(ctx, t, subscribe(ctx, t, s, ns, sounds[0].Name)); len(p.payload) == 0 {
				t.Error("an empty packet")
			}
		})
	}
}

// TestClapInSoundAndPoints checks that the performer's claps have the capture time of the frames in
// which the hands meet.
func TestClapInSoundAndPoints(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	target, ns := startRelay(t)
	start(t, filepath.Join(bin, "capture-server"), "--source", "synthetic", "--fps", "10", "--depth-mode",
		"NFOV_2X2BINNED", "--audio", "synthetic", target.URL)
	s := view(ctx, t, target)
	points, sound := subscribe(ctx, t, s, ns, "points/0/full"), subscribe(ctx, t, s, ns, "audio/0")

	// zero is the capture time at device time 0. When the estimate of the relay's clock improves, it
	// changes for the next frame, but sound follows at 3 ms/s. stable is the time of the last change.
	var zero, captured, stable time.Time
	readFrame := func() {
		o, _ := next(ctx, t, points)
		h, err := pointcloud.ParseHeader(o.payload)
		if err != nil {
			t.Fatal(err)
		}
		captured = time.UnixMicro(int64(h.CaptureTime))
		before := zero
		if zero = captured.Add(-time.Duration(h.DeviceTime) * time.Microsecond); zero.Sub(before).Abs() > time.Millisecond {
			stable = captured
		}
	}
	const loop, contact = 3 * time.Second, 1500 * time.Millisecond
	var packets []soundPacket
	for claps := 0; claps < 2; {
		p := nextSound(ctx, t, sound)
		if n := len(packets); n > 0 && p.group > packets[n-1].group+2 {
			packets = packets[:0]
		}
		packets = append(packets, p)
		if len(packets) < 150 {
			continue
		}
		begun := packets[0].Timestamp
		pcm := decode(t, packets)
		packets = packets[:0]
		for captured.Before(p.Timestamp) {
			readFrame()
		}
		i := slices.IndexFunc(pcm, func(x float32) bool { return max(x, -x) > synthetic.ClapThreshold })
		if i < 0 || i < 20*opus.PacketSamples { // decoders need some packets to settle
			continue
		}
		at := begun.Add(time.Duration(i) * time.Second / opus.SampleRate)
		off := (at.Sub(zero.Add(contact)) + loop/2) % loop
		switch off -= loop / 2; {
		case at.Sub(stable) < 3*time.Second:
			t.Logf("a clap sounds %v after the hands meet, shortly after the clock changed", off)
			continue
		case off.Abs() > 10*time.Millisecond:
			t.Errorf("a clap sounds %v after the hands meet", off)
		default:
			t.Logf("a clap sounds %v after the hands meet", off)
		}
		claps++
	}
}

// startPulse starts a PulseAudio server for the test.
func startPulse(ctx context.Context, t *testing.T) *pulse.Server {
	t.Helper()
	p, err := pulse.Start(ctx)
	if errors.Is(err, pulse.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// plug adds a 44.1 kHz sink that plays a 1 kHz tone. The sink's monitor serves as a microphone. plug
// returns the sink's module.
func plug(ctx context.Context, t *testing.T, p *pulse.Server) string {
	t.Helper()
	module, err := p.AddSink(ctx, "Stage", 44100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Control(ctx, "load-module", "module-sine", "sink=Stage", "frequency=1000"); err != nil {
		t.Fatal(err)
	}
	return module
}

// tone returns the fraction of a signal's energy at a frequency.
func tone(pcm []float32, frequency float64) float64 {
	var re, im, energy float64
	for i, x := range pcm {
		s, c := math.Sincos(2 * math.Pi * frequency * float64(i) / opus.SampleRate)
		re, im = re+c*float64(x), im+s*float64(x)
		energy += float64(x) * float64(x)
	}
	return 2 * (re*re + im*im) / float64(len(pcm)) / max(energy, 1e-9)
}

// listener receives points and sound of a session whose microphone is plug's sink.
type listener struct {
	ctx           context.Context
	t             *testing.T
	server        *programtest.Process
	sound, points *moqt.Subscription
}

func listen(ctx context.Context, t *testing.T, p *pulse.Server) *listener {
	t.Helper()
	target, ns := startRelay(t)
	c := exec.Command(filepath.Join(bin, "capture-server"), "--source", "livescan:"+studio(t, 1280, 720), "--fps", "10",
		"--audio", "Monitor of Stage", target.URL)
	c.Env = p.Env
	l := &listener{ctx: ctx, t: t, server: programtest.Start(t, c)}
	s := view(ctx, t, target)
	l.sound, l.points = subscribe(ctx, t, s, ns, "audio/0"), subscribe(ctx, t, s, ns, "points/0/full")
	return l
}

// hear waits for a second of clean tone without gaps and returns its packets.
func (l *listener) hear() []soundPacket {
	l.t.Helper()
	var packets []soundPacket
	for {
		packets = append(packets, nextSound(l.ctx, l.t, l.sound))
		if n := len(packets); n > 1 && packets[n-1].group > packets[n-2].group+2 {
			packets = packets[n-1:]
		}
		if n := len(packets); n%50 == 0 && n >= 120 {
			if pcm := decode(l.t, packets[n-100:]); tone(pcm[20*opus.PacketSamples:], 1000) > 0.98 {
				return packets
			}
		}
	}
}

// see waits for frames.
func (l *listener) see(frames int) {
	l.t.Helper()
	for range frames {
		next(l.ctx, l.t, l.points)
	}
}

// TestMicrophoneUnpluggedAndBack captures from a PulseAudio microphone that disappears during the
// session. The camera continues, and the sound resumes when the microphone is back.
func TestMicrophoneUnpluggedAndBack(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	p := startPulse(ctx, t)
	module := plug(ctx, t, p)
	list := exec.Command(filepath.Join(bin, "capture-server"), "list")
	list.Env = p.Env
	if out, _ := list.CombinedOutput(); !strings.Contains(string(out), "audio\tMonitor of Stage\tmono") {
		t.Errorf("list prints %s", out)
	}
	l := listen(ctx, t, p)
	before := l.hear()
	if _, err := p.Control(ctx, "unload-module", module); err != nil {
		t.Fatal(err)
	}
	l.server.Line("microphone gone")
	l.see(5)
	plug(ctx, t, p)
	l.server.Line("microphone is back")
	after := l.hear()
	first, last := after[len(after)-1], before[len(before)-1]
	groups, times := first.group-last.group, first.Timestamp.Sub(last.Timestamp)
	if times != time.Duration(groups)*10*time.Millisecond {
		t.Errorf("%d groups and %v pass in the interruption", groups, times)
	}
}

// TestBusyMicrophone suspends a microphone, as PulseAudio does while a program has it exclusively. It is reported once,
// the camera continues, and the sound resumes.
func TestBusyMicrophone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	p := startPulse(ctx, t)
	plug(ctx, t, p)
	l := listen(ctx, t, p)
	suspend := func(on string) {
		t.Helper()
		if _, err := p.Control(ctx, "suspend-sink", "Stage", on); err != nil {
			t.Fatal(err)
		}
	}
	logged := func(line string) int { return strings.Count(l.server.Stderr.String(), line) }
	l.hear()
	const gone, back = "microphone gone, perhaps unplugged or used by another program", "microphone is back"
	before := map[string]int{gone: logged(gone), back: logged(back)} // a microphone may deliver only when opened again
	if n := logged("microphone opened"); n+before[back] == 0 || before[gone] == 0 && n != 1 {
		t.Errorf("the microphone's opening is logged %d times", n)
	}
	follows := func(line string) {
		t.Helper()
		for logged(line) == before[line] {
			l.see(1)
		}
	}
	suspend("1")
	follows(gone)
	l.see(60) // 6 s of attempts to open it
	suspend("0")
	follows(back)
	l.hear()
	for line, n := range before {
		if n = logged(line) - n; n != 1 {
			t.Errorf("%q is logged %d times", line, n)
		}
	}
}
