package sound

import (
	"encoding/binary"
	"io"
	"time"
)

// recording holds a device's sound and the arrival times of its chunks.
type recording struct {
	pcm    []float32
	chunks []chunk
}

// chunk is recorded sound that arrived at once.
type chunk struct {
	first   int           // sample
	arrived time.Duration // since the measurement began
}

// record reads s16 until the end of r. now is the time since the measurement began.
func (r *recording) record(from io.Reader, now func() time.Duration) error {
	buffer := make([]byte, 1<<14)
	rest := 0
	for {
		n, err := from.Read(buffer[rest:])
		if n += rest; n > 1 {
			r.chunks = append(r.chunks, chunk{len(r.pcm), now()})
		}
		for i := 0; i+2 <= n; i += 2 {
			r.pcm = append(r.pcm, float32(int16(binary.LittleEndian.Uint16(buffer[i:])))/(1<<15))
		}
		rest = copy(buffer, buffer[n&^1:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// window is the time on each side of a sample within which chunks determine its time.
const window = 5 * time.Second

// clock returns the recorder's time of sample 0, from chunks around a sample. Chunks arrive late
// rather than early, so the earliest counts.
func (r *recording) clock(sample float64) (start time.Duration) {
	first := true
	for _, c := range r.chunks {
		if samples(float64(c.first)-sample).Abs() > window {
			continue
		}
		if at := c.arrived - samples(float64(c.first)); first || at < start {
			start, first = at, false
		}
	}
	return start
}

// timed is a chirp, its time, and its correlation with the original.
type timed struct {
	at          time.Duration
	correlation float64
}

// chirps returns the recorded chirps, and how much the recorder's clock changes between them.
func (r *recording) chirps() (list []timed, spread time.Duration) {
	var least, most time.Duration
	for i, f := range findChirps(r.pcm) {
		start := r.clock(f.at)
		if i == 0 {
			least, most = start, start
		}
		least, most = min(least, start), max(most, start)
		list = append(list, timed{start + samples(f.at), f.correlation})
	}
	return list, most - least
}

func samples(n float64) time.Duration { return time.Duration(n / sampleRate * float64(time.Second)) }
