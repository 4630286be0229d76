// Command publisher is the peer of the web viewer's tests. It publishes known frames and
// malformed objects, renders reference pictures, and acts as a relay that misbehaves.
//
//	publisher [flags] moqt://127.0.0.1:4443/SESSION     publish until stopped
//	publisher --reference MATRIX [flags]                write a picture of the frame to stdout, raw RGBA
//	publisher --object [flags]                          write the frame as an object to stdout
//	publisher --record FILE [flags]                     write a recording of evenly spaced frames
//	publisher --dump DIR                                write frames of several sizes and layouts to files
//	publisher --receipts moqt://127.0.0.1:4443/SESSION  print the receipts of the session's viewers
//	publisher --leave-for URI [--on-signal] ADDRESS     relay that sends GOAWAY to its peers
//	publisher --refuse-updates URI [--cut] ADDRESS      proxy relay that refuses REQUEST_UPDATE
//	publisher --watch moqt://127.0.0.1:4443/SESSION     receive the session's frames and discard them
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
)

type options struct {
	width, height int
	layout        string
	descriptions  int
	fps           float64
	hostile       bool
	matrix        string
	look          string
	viewport      string
	object        bool
	frames        int
	delta         bool
	compress      bool
	noCameras     bool
	maxPoints     int
	correct       bool
	hold          bool
	pause         bool
	timeout       time.Duration
	datagrams     int    // period of dropped datagrams; 0 = use streams
	sound         string // delivery of sound; "" = none
	flood         int    // bad packets of sound per good one
	document      string
	catalogTrack  string
}

func main() {
	var o options
	flag.IntVar(&o.width, "width", 640, "width of the frame's grid, pixels")
	flag.IntVar(&o.height, "height", 576, "height of the frame's grid, pixels")
	flag.StringVar(&o.layout, "layout", "a", "a, b or c; w with --record")
	flag.IntVar(&o.descriptions, "descriptions", 1, "1 or 4")
	flag.Float64Var(&o.fps, "fps", 30, "frames per second")
	flag.BoolVar(&o.hostile, "hostile", false, "insert malformed objects between the frames")
	flag.StringVar(&o.matrix, "reference", "", "render the frame with this matrix to clip space: 16 numbers, column-major")
	flag.StringVar(&o.look, "look", "points", "look of the reference picture: surface or points")
	flag.StringVar(&o.viewport, "viewport", "960x640", "size of the reference picture")
	flag.BoolVar(&o.object, "object", false, "write the frame as an object to stdout")
	flag.IntVar(&o.frames, "frames", 0, "number of frames to publish before falling silent; 0 = unlimited")
	flag.BoolVar(&o.delta, "delta", false, "publish an empty catalog and add the track by a delta update")
	flag.BoolVar(&o.compress, "compress", false, "with --delta: compress the catalog's objects with gzip")
	flag.BoolVar(&o.noCameras, "no-cameras", false, "publish a catalog without tracks")
	flag.IntVar(&o.maxPoints, "max-points", 0, "maximum points announced in the catalog; 0 = width times height")
	flag.BoolVar(&o.correct, "correct", false, "publish the camera at the origin, and correct its pose on SIGUSR1")
	flag.BoolVar(&o.hold, "hold", false, "publish one frame, and the others after SIGUSR1")
	flag.BoolVar(&o.pause, "pause", false, "fall silent on SIGUSR1")
	flag.DurationVar(&o.timeout, "timeout", 500*time.Millisecond, "delivery timeout of the frames")
	flag.IntVar(&o.datagrams, "datagrams", 0, "send frames in datagrams and drop every Nth; 0 = use streams")
	flag.StringVar(&o.sound, "sound", "", "publish beeps, too, by stream or datagram")
	flag.IntVar(&o.flood, "flood", 0, "with --sound: bad packets per good one")
	flag.StringVar(&o.document, "catalog", "", "publish only this file, as the catalog")
	flag.StringVar(&o.catalogTrack, "catalog-track", catalog.TrackName, "name of the catalog's track")
	file := flag.String("record", "", "write a recording of --frames frames to this file")
	dump := flag.String("dump", "", "write frames of several sizes and layouts to this directory")
	data := flag.String("data", os.Getenv("HOLOCAST_DATA"), "with --dump: directory with sensor recordings")
	watching := flag.Bool("watch", false, "subscribe instead of publish")
	receipts := flag.Bool("receipts", false, "print receipts instead of publishing")
	leaveFor := flag.String("leave-for", "", "act as a relay that sends GOAWAY with the URI of a session")
	onSignal := flag.Bool("on-signal", false, "with --leave-for: forward the session, and send GOAWAY on SIGUSR1")
	refuse := flag.String("refuse-updates", "", "act as a proxy for this relay that refuses REQUEST_UPDATE")
	cut := flag.Bool("cut", false, "with --refuse-updates: reset the subscription instead of answering")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *dump != "":
		err = dumpFrames(*dump, *data)
	case *file != "":
		err = writeRecording(*file, o)
	case o.object:
		err = writeObject(os.Stdout, o)
	case o.matrix != "":
		err = drawReference(os.Stdout, o)
	case *receipts && flag.NArg() == 1:
		err = printReceipts(ctx, os.Stdout, flag.Arg(0))
	case *leaveFor != "" && flag.NArg() == 1:
		err = sendAway(ctx, flag.Arg(0), *leaveFor, *onSignal)
	case *refuse != "" && flag.NArg() == 1:
		err = refuseUpdates(ctx, flag.Arg(0), *refuse, *cut)
	case *watching && flag.NArg() == 1:
		err = watch(ctx, flag.Arg(0))
	case flag.NArg() == 1:
		err = publish(ctx, o, flag.Arg(0))
	default:
		err = errors.New("missing argument: URL of a session, or address to listen on")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "publisher:", err)
		os.Exit(1)
	}
}

