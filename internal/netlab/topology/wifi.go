package topology

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"holocast/internal/netlab/wire"
)

// fileWifi is a Wi-Fi channel as written. wifi.yaml explains the fields.
type fileWifi struct {
	Standard    string           `yaml:"standard"`
	Width       string           `yaml:"width,omitempty"`
	Streams     int              `yaml:"streams,omitempty"`
	Guard       string           `yaml:"guard,omitempty"`
	Rate        string           `yaml:"rate,omitempty"`
	Header      *int             `yaml:"header,omitempty"`
	Aggregation *fileAggregation `yaml:"aggregation,omitempty"`
	Contention  *fileContention  `yaml:"contention,omitempty"`
	Signal      *fileSignal      `yaml:"signal,omitempty"`
	Bursts      *fileWifiBursts  `yaml:"bursts,omitempty"`
	Stations    []fileStation    `yaml:"stations,omitempty"`
}

type fileAggregation struct {
	Frames   int    `yaml:"frames,omitempty"`
	Bytes    int    `yaml:"bytes,omitempty"`
	Duration string `yaml:"duration,omitempty"`
}

type fileContention struct {
	Slot     string `yaml:"slot,omitempty"`
	SIFS     string `yaml:"sifs,omitempty"`
	AIFSN    int    `yaml:"aifsn,omitempty"`
	Window   string `yaml:"window,omitempty"`
	Attempts int    `yaml:"attempts,omitempty"`
}

type fileSignal struct {
	SNR       string  `yaml:"snr,omitempty"`
	Fading    string  `yaml:"fading,omitempty"`
	Coherence string  `yaml:"coherence,omitempty"`
	Slope     float64 `yaml:"slope,omitempty"`
}

type fileWifiBursts struct {
	Average string `yaml:"average"`
	Length  string `yaml:"length"`
	InBad   string `yaml:"inBad,omitempty"`
}

type fileStation struct {
	Count int    `yaml:"count,omitempty"`
	Rate  string `yaml:"rate"`
	Size  int    `yaml:"size,omitempty"`
}

// WifiVariable is an environment variable. Its value, a Wi-Fi model's file or name, puts the last
// host of every lab on such a channel (see [Topology.OverWifi]), in all benchmarks and their child
// processes.
const WifiVariable = "HOLOCAST_LAB_WIFI"

// A WifiModel is a Wi-Fi channel read from a file.
type WifiModel struct{ file fileWifi }

// BuiltinWifis returns the names that LoadWifi accepts besides files.
func BuiltinWifis() []string { return []string{"home", "study"} }

