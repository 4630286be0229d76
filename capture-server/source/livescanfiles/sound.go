package livescanfiles

import (
	"os"
	"path/filepath"
	"time"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
)

// Sound is the sound of a take, synchronized with its frames.
type Sound struct {
	Path   string           // of a WAV file that begins with the first frame
	Start  func() time.Time // returns the local time of the first frame
	Period time.Duration    // of the take's loop; 0 if it has a single frame
}

// SoundOf returns the sound of a camera's take, or nil.
func SoundOf(camera source.Source) *Sound {
	if p, ok := camera.(*player); ok {
		return p.sound
	}
	return nil
}

// findSound returns the sound in a directory, or nil.
func findSound(dir string, cameras []*recorded, timelines []*pace.Recording, clock *pace.Clock) *Sound {
	path := filepath.Join(dir, "audio.wav")
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	s := &Sound{Path: path, Start: clock.Start}
	if n := len(cameras[0].frames); timelines[0] != nil {
		s.Period = timelines[0].Period
	} else if n > 1 {
		s.Period = clock.Offset(int64(n))
	}
	return s
}