// scene returns the published frame, which shows a ball in front of a wall.
func (o *options) scene() frametest.Cloud { return frametest.SyntheticCloud(o.width, o.height, 1) }

// lens returns the intrinsics of scene.
func (o *options) lens() camera.Intrinsics {
	f := 0.8 * float64(o.width)
	return camera.Intrinsics{
		Width: o.width, Height: o.height, Fx: f, Fy: f, Cx: float64(o.width) / 2, Cy: float64(o.height) / 2,
	}
}

// pose places the camera 1.2 m above the studio's floor, looking along −z, y up.
var pose = camera.Transform{R: [9]float64{1, 0, 0, 0, -1, 0, 0, 0, -1}, T: [3]float64{0, 1200, 2000}}

func (o *options) delivery() string {
	if o.datagrams > 0 {
		return catalog.DeliveryDatagram
	}
	return catalog.DeliveryStream
}

type publisher struct {
	options
	url     string
	ns      moqt.Namespace
	set     origin.Set
	catalog *origin.Track
	points  *origin.Track
	audio   *origin.Track  // nil without --sound
	poses   *origin.Track  // nil without --correct
	signals chan os.Signal // SIGUSR1 for --correct, --hold and --pause
	clock   clock.Estimator

	group uint64
	sent  int // datagrams so far
}

func publish(ctx context.Context, o options, url string) error {
	target := connect.Target{URL: url}
	ns, err := target.Namespace()
	if err != nil {
		return err
	}
	p := &publisher{options: o, url: url, ns: ns, group: uint64(time.Now().UnixMilli())}
	p.catalog = p.newTrack(o.catalogTrack)
	if o.document != "" {
		return p.publishDocument(ctx, target)
	}
	p.points = p.newTrack(catalog.PointsTrack(0, "full"))
	if o.sound != "" {
		p.audio = p.newTrack(catalog.SoundTrack(0))
	}
	if o.correct || o.hold || o.pause {
		p.signals = make(chan os.Signal, 1)
		signal.Notify(p.signals, syscall.SIGUSR1)
	}
	at := pose
	if o.correct {
		p.poses, at = p.newTrack(catalog.PoseTrack), camera.Identity
	}
	if err := p.describe(at); err != nil {
		return err
	}
	go func() {
		if err := p.produce(ctx); err != nil && ctx.Err() == nil {
			slog.Error("cannot publish frames", "err", err)
			os.Exit(1)
		}
	}()
	if p.audio != nil {
		go func() {
			if err := p.produceSound(ctx); err != nil {
				slog.Error("cannot publish sound", "err", err)
				os.Exit(1)
			}
		}()
	}
	err = target.Keep(ctx, p.set.Handler(), moqt.Config{}, p.serve)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // stopped by a signal
	}
	return err
}