// LoadWifi reads a model from a file, or returns a built-in one if name has neither dot nor slash.
func LoadWifi(name string) (*WifiModel, error) {
	var data []byte
	var err error
	switch {
	case strings.ContainsAny(name, "./"):
		data, err = os.ReadFile(name)
	case name == "home":
		data, err = builtin.ReadFile("wifi.yaml")
	case name == "study":
		data, err = builtin.ReadFile("wifi-study.yaml")
	default:
		return nil, fmt.Errorf("unknown Wi-Fi model %q: want a file, or one of %s", name,
			strings.Join(BuiltinWifis(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("Wi-Fi model: %w", err)
	}
	m, err := ParseWifi(data)
	return m, at(err, "Wi-Fi model %s", name)
}

// ParseWifi reads a model. Errors name the field.
func ParseWifi(data []byte) (*WifiModel, error) {
	var f fileWifi
	if err := decode(data, "Wi-Fi model", &f); err != nil {
		return nil, err
	}
	if _, err := f.model(); err != nil {
		return nil, err
	}
	return &WifiModel{f}, nil
}

// Wire returns the channel's parameters.
func (m *WifiModel) Wire() *wire.Wifi {
	w, err := m.file.model()
	if err != nil {
		panic(err) // checked by ParseWifi
	}
	return w
}

// OverWifi returns t with a host's cable replaced by path "wifi", a Wi-Fi link to the host. host ""
// means the last one.
func (t *Topology) OverWifi(host string, m *WifiModel) (*Topology, error) {
	f := t.source
	if host == "" {
		host = f.Hosts[len(f.Hosts)-1]
	}
	i := slices.IndexFunc(f.Links, func(l fileLink) bool { return slices.Contains(l.Between, host) })
	if i < 0 {
		return nil, fmt.Errorf("%s: no cable leads to host %q, so no Wi-Fi link can replace it", t.Name, host)
	}
	near := f.Links[i].Between[0]
	if near == host {
		near = f.Links[i].Between[1]
	}
	f.Links = slices.Delete(slices.Clone(f.Links), i, i+1)
	f.Paths = append(slices.Clone(f.Paths), filePath{Name: "wifi", Between: []string{near, host}, Wifi: "wifi"})
	if _, taken := f.Wifi["wifi"]; taken {
		return nil, fmt.Errorf("%s: it already has a Wi-Fi channel named wifi", t.Name)
	}
	channels := map[string]fileWifi{"wifi": m.file}
	maps.Copy(channels, f.Wifi)
	f.Wifi = channels
	over, err := f.topology()
	if err != nil {
		return nil, at(err, "%s over Wi-Fi", t.Name)
	}
	over.Commands = t.Commands
	over.Duration = t.Duration
	return over, nil
}

// phy has the constants of a standard's PHY. Times are in µs.
type phy struct {
	tones    map[string]int // data subcarriers by channel width
	schemes  int            // number of modulation and coding schemes
	symbol   float64        // without guard interval
	guards   []string
	preamble float64 // without long training fields
	training float64 // per long training field
	streams  int
	frames   int // in a block acknowledgment
	bytes    int // of an A-MPDU
	longest  string
}

// Data subcarriers, symbols, preambles and limits: IEEE 802.11-2020, clauses 17 (OFDM), 19 (HT) and
// 21 (VHT), and 802.11ax-2021, clause 27 (HE). HT, VHT and HE PPDUs last at most 5.484 ms. HE allows
// A-MPDUs of 6500631 bytes; the limit here is lower, but 256 frames never reach it.
var phys = map[string]phy{
	"a": {
		tones: map[string]int{"20MHz": 48}, schemes: 8, symbol: 3.2, guards: []string{"800ns"}, preamble: 20,
		streams: 1, frames: 1, bytes: 4095, longest: "5.484ms",
	},
	"n": {
		tones: map[string]int{"20MHz": 52, "40MHz": 108}, schemes: 8, symbol: 3.2, guards: []string{"800ns", "400ns"},
		preamble: 32, training: 4, streams: 4, frames: 64, bytes: 65535, longest: "5.484ms",
	},
	"ac": {
		tones:   map[string]int{"20MHz": 52, "40MHz": 108, "80MHz": 234, "160MHz": 468},
		schemes: 10, symbol: 3.2, guards: []string{"800ns", "400ns"}, preamble: 36, training: 4, streams: 8, frames: 64,
		bytes: 1048575, longest: "5.484ms",
	},
	"ax": {
		tones:   map[string]int{"20MHz": 234, "40MHz": 468, "80MHz": 980, "160MHz": 1960},
		schemes: 12, symbol: 12.8, guards: []string{"800ns", "1600ns", "3200ns"}, preamble: 36, training: 7.2,
		streams: 8, frames: 256, bytes: 4194303, longest: "5.484ms",
	},
}

// A scheme is a modulation with its code rate. The thresholds follow from the least input levels
// that the standard demands of receivers (10 % of packets fail; clauses 17.3.10.2, 19.3.19.1 and
// 21.3.18.1, and Table 27-51 of 802.11ax-2021), with its noise figure of 10 dB and implementation
// margin of 5 dB: level + 101 dBm − 15 dB in 20 MHz.
type scheme struct {
	bits float64 // per subcarrier, after coding
	snr  float64 // dB
}

// legacySchemes have BPSK at the rate 3/4 too, and end at 64-QAM at 3/4.
var legacySchemes = slices.Concat([]scheme{{1. / 2, 4}, {3. / 4, 5}}, schemes[1:7])

var schemes = []scheme{
	{1. / 2, 4},
	{2 * 1. / 2, 7},
	{2 * 3. / 4, 9},
	{4 * 1. / 2, 12},
	{4 * 3. / 4, 16},
	{6 * 2. / 3, 20},
	{6 * 3. / 4, 21},
	{6 * 5. / 6, 22},
	{8 * 3. / 4, 27},
	{8 * 5. / 6, 29},
	{10 * 3. / 4, 32},
	{10 * 5. / 6, 34},
}

const us = float64(time.Microsecond)

// The duration of acknowledgments of 14 and 32 bytes at 24 Mbit/s (clause 17.4.3).
const (
	ackTime      = 28 * time.Microsecond
	blockAckTime = 32 * time.Microsecond
)

func (f fileWifi) model() (*wire.Wifi, error) {
	p, ok := phys[f.Standard]
	if !ok {
		return nil, fmt.Errorf("standard: %q: want a, n, ac or ax", f.Standard)
	}
	w := &wire.Wifi{
		Ack: ackTime, BlockAck: blockAckTime, Header: 54, MaxFrames: p.frames, MaxBytes: p.bytes,
		Adaptation: wire.WifiMinstrel, Attempts: 7, WindowMin: 15, WindowMax: 1023, Slot: 9 * time.Microsecond,
		SIFS: 16 * time.Microsecond, SNR: 40, Slope: 1, Coherence: 100 * time.Millisecond,
	}
	if err := f.phy(p, w); err != nil {
		return nil, err
	}
	if f.Header != nil {
		if w.Header = *f.Header; w.Header < 28 || w.Header > 256 {
			return nil, fmt.Errorf("header: %d: want 28 to 256 bytes", w.Header)
		}
	}
	for _, part := range []struct {
		field string
		err   error
	}{
		{"aggregation", f.Aggregation.apply(p, w)},
		{"contention", f.Contention.apply(w)},
		{"signal", f.Signal.apply(w)},
		{"bursts", f.Bursts.apply(w)},
	} {
		if part.err != nil {
			return nil, fmt.Errorf("%s.%w", part.field, part.err)
		}
	}
	for i, s := range f.Stations {
		if err := s.add(w); err != nil {
			return nil, fmt.Errorf("stations[%d].%w", i, err)
		}
	}
	if len(w.Loads) > maxStations {
		return nil, fmt.Errorf("stations: %d exceed the limit of %d", len(w.Loads), maxStations)
	}
	return w, nil
}

// maxStations leaves room for links on the medium. maxLoad, in bit/s, bounds the events of a station.
const (
	maxStations = 64
	maxLoad     = 1e9
)

// oneOf returns value, or the first of want if value is empty.
func oneOf(field, value string, want ...string) (string, error) {
	if value == "" {
		return want[0], nil
	}
	value = strings.ReplaceAll(value, " ", "")
	if !slices.Contains(want, value) {
		return "", fmt.Errorf("%s: %q: want %s", field, value, strings.Join(want, ", "))
	}
	return value, nil
}

func (f fileWifi) phy(p phy, w *wire.Wifi) error {
	var widths []string
	for _, width := range []string{"20MHz", "40MHz", "80MHz", "160MHz"} {
		if p.tones[width] > 0 {
			widths = append(widths, width)
		}
	}
	width, err := oneOf("width", f.Width, widths...)
	if err != nil {
		return err
	}
	guardName, err := oneOf("guard", f.Guard, p.guards...)
	if err != nil {
		return err
	}
	guard, err := time.ParseDuration(guardName)
	if err != nil {
		return at(err, "guard")
	}
	streams := max(1, f.Streams)
	if f.Streams < 0 || streams > p.streams {
		return fmt.Errorf("streams: %d: want 1 to %d", f.Streams, p.streams)
	}
	training := streams // long training fields
	if streams == 3 || streams > 4 {
		training = streams + streams%2
	}
	w.Preamble = time.Duration((p.preamble + p.training*float64(training)) * us)
	w.Symbol = p.symbol*us + float64(guard)
	list := schemes
	if f.Standard == "a" {
		list = legacySchemes
	}
	list = list[:p.schemes]
	if f.Standard == "ac" && width == "20MHz" && streams%3 != 0 {
		list = list[:9] // the standard excludes MCS 9
	}
	for _, s := range list {
		w.Rates = append(w.Rates, wire.WifiRate{
			Bits: math.Floor(float64(p.tones[width]*streams) * s.bits), SNR: s.snr,
		})
	}
	switch f.Rate {
	case "", "minstrel":
	case "snr":
		w.Adaptation = wire.WifiSNR
	default:
		mcs, err := strconv.Atoi(f.Rate)
		if err != nil || mcs < 0 || mcs >= len(list) {
			return fmt.Errorf("rate: %q: want minstrel, snr or an index (MCS) from 0 to %d", f.Rate, len(list)-1)
		}
		w.Adaptation, w.Fixed = wire.WifiFixed, mcs
	}
	return nil
}

func (f *fileAggregation) apply(p phy, w *wire.Wifi) (err error) {
	if w.MaxDuration, err = time.ParseDuration(p.longest); err != nil || f == nil {
		return err
	}
	if f.Frames != 0 {
		if w.MaxFrames = f.Frames; f.Frames < 1 || f.Frames > p.frames {
			return fmt.Errorf("frames: %d: want 1 to %d", f.Frames, p.frames)
		}
	}
	if f.Bytes != 0 {
		if w.MaxBytes = f.Bytes; f.Bytes < 1 || f.Bytes > p.bytes {
			return fmt.Errorf("bytes: %d: want 1 to %d", f.Bytes, p.bytes)
		}
	}
	if f.Duration != "" {
		d, err := parseDuration(f.Duration, w.MaxDuration)
		if err != nil {
			return at(err, "duration")
		}
		w.MaxDuration = d
	}
	return nil
}

func (f *fileContention) apply(w *wire.Wifi) (err error) {
	aifsn := 3
	if f != nil {
		if f.Slot != "" {
			if w.Slot, err = parseDuration(f.Slot, time.Millisecond); err != nil {
				return at(err, "slot")
			}
			if w.Slot < time.Microsecond {
				return fmt.Errorf("slot: %q: want at least 1µs", f.Slot)
			}
		}
		if f.SIFS != "" {
			if w.SIFS, err = parseDuration(f.SIFS, time.Millisecond); err != nil {
				return at(err, "sifs")
			}
		}
		if f.AIFSN != 0 {
			if aifsn = f.AIFSN; aifsn < 1 || aifsn > 15 {
				return fmt.Errorf("aifsn: %d: want 1 to 15", aifsn)
			}
		}
		if f.Attempts != 0 {
			if w.Attempts = f.Attempts; w.Attempts < 1 || w.Attempts > 255 {
				return fmt.Errorf("attempts: %d: want 1 to 255", w.Attempts)
			}
		}
		if f.Window != "" {
			first, last, _ := strings.Cut(f.Window, "-")
			low, err1 := strconv.Atoi(strings.TrimSpace(first))
			high, err2 := strconv.Atoi(strings.TrimSpace(last))
			if err1 != nil || err2 != nil || low < 0 || high < low || high > 32767 {
				return fmt.Errorf("window: %q: want slots such as 15-1023", f.Window)
			}
			w.WindowMin, w.WindowMax = low, high
		}
	}
	w.AIFS = w.SIFS + time.Duration(aifsn)*w.Slot
	return nil
}

// decibels parses a value from low to high.
func decibels(s string, low, high float64) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, "dB")), 64)
	if err != nil || !strings.HasSuffix(s, "dB") || !(v >= low && v <= high) {
		return 0, fmt.Errorf("%q: want %vdB to %vdB", s, low, high)
	}
	return v, nil
}

