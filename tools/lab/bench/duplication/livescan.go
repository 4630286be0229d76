//go:build linux

package duplication

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"holocast/internal/livescan"
	"holocast/internal/pause"
)

// ahead is the number of frames requested in advance, enough for 30 per second at a round-trip time
// of 200 ms.
const ahead = 8

// livescanViewer requests frames as LiveScan3D's viewers do.
type livescanViewer struct {
	conn net.Conn
	done chan struct{}

	mu       sync.Mutex
	arrivals []arrival
	err      error
	stopped  bool
}

// arrival is a complete response.
type arrival struct {
	at     time.Time
	points int
}

// startLiveScan starts the bridge on the relay's host and a viewer. It waits for the viewer's first
// frame.
func (s *session) startLiveScan(ctx context.Context, m *media, congestion Congestion, url, hash string) (err error) {
	address := net.JoinHostPort(s.lab.Node(source).Addr.String(), fmt.Sprint(livescan.ViewerPort))
	s.bridge, err = s.start(source, "holocast", "bridge", url, "--certificate-hash", hash, "--listen", address,
		"--points", fmt.Sprint(m.level.points), "--frames", s.frames(), "--tcp-congestion", string(congestion))
	if err != nil {
		return err
	}
	s.bridge.title = "bridge"
	for deadline := time.Now().Add(firstFrame); ; {
		if s.livescan, err = s.openLiveScan(ctx, address); err == nil {
			break
		}
		if err := s.group.check(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return err
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(firstFrame); !s.livescan.shows(); {
		if err := errors.Join(s.group.check(), s.livescan.failure()); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the viewer received no frame within %v", firstFrame)
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// openLiveScan connects from the viewer's host.
func (s *session) openLiveScan(ctx context.Context, address string) (*livescanViewer, error) {
	v := &livescanViewer{done: make(chan struct{})}
	err := s.lab.Node(viewer).Namespace.Do(func() (err error) {
		v.conn, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		return err
	})
	if err != nil {
		return nil, err
	}
	go v.run()
	return v, nil
}

// run requests and reads frames until the connection ends.
func (v *livescanViewer) run() {
	defer close(v.done)
	ask := func(n int) error {
		for range n { // one segment each, because the edge recognizes requests by their size
			if _, err := v.conn.Write([]byte{livescan.RequestFrame}); err != nil {
				return err
			}
		}
		return nil
	}
	err := ask(ahead)
	answers := livescan.NewAnswers(bufio.NewReaderSize(v.conn, 256<<10))
	for err == nil {
		var points int
		if points, err = answers.Next(nil); err != nil {
			break
		}
		v.mu.Lock()
		v.arrivals = append(v.arrivals, arrival{time.Now(), points})
		v.mu.Unlock()
		err = ask(1)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.stopped {
		v.err = fmt.Errorf("the viewer's connection ended: %w", err)
	}
}

func (v *livescanViewer) shows() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := len(v.arrivals)
	return n > 0 && v.arrivals[n-1].points > 0
}

func (v *livescanViewer) failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// stop ends the viewer and returns the arrivals.
func (v *livescanViewer) stop() []arrival {
	v.mu.Lock()
	v.stopped = true
	v.mu.Unlock()
	_ = v.conn.Close()
	<-v.done
	return v.arrivals
}

// readSent reads the bridge's list of frames sent to one viewer. Entry k of the list belongs to
// entry k of arrivals. It skips repeated and empty frames.
func readSent(r io.Reader, arrivals []arrival, begun time.Time) ([]frame, error) {
	lines := bufio.NewScanner(r)
	if !lines.Scan() {
		return nil, fmt.Errorf("read the list of sent frames: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
	}
	var frames []frame
	last := int64(0)
	for _, a := range arrivals {
		if !lines.Scan() {
			break // the bridge ended during this response
		}
		fields := splitFields(lines.Text())
		if len(fields) != 6 {
			return nil, fmt.Errorf("invalid line in the list of sent frames: %q", lines.Text())
		}
		number, captured, points, bytes := fields[0], fields[1], int(fields[4]), int(fields[5])
		if points != a.points {
			return nil, fmt.Errorf("the viewer received %d points, but the bridge sent %d", a.points, points)
		}
		if number == last || number == 0 {
			continue
		}
		last = number
		frames = append(frames, frame{
			sequence: uint32(
				number,
			), captured: time.UnixMicro(captured).Sub(begun), shown: a.at.Sub(begun), //nolint:gosec // counts from 1
			points: points, bytes: bytes,
		})
	}
	return frames, lines.Err()
}

// splitFields returns the numbers after the first field, which is the viewer's address. It returns
// nil for a malformed line.
func splitFields(line string) []int64 {
	_, numbers, _ := strings.Cut(line, ",")
	var f [6]int64
	if _, err := fmt.Sscanf(numbers, "%d,%d,%d,%d,%d,%d", &f[0], &f[1], &f[2], &f[3], &f[4], &f[5]); err != nil {
		return nil
	}
	return f[:]
}