// publishDocument publishes a file as the catalog.
func (p *publisher) publishDocument(ctx context.Context, target connect.Target) error {
	b, err := os.ReadFile(p.document)
	if err != nil {
		return err
	}
	if err := p.write(p.catalog, p.group, 0, b); err != nil {
		return err
	}
	err = target.Keep(ctx, p.set.Handler(), moqt.Config{}, p.serve)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // stopped by a signal
	}
	return err
}

func (p *publisher) newTrack(name string) *origin.Track {
	limits := origin.Limits{MaxAge: max(time.Second, p.timeout)}
	t := origin.NewTrack(moqt.TrackName{Namespace: p.ns, Name: name}, nil, limits)
	p.set.Add(t)
	return t
}

func (p *publisher) serve(ctx context.Context, s *moqt.Session) error {
	// Ignore errors, as relay and publisher share a clock.
	go func() { _ = connect.FollowClock(s.Context(), s, &p.clock, nil) }()
	time.Sleep(3 * clock.Interval)
	ns, err := s.PublishNamespace(ctx, p.ns)
	if err != nil {
		return err
	}
	slog.Info("publishing", "session", p.url)
	select {
	case <-ns.Done():
		return ns.Err()
	case <-s.Context().Done():
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// correctPose publishes the camera's true pose on the pose track and in a new catalog.
func (p *publisher) correctPose() error {
	b, err := catalog.MarshalPoses([]catalog.PoseEvent{{T: p.clock.Now().UnixMilli(), Data: catalog.Pose{Pose: pose}}})
	if err != nil {
		return err
	}
	if err := p.write(p.poses, p.group, 0, b); err != nil {
		return err
	}
	return p.describe(pose)
}

// newCatalog returns a catalog with the camera at the given pose.
func (p *publisher) newCatalog(at camera.Transform) (catalog.Catalog, error) {
	c := catalog.Catalog{Version: catalog.Version}
	lens := p.lens()
	ref, err := c.AddInit("camera-0", catalog.CameraInit{Grid: lens, Pose: at, DepthMax: 10000})
	if err != nil {
		return c, err
	}
	layout := map[string]string{"a": "A", "b": "B", "c": "C", "w": "W"}[p.layout]
	t := catalog.Track{
		Name: p.points.Name().Name, Packaging: catalog.PackagingPoints, IsLive: true, Role: catalog.RolePoints,
		InitRef: ref, Framerate: p.fps,
		Points: &catalog.Points{
			CameraName: "test", Quality: "full", Layout: layout, Descriptions: p.descriptions,
			MaxPoints:       cmp.Or(p.maxPoints, p.width*p.height),
			DeliveryTimeout: int(p.timeout.Milliseconds()), Delivery: p.delivery(),
		},
	}
	if layout == "A" || layout == "W" {
		t.Width, t.Height = p.width, p.height
	}
	if !p.noCameras {
		c.Tracks = append(c.Tracks, t)
	}
	if p.sound != "" {
		c.Tracks = append(c.Tracks, p.soundTrack())
	}
	if p.poses != nil {
		c.Tracks = append(c.Tracks, catalog.NewPoseTrack(t.Name))
	}
	return c, nil
}

func (p *publisher) describe(at camera.Transform) error {
	c, err := p.newCatalog(at)
	if err != nil {
		return err
	}
	b, err := c.Marshal()
	if err != nil {
		return err
	}
	if p.hostile {
		for i, bad := range hostileCatalogs(b) {
			if err := p.write(p.catalog, p.group+uint64(i), 0, bad); err != nil {
				return err
			}
		}
	}
	if p.delta {
		return p.describeByDelta(c)
	}
	return p.write(p.catalog, p.group+100, 0, b)
}

// describeByDelta publishes the catalog without its track, then adds the track in a delta update
// (MSF §5.1.6).
func (p *publisher) describeByDelta(c catalog.Catalog) error {
	track := c.Tracks[0]
	c.Tracks = nil
	b, err := c.Marshal()
	if err != nil {
		return err
	}
	delta, err := json.Marshal(map[string]any{
		"generatedAt": time.Now().UnixMilli(),
		"deltaUpdate": []any{map[string]any{"op": "add", "tracks": []catalog.Track{track}}},
	})
	if err != nil {
		return err
	}
	h := wire.SubgroupHeader{
		Group: p.group, Mode: wire.SubgroupIDExplicit, Priority: 128, FirstObject: true, HasProperties: p.compress,
	}
	f, err := p.catalog.OpenSubgroup(h)
	if err != nil {
		return err
	}
	for i, payload := range [][]byte{b, delta} {
		o := moqt.Object{ID: uint64(i)}
		if p.compress {
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			if _, err := w.Write(payload); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			payload = z.Bytes()
			o.Properties = wire.AppendKeyValues(nil, wire.KeyValue{Type: catalog.CompressionProperty, Int: 1})
		}
		if err := f.WriteObject(o, payload); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) write(t *origin.Track, group uint64, subgroup int, payload []byte) error {
	h := wire.SubgroupHeader{
		Group: group, Subgroup: uint64(subgroup), Mode: wire.SubgroupIDExplicit,
		Priority: uint8(128 + subgroup), FirstObject: true,
	}
	return t.WriteObject(h, moqt.Object{ID: uint64(subgroup)}, payload)
}

// produce publishes the scene repeatedly. Its objects are encoded once; only their headers
// change between frames.
func (p *publisher) produce(ctx context.Context) error {
	objects, err := p.encodeAll()
	if err != nil {
		return err
	}
	tick := time.NewTicker(p.interval())
	defer tick.Stop()
	for sequence := uint32(0); ; sequence++ {
		if p.frames > 0 && sequence == uint32(p.frames) {
			slog.Info("published all frames")
			<-ctx.Done()
			return nil
		}
		ticks := tick.C
		if p.hold && sequence == 1 {
			ticks = nil
		}
		if sequence > 0 {
			select {
			case <-ticks:
			case <-p.signals:
				if p.pause {
					<-ctx.Done()
					return nil
				}
				if p.poses == nil {
					break
				}
				if err := p.correctPose(); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
		captured := p.clock.Now()
		p.group++
		if p.hostile && sequence%2 == 1 {
			if err := p.attack(int(sequence/2), stamp(objects[0], sequence, captured)); err != nil {
				return err
			}
			continue
		}
		next := uint64(0)
		for d, object := range objects {
			if p.datagrams > 0 {
				next = p.writeParts(next, d == len(objects)-1, stamp(object, sequence, captured))
			} else if err := p.write(p.points, p.group, d, stamp(object, sequence, captured)); err != nil {
				return err
			}
		}
	}
}

// writeParts sends a description in datagrams, as objects from ID next on, and returns the
// following object ID. Datagrams that it drops on purpose can be fetched.
func (p *publisher) writeParts(next uint64, last bool, description []byte) uint64 {
	for d := range parts.Cut(moqt.Datagram{Group: p.group, Object: next, Priority: 96, EndOfGroup: last}, description) {
		if p.sent++; p.sent%p.datagrams == 0 {
			p.points.BackfillDatagram(d)
		} else {
			p.points.SendDatagram(d)
		}
		next = d.Object + 1
	}
	return next
}

func (o *options) interval() time.Duration { return time.Duration(float64(time.Second) / o.fps) }

// stamp returns a copy of an object with the given header fields.
func stamp(object []byte, sequence uint32, captured time.Time) []byte {
	b := bytes.Clone(object)
	binary.LittleEndian.PutUint32(b[8:], sequence)
	binary.LittleEndian.PutUint64(b[20:], uint64(captured.UnixMicro()))
	return b
}

// encodeAll returns one object per description.
func (o *options) encodeAll() ([][]byte, error) {
	scene := o.scene()
	enc, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	objects := make([][]byte, o.descriptions)
	for d := range objects {
		if objects[d], err = o.encode(enc, &scene, d); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

func (o *options) encode(enc *pointcloud.Encoder, scene *frametest.Cloud, description int) ([]byte, error) {
	layout, ok := pointcloud.ParseLayout(o.layout)
	if !ok {
		return nil, fmt.Errorf("unknown layout %q: use a, b or c", o.layout)
	}
	return enc.Encode(nil, pointcloud.Header{Descriptions: uint8(o.descriptions)}, scene.Frame(layout), description)
}

func writeObject(w io.Writer, o options) error {
	enc, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		return err
	}
	defer enc.Close()
	scene := o.scene()
	b, err := o.encode(enc, &scene, 0)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
