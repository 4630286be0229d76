package livescantcp

import (
	"log/slog"
	"math"
	"net"
	"slices"
	"time"

	"holocast/internal/livescan"
	"holocast/internal/pointcloud"
)

// client is a connection to a LiveScan3D client.
type client struct {
	o    *Options
	c    *Camera
	conn net.Conn
	log  *slog.Logger

	messages *livescan.Messages
	points   pointcloud.Points // frame being received, swapped with the camera's buffers
	newest   pointcloud.Points // last frame delivered, to detect repeats
	posed    bool              // the client has reported its pose
	frames   int
}

// run serves the client until the connection ends, and returns the reason.
func (x *client) run() (err error) {
	if x.messages, err = livescan.NewMessages(x.conn); err != nil {
		return err
	}
	defer x.messages.Close()
	if err := x.meet(); err != nil {
		return err
	}
	version := x.messages.Version()
	x.log.Info("LiveScan3D client identified", "version", version)
	settings := livescan.Settings{Min: x.o.Min, Max: x.o.Max, Markers: []int32{0, 1, 2, 3, 4, 5}, Compression: 2}
	if err := x.send(livescan.AppendSettings(nil, version, settings)); err != nil {
		return err
	}
	begun := time.Now()
	asked := x.posed
	request := livescan.AppendFrameRequest(nil, version)
	step := time.Duration(float64(time.Second) / x.o.FPS)
	for due := begun; ; due = later(due.Add(step), time.Now()) {
		time.Sleep(time.Until(due))
		if !asked && !x.posed && time.Since(begun) > poseTimeout {
			asked = true
			x.unplaced()
			if x.o.Calibrate {
				if err := x.send(livescan.AppendCalibrationRequest(nil)); err != nil {
					return err
				}
			}
		}
		sent := time.Now()
		if err := x.send(request); err != nil {
			return err
		}
		if err := x.frame(sent, sent.Sub(begun)); err != nil {
			return err
		}
	}
}

// poseTimeout bounds the time from sending the settings to a client's pose report.
const poseTimeout = time.Second

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (x *client) send(b []byte) error {
	if err := x.conn.SetWriteDeadline(time.Now().Add(x.o.Timeout)); err != nil {
		return err
	}
	_, err := x.conn.Write(b)
	return err
}

// meet determines the client's version. Until then it sends only messages that all versions
// interpret alike.
func (x *client) meet() error {
	if err := x.send(livescan.AppendProbe(nil)); err != nil {
		return err
	}
	for x.messages.Version() == livescan.Unknown {
		known, err := x.waitFor(x.o.Probe)
		if err != nil {
			return err
		}
		if !known {
			x.messages.Assume(livescan.KinectV2) // does not answer the probe
			return nil
		}
		if _, err := x.next(); err != nil {
			return err
		}
	}
	return nil
}

// waitFor waits for the first byte of a message. It returns false if none arrives within d.
func (x *client) waitFor(d time.Duration) (bool, error) {
	if err := x.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false, err
	}
	err := x.messages.Wait()
	if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // returned unwrapped by the connection
		return false, nil
	}
	return err == nil, err
}

// next reads a message and records the client's serial number, pose and version.
func (x *client) next() (livescan.Message, error) {
	if err := x.conn.SetReadDeadline(time.Now().Add(x.o.Timeout)); err != nil {
		return livescan.Message{}, err
	}
	m, err := x.messages.Next()
	if err != nil {
		return m, err
	}
	if c := m.Configuration; c != nil {
		x.log.Info("LiveScan3D camera identified", "serial", c.Serial, "name", c.Name)
	}
	if c := m.Calibration; c != nil && c.Known() {
		x.posed = true
		var at [3]int
		for i, v := range c.Pose.T {
			at[i] = int(math.Round(v))
		}
		x.log.Info("LiveScan3D pose received", "marker", c.Marker, "at_mm", at)
	}
	return m, nil
}

func (x *client) unplaced() {
	if x.o.Calibrate {
		x.log.Warn("LiveScan3D client has no pose: asking it to find a marker (0 to 5); until it does, its camera " +
			"is at the origin")
		return
	}
	x.log.Warn("LiveScan3D client has no pose: its camera is at the origin")
}

// frame reads messages up to and including a frame. Unless the frame repeats the last one, frame
// delivers it, with the time of its request as capture time.
func (x *client) frame(captured time.Time, device time.Duration) error {
	for {
		m, err := x.next()
		if err != nil {
			return err
		}
		if m.Cloud == nil {
			continue
		}
		x.frames++
		p := m.Cloud
		if slices.Equal(p.XYZ, x.newest.XYZ) && slices.Equal(p.RGB, x.newest.RGB) {
			return nil // a repeat
		}
		x.newest.XYZ, x.newest.RGB = append(x.newest.XYZ[:0], p.XYZ...), append(x.newest.RGB[:0], p.RGB...)
		x.points.XYZ, x.points.RGB = append(x.points.XYZ[:0], p.XYZ...), append(x.points.RGB[:0], p.RGB...)
		x.c.put(&x.points, captured, device)
		return nil
	}
}
