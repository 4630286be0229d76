package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
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

// soundAt returns a sample of the test's sound by its capture time.
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
	group uint64
	last  []byte
}

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
		group: uint64(time.Now().UnixMilli()),
	}
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
			m.group++
			if m.group%50 != 0 {
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
			Group: m.group, Priority: 8, EndOfGroup: true, Properties: properties, Payload: packet,
		})
		return
	}
	h := wire.SubgroupHeader{
		Group: m.group, Mode: wire.SubgroupIDZero, Priority: 8, FirstObject: true, EndOfGroup: true, HasProperties: true,
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

// align returns the capture time in µs of the first sample of x, modulo a second, and the SNR in dB.
// x has at least a second.
func align(x []float32) (us, snr float64) {
	best := math.Inf(1)
	seek := func(from, to, step float64, every int) {
		best = math.Inf(1)
		for at := from; at <= to; at += step {
			e := 0.
			for i := 0; i < len(x); i += every {
				d := float64(x[i]) - float64(soundAt(at+float64(i)*1e6/soundRate))
				e += d * d
			}
			if e *= float64(every); e < best {
				best, us = e, at
			}
		}
	}
	guess := 2e6 - float64(click(x))*1e6/soundRate
	seek(guess-600, guess+600, 10, 19)
	seek(us-10, us+10, 1, 19)
	seek(us, us, 1, 1)
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
		LipOffsetMS *float64 `json:"lip_offset_ms"`
		ConcealedMS float64  `json:"concealed_ms"`
		Repeated    int      `json:"packets_repeated"`
		Refused     int      `json:"packets_refused"`
		Error       string   `json:"error"`
	} `json:"sound"`
	WAV struct {
		BeganUS int64 `json:"began_us"`
	} `json:"wav"`
	Frames int `json:"frames"`
}

// listen plays a session into a file and returns the delays of sound and frames, by the file and by
// the list of frames, in ms, and the SNR of the last second.
func listen(t *testing.T, url string, args ...string) (delay, frames, snr float64, r soundReport) {
	t.Helper()
	dir := t.TempDir()
	file, list := filepath.Join(dir, "sound.wav"), filepath.Join(dir, "frames.csv")
	p := start(t, "holocast", append([]string{"play", url, "--wav", file, "--frames", list, "--json"}, args...)...)
	p.mustSucceed()
	p.lastLine(&r)
	x := readWAV(t, file)
	from := len(x) - soundRate - soundRate/10
	if from < 0 {
		t.Fatalf("only %d samples of sound", len(x))
	}
	captured, snr := align(x[from : from+soundRate])
	heard := float64(r.WAV.BeganUS%1_000_000) + float64(from)*1e6/soundRate
	delay = math.Mod(heard-captured+10e6, 1e6) / 1000
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

// inSync checks a lip offset against ITU-R BT.1359.
func inSync(t *testing.T, offset float64) {
	t.Helper()
	if offset < -125 || offset > 45 {
		t.Errorf("lip offset %.1f ms", offset)
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
			inSync(t, delay-frames)
			if r.Sound.LipOffsetMS == nil {
				t.Fatal("no lip offset reported")
			}
			if got := *r.Sound.LipOffsetMS; math.Abs(got-(delay-frames)) > 20 {
				t.Errorf("lip offset %.1f ms reported, %.1f ms measured", got, delay-frames)
			}
			if r.Sound.Repeated == 0 || r.Sound.Refused > 0 {
				t.Errorf("%+v", r.Sound)
			}
			if snr < 12 {
				t.Errorf("SNR %.1f dB", snr)
			}
		})
	}
}
