package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/opus"
	"holocast/internal/origin"
	"holocast/internal/wav"
)

// The test's sound: three tones, and a click at every full second of its capture clock.
const (
	soundRate   = 48000
	clickLength = 48 // samples
)

// soundAt returns the sample of the test's sound captured at a time, in µs.
func soundAt(us float64) float32 {
	t := us / 1e6
	v := 0.1*math.Sin(2*math.Pi*310*t) + 0.1*math.Sin(2*math.Pi*731*t) + 0.1*math.Sin(2*math.Pi*1903*t)
	if since := math.Mod(t, 1) * soundRate; since < clickLength {
		v += 0.6 * math.Sin(math.Pi*since/4)
	}
	return float32(v)
}

// microphone publishes the test's sound.
type microphone struct {
	track *origin.Track
	enc   *opus.Encoder
	group atomic.Uint64 // of the newest packet; rises by groupStep
	last  []byte
}

const groupStep = 10

// describeSound returns the catalog entry of a microphone.
func describeSound(delivery string) catalog.Track {
	return catalog.Track{
		Name: catalog.SoundTrack(0), Packaging: catalog.PackagingLOC, Role: catalog.RoleAudio, IsLive: true,
		Codec: catalog.CodecOpus, Samplerate: soundRate, ChannelConfig: "1", Bitrate: 64000,
		Sound: &catalog.Sound{MicrophoneName: "test", Delivery: delivery, Packet: catalog.SoundPacket},
	}
}

// addMicrophone adds a microphone to a session.
func addMicrophone(t *testing.T, p *publisher, delivery string) *microphone {
	t.Helper()
	c, err := catalog.Parse(testCatalog(t, len(p.tracks), p.descriptions))
	if err != nil {
		t.Fatal(err)
	}
	c.Tracks = append(c.Tracks, describeSound(delivery))
	doc, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m := &microphone{
		track: origin.NewTrack(moqt.TrackName{Namespace: p.ns, Name: catalog.SoundTrack(0)}, nil, origin.Limits{}),
	}
	m.group.Store(uint64(time.Now().UnixMilli()) / groupStep * groupStep)
	p.set.Add(m.track)
	h := wire.SubgroupHeader{Group: p.first + 1<<20, Mode: wire.SubgroupIDZero, Priority: 10, FirstObject: true}
	if err := p.cat.WriteObject(h, moqt.Object{}, doc); err != nil {
		t.Fatal(err)
	}
	if m.enc, err = opus.NewEncoder(1); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.run(ctx, t, delivery == catalog.DeliveryDatagram) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		m.enc.Close()
	})
	return m
}