func (f *fileSignal) apply(w *wire.Wifi) (err error) {
	if f == nil {
		return nil
	}
	if f.SNR != "" {
		if w.SNR, err = decibels(f.SNR, -20, 80); err != nil {
			return at(err, "snr")
		}
	}
	if f.Fading != "" {
		if w.Fading, err = decibels(f.Fading, 0, 20); err != nil {
			return at(err, "fading")
		}
	}
	if f.Coherence != "" {
		if w.Coherence, err = parseDuration(f.Coherence, time.Minute); err != nil {
			return at(err, "coherence")
		}
		if w.Coherence < time.Millisecond {
			return fmt.Errorf("coherence: %q: want at least 1ms", f.Coherence)
		}
	}
	if f.Slope != 0 {
		if w.Slope = f.Slope; !(w.Slope > 0 && w.Slope <= 10) {
			return fmt.Errorf("slope: %v: want more than 0 and at most 10", f.Slope)
		}
	}
	return nil
}

func (f *fileWifiBursts) apply(w *wire.Wifi) (err error) {
	if f == nil {
		return nil
	}
	if w.BurstShare, err = parseShare(f.Average); err != nil || w.BurstShare >= 1 {
		return at(errors.Join(err, over100(w.BurstShare)), "average")
	}
	if w.BurstLength, err = parseDuration(f.Length, time.Minute); err != nil {
		return at(err, "length")
	}
	if w.BurstLength < 10*time.Microsecond {
		return fmt.Errorf("length: %q: want at least 10µs", f.Length)
	}
	w.BurstLoss = 1
	if f.InBad != "" {
		if w.BurstLoss, err = parseShare(f.InBad); err != nil {
			return at(err, "inBad")
		}
	}
	return nil
}

func over100(share float64) error {
	if share < 1 {
		return nil
	}
	return errors.New("want less than 100%")
}

func (f fileStation) add(w *wire.Wifi) (err error) {
	load := wire.WifiLoad{Length: 1514}
	if f.Rate != "saturated" {
		if load.Rate, err = parseRate(f.Rate); err != nil {
			return at(err, `rate (or "saturated")`)
		}
		if load.Rate > maxLoad {
			return fmt.Errorf("rate: %q: want at most 1Gbit, or saturated", f.Rate)
		}
	}
	if f.Size != 0 {
		if load.Length = f.Size + 14; f.Size < 28 || f.Size > 2304 {
			return fmt.Errorf("size: %d: want 28 to 2304 bytes", f.Size)
		}
	}
	if f.Count < 0 || f.Count > maxStations {
		return fmt.Errorf("count: %d: want 1 to %d", f.Count, maxStations)
	}
	for range max(1, f.Count) {
		w.Loads = append(w.Loads, load)
	}
	return nil
}
