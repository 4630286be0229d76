package catalog

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func soundTrack(change func(t *Track)) *Catalog {
	t := Track{
		Name: SoundTrack(0), Packaging: PackagingLOC, IsLive: true, Role: RoleAudio, Codec: CodecOpus,
		Samplerate: SoundRate, ChannelConfig: "2",
		Sound: &Sound{MicrophoneName: "Mic", Position: []float64{0, 1600, 0}, Delivery: DeliveryDatagram, Packet: 10},
	}
	change(&t)
	return &Catalog{Version: Version, Tracks: []Track{t}}
}

func TestSound(t *testing.T) {
	c := soundTrack(func(*Track) {})
	b, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil || !reflect.DeepEqual(got.Sounds(), c.Tracks) || got.Sounds()[0].Channels() != 2 {
		t.Errorf("got %+v, %v from %s", got, err, b)
	}
	for _, tt := range []struct {
		want   string
		change func(t *Track)
	}{
		{"$.tracks[0].hcau: not allowed with role", func(t *Track) { t.Role = RoleVideo }},
		{"$.tracks[0].packaging: ", func(t *Track) { t.Packaging = "cmaf" }},
		{"$.tracks[0].codec: ", func(t *Track) { t.Codec = "mp4a.40.2" }},
		{"$.tracks[0].samplerate: 44100", func(t *Track) { t.Samplerate = 44100 }},
		{"$.tracks[0].channelConfig: \"6\"", func(t *Track) { t.ChannelConfig = "6" }},
		{"$.tracks[0].hcau.microphone: -1", func(t *Track) { t.Sound.Microphone = -1 }},
		{"$.tracks[0].hcau.packet: 20", func(t *Track) { t.Sound.Packet = 20 }},
		{"$.tracks[0].hcau.delivery: \"pigeon\"", func(t *Track) { t.Sound.Delivery = "pigeon" }},
		{"$.tracks[0].hcau.position: 2 numbers", func(t *Track) { t.Sound.Position = []float64{1, 2} }},
		{"$.tracks[0].hcau.position: +Inf", func(t *Track) { t.Sound.Position = []float64{1, 2, math.Inf(1)} }},
	} {
		if _, err := soundTrack(tt.change).Marshal(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