// run publishes a packet every 10 ms, except that every 50th is lost.
func (m *microphone) run(ctx context.Context, t *testing.T, datagrams bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	pcm := make([]float32, soundRate/100)
	for next := time.Now().Truncate(10 * time.Millisecond); ; {
		for ; next.Add(10 * time.Millisecond).Before(time.Now()); next = next.Add(10 * time.Millisecond) {
			for i := range pcm {
				pcm[i] = soundAt(float64(next.UnixMicro()) + float64(i)*1e6/soundRate)
			}
			b, err := m.enc.Encode(nil, pcm)
			if err != nil {
				t.Error(err)
				return
			}
			if m.group.Add(groupStep)%(50*groupStep) != 0 {
				m.send(next, b, datagrams)
			}
			m.last = b
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// send publishes a packet. Errors mean that a viewer left.
func (m *microphone) send(captured time.Time, packet []byte, datagram bool) {
	captured = captured.Add(-time.Duration(m.enc.Lookahead()) * time.Second / soundRate)
	properties := loc.Properties{Timestamp: captured, Previous: m.last}.Append(nil)
	if datagram {
		m.track.SendDatagram(moqt.Datagram{
			Group: m.group.Load(), Priority: 8, EndOfGroup: true, Properties: properties, Payload: packet,
		})
		return
	}
	h := wire.SubgroupHeader{
		Group: m.group.Load(), Mode: wire.SubgroupIDZero, Priority: 8, FirstObject: true, EndOfGroup: true,
		HasProperties: true,
	}
	_ = m.track.WriteObject(h, moqt.Object{Properties: properties}, packet)
}

// readWAV returns the left channel of a file.
func readWAV(t *testing.T, path string) []float32 {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // read-only
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := wav.New(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if f.Channels != 2 || f.Rate != soundRate {
		t.Fatalf("%s: %+v", path, f)
	}
	both := make([]float32, 2*f.Length)
	if err := f.Read(both, 0); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, f.Length)
	for i := range x {
		x[i] = both[2*i]
	}
	return x
}

// click returns the index of the first sample of the loudest click in x.
func click(x []float32) (at int) {
	sharp := make([]float64, len(x))
	for i := 2; i < len(x); i++ {
		d := float64(x[i] - 2*x[i-1] + x[i-2])
		sharp[i] = d * d
	}
	most, sum := 0., 0.
	for i := range sharp {
		if sum += sharp[i]; i >= clickLength {
			sum -= sharp[i-clickLength]
		}
		if sum > most {
			most, at = sum, max(0, i-clickLength+1)
		}
	}
	return at
}

// minSNR is the SNR, in dB, of an undamaged click.
const minSNR = 12

// align returns the time of a click in x, in µs from the first sample, and the best SNR, in dB, of
// the last three clicks and the 40 ms after each. The time is that of the newest click with at least
// minSNR, since others may be concealed. Between clicks, the pace of the sound may change.
func align(t *testing.T, x []float32) (us, snr float64) {
	t.Helper()
	const after = soundRate / 25
	snr = math.Inf(-1)
	for second := range 3 {
		end := len(x) - second*soundRate - after
		if end < soundRate {
			break
		}
		at := end - soundRate + click(x[end-soundRate:end])
		from := max(0, at-clickLength)
		captured, quality := alignClick(x[from:from+after], 1e6-float64(at-from)*1e6/soundRate)
		if second == 0 || snr < minSNR && quality >= minSNR {
			us = float64(from)*1e6/soundRate + 1e6 - captured
		}
		snr = max(snr, quality)
	}
	return us, snr
}

// alignClick returns the capture time of the first sample of x, in µs, and the SNR, in dB. It
// searches within 1 ms of guess.
func alignClick(x []float32, guess float64) (us, snr float64) {
	var best float64
	seek := func(from, to, step float64) {
		best = math.Inf(1)
		for at := from; at <= to; at += step {
			e := 0.
			for i, v := range x {
				d := float64(v) - float64(soundAt(at+float64(i)*1e6/soundRate))
				e += d * d
			}
			if e < best {
				best, us = e, at
			}
		}
	}
	seek(guess-1000, guess+1000, 20)
	seek(us-20, us+20, 1)
	power := 0.
	for _, v := range x {
		power += float64(v * v)
	}
	return us, 10 * math.Log10(power/best)
}

// soundReport holds the measurements of play that these tests read.
type soundReport struct {
	Sound struct {
		DelayMS     float64  `json:"delay_ms"`
		BufferMS    float64  `json:"jitter_buffer_ms"`
		Jumps       int      `json:"jumps"`
		LipOffsetMS *float64 `json:"lip_offset_ms"`
		ConcealedMS float64  `json:"concealed_ms"`
		Repeated    int      `json:"packets_repeated"`
		Refused     int      `json:"packets_refused"`
		Error       string   `json:"error"`
	} `json:"sound"`
	WAV struct {
		BeganUS int64 `json:"began_us"`
	} `json:"wav"`
	Frames int     `json:"frames"`
	FPS    float64 `json:"fps"`
}

// calm reports whether the machine kept up, so that sound could play in step and without gaps.
func (r soundReport) calm() bool {
	return r.FPS > 25 && r.Sound.ConcealedMS < 100 && r.Sound.Jumps == 0 && r.Sound.BufferMS < 150
}

// listen plays a session into a file. It returns the delay of the sound in the file and the median
// delay of the listed frames, in ms, and the SNR, in dB.
func listen(t *testing.T, url string, args ...string) (delay, frames, snr float64, r soundReport) {
	t.Helper()
	dir := t.TempDir()
	file, list := filepath.Join(dir, "sound.wav"), filepath.Join(dir, "frames.csv")
	p := start(t, "holocast", append([]string{"play", url, "--wav", file, "--frames", list, "--json"}, args...)...)
	p.mustSucceed()
	p.lastLine(&r)
	x := readWAV(t, file)
	if len(x) < 2*soundRate {
		t.Fatalf("only %d samples of sound", len(x))
	}
	clicked, snr := align(t, x)
	delay = math.Mod(float64(r.WAV.BeganUS%1_000_000)+clicked, 1e6) / 1000
	var delays []float64
	f, err := os.Open(list)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read-only
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[max(1, len(rows)-30):] {
		captured, _ := strconv.ParseFloat(row[2], 64)
		shown, _ := strconv.ParseFloat(row[4], 64)
		delays = append(delays, (shown-captured)/1000)
	}
	slices.Sort(delays)
	return delay, delays[len(delays)/2], snr, r
}

// inSync checks a lip offset in ms: below 45, which ITU-R BT.1359 accepts in both directions. On an
// overloaded machine it only logs the offset.
func inSync(t *testing.T, r soundReport, offset float64) {
	t.Helper()
	if math.Abs(offset) <= 45 {
		return
	}
	if r.calm() {
		t.Errorf("lip offset %.1f ms", offset)
	} else {
		t.Logf("lip offset %.1f ms on an overloaded machine", offset)
	}
}

func TestSoundLive(t *testing.T) {
	for _, delivery := range []string{catalog.DeliveryDatagram, catalog.DeliveryStream} {
		t.Run(delivery, func(t *testing.T) {
			port := freePort(t)
			startRelay(t, port)
			url := sessionURL(port, "demo")
			addMicrophone(t, publish(t, url, 1, 1), delivery)
			delay, frames, snr, r := listen(t, url, "--duration", "5s")
			b, _ := json.Marshal(r)
			t.Logf("sound %.1f ms, frames %.1f ms, SNR %.1f dB, %s", delay, frames, snr, b)
			inSync(t, r, delay-frames)
			if r.Sound.LipOffsetMS == nil {
				t.Fatal("no lip offset reported")
			}
			if got := *r.Sound.LipOffsetMS; r.calm() && math.Abs(got-(delay-frames)) > 20 {
				t.Errorf("lip offset %.1f ms reported, %.1f ms measured", got, delay-frames)
			}
			if r.Sound.Repeated == 0 || r.Sound.Refused > 0 {
				t.Errorf("%+v", r.Sound)
			}
			if r.calm() && snr < minSNR {
				t.Errorf("SNR %.1f dB", snr)
			}
		})
	}
}

// TestSoundHostile plays sound amid packets that contradict the track.
func TestSoundHostile(t *testing.T) {
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "demo")
	m := addMicrophone(t, publish(t, url, 1, 1), catalog.DeliveryStream)
	ctx, stop := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	flood.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for j, bad := range []struct {
				at      time.Duration
				payload []byte
			}{
				{0, make([]byte, 60_000)},
				{0, []byte{0xff}},
				{0, nil},
				{0, []byte{0x08, 1}},
				{time.Hour, []byte{0xf0, 1}},
				{-time.Hour, []byte{0xf0, 1}},
			} {
				h := wire.SubgroupHeader{
					Group: m.group.Load() + 1 + uint64(j), Mode: wire.SubgroupIDZero, Priority: 8, FirstObject: true, EndOfGroup: true,
					HasProperties: true,
				}
				properties := loc.Properties{Timestamp: time.Now().Add(bad.at), Previous: make([]byte, 2000)}.Append(nil)
				_ = m.track.WriteObject(h, moqt.Object{Properties: properties}, bad.payload) // a viewer may leave
			}
		}
	})
	_, _, snr, r := listen(t, url, "--duration", "4s")
	t.Logf("SNR %.1f dB, %+v", snr, r)
	if r.Sound.Refused == 0 || r.Sound.Error == "" || r.Frames == 0 {
		t.Errorf("%+v", r)
	}
	if r.calm() && snr < minSNR {
		t.Errorf("SNR %.1f dB", snr)
	}
}

// TestSoundOfSphere plays the sound of prepared 360° video at the player's own pace.
func TestSoundOfSphere(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	port := freePort(t)
	startRelay(t, port)
	for _, codec := range []string{"libopus", "aac"} {
		t.Run(codec, func(t *testing.T) {
			dir := t.TempDir()
			film, folder, file := filepath.Join(dir, "film.mp4"), filepath.Join(dir, "tour"), filepath.Join(dir, "sound.wav")
			out, err := exec.CommandContext(
				t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=128x64:rate=10", "-f", "lavfi",
				"-i", "sine=frequency=440", "-t", "3", "-c:a", codec, film,
			).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			start(t, "holocast", "prepare", film, folder, "--grid", "2x1", "--qualities", "1").mustSucceed()
			url := sessionURL(port, codec)
			start(t, "holocast", "replay", folder, url, "--loop")
			p := start(
				t, "holocast", "play", url, "--wait", "--no-decode", "--from", "100ms", "--wav", file, "--json",
			)
			p.mustSucceed()
			var r soundReport
			p.lastLine(&r)
			share := toneShare(readWAV(t, file))
			t.Logf("%.2f s of the tone; %+v", share, r.Sound)
			if r.Sound.Refused > 0 || r.calm() && share < 2 {
				t.Errorf("%.2f s of the tone; %+v", share, r.Sound)
			}
		})
	}
}

// toneShare returns how many seconds of x consist of a 440 Hz tone.
func toneShare(x []float32) (seconds float64) {
	const block = soundRate / 20
	for ; len(x) >= block; x = x[block:] {
		var re, im, power float64
		for i, v := range x[:block] {
			s, c := math.Sincos(2 * math.Pi * 440 * float64(i) / soundRate)
			re, im, power = re+float64(v)*c, im+float64(v)*s, power+float64(v)*float64(v)
		}
		if power > 0 && 2*(re*re+im*im)/block > 0.9*power {
			seconds += float64(block) / soundRate
		}
	}
	return seconds
}
