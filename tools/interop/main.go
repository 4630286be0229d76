// Command interop publishes a session through any MOQT relay, or through two in a chain, and plays
// it back. It fails unless every published byte arrives. The session has point-cloud-sized frames
// in one or more descriptions, a catalog published before the player subscribes, and datagrams.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/pflag"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// catalogGroup is the group of the catalog.
const catalogGroup = 7

// options holds the command line.
type options struct {
	target       connect.Target
	player       connect.Target // relay to play from; defaults to target
	behind       bool           // play from our own relay, with target as upstream
	noPath       bool           // connect without the path of the URLs
	frames       int
	descriptions int // per frame
	size         int // bytes per description
	fps          float64
	draft        string // "" = all
}

func main() {
	o := options{}
	f := pflag.NewFlagSet("interop", pflag.ExitOnError)
	o.target.AddFlags(f)
	f.IntVar(&o.frames, "frames", 60, "frames to send")
	f.IntVar(&o.descriptions, "descriptions", 2, "descriptions of a frame, each in its own subgroup")
	f.IntVar(&o.size, "bytes", 188_000, "bytes of each description")
	f.Float64Var(&o.fps, "fps", 30, "frames a second")
	f.StringVar(&o.player.URL, "play", "", "URL to play from, of a relay downstream of the first")
	f.StringVar(&o.player.CertificateHash, "play-certificate-hash", "", "SHA-256 of the second relay's certificate, hex")
	f.BoolVar(&o.behind, "behind", false, "play from our own relay in this process, with URL as upstream")
	f.StringVar(&o.draft, "draft", "", "MOQT draft to speak, such as 20; all by default")
	f.BoolVar(&o.noPath, "no-path", false, "connect without the path of the URLs")
	list := f.Bool("vectors", false, "print every control message for holocast-moqtap instead")
	_ = f.Parse(os.Args[1:])
	if *list {
		if err := writeVectors(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
			os.Exit(1)
		}
		return
	}
	if f.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: interop [flags] URL")
		os.Exit(2)
	}
	o.target.URL = f.Arg(0)
	if o.player.URL == "" {
		o.player = o.target
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	summary, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	fmt.Println(summary)
}

// run publishes and plays.
func run(ctx context.Context, o options) (string, error) {
	ns, err := o.target.Namespace()
	if err != nil {
		return "", err
	}
	if o.noPath {
		o.target.URL, o.player.URL = withoutPath(o.target.URL), withoutPath(o.player.URL)
	}
	var cfg moqt.Config
	if o.draft != "" {
		v, ok := wire.VersionOf("moqt-" + o.draft)
		if !ok {
			return "", fmt.Errorf("--draft: %s is not supported", o.draft)
		}
		cfg.Versions = []wire.Version{v}
	}
	name := func(track string) moqt.TrackName { return moqt.TrackName{Namespace: ns, Name: track} }
	catalog := origin.NewTrack(name("catalog"), nil, origin.Limits{})
	points := origin.NewTrack(name("points/0/full"), nil, origin.Limits{})
	receipts := origin.NewTrack(name("receipts/0"), nil, origin.Limits{})
	var set origin.Set
	for _, t := range []*origin.Track{catalog, points, receipts} {
		set.Add(t)
	}
	description := make([]byte, 700)
	header := wire.SubgroupHeader{Group: catalogGroup, EndOfGroup: true}
	if err := catalog.WriteObject(header, moqt.Object{}, description); err != nil {
		return "", err
	}

	publisher, err := o.target.Dial(ctx, set.Handler(), cfg)
	if err != nil {
		return "", fmt.Errorf("publisher: %w", err)
	}
	defer publisher.Close(wire.NoError, "")
	published, err := publisher.PublishNamespace(ctx, ns)
	if err != nil {
		return "", fmt.Errorf("publish namespace: %w", err)
	}
	defer published.Withdraw()

	if o.behind {
		near, err := startBehind(ctx, o.target, ns)
		if err != nil {
			return "", fmt.Errorf("start our relay downstream: %w", err)
		}
		defer near.stop()
		o.player = near.target
	}
	viewer, err := o.player.Dial(ctx, moqt.Handler{}, cfg)
	if err != nil {
		return "", fmt.Errorf("player: %w", err)
	}
	defer viewer.Close(wire.NoError, "")
	if err := readCatalog(ctx, viewer, catalog.Name(), description); err != nil {
		return "", fmt.Errorf("catalog: %w", err)
	}
	sub, err := viewer.Subscribe(ctx, points.Name(), moqt.SubscribeOptions{})
	if err != nil {
		return "", fmt.Errorf("subscribe to points: %w", err)
	}
	defer sub.Cancel()
	datagrams, err := viewer.Subscribe(ctx, receipts.Name(), moqt.SubscribeOptions{})
	if err != nil {
		return "", fmt.Errorf("subscribe to receipts: %w", err)
	}
	defer datagrams.Cancel()

	got := make(chan arrival, o.descriptions*o.frames)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(receive(ctx, sub, got)) }()
	count := make(chan struct{}, o.frames)
	go func() {
		for {
			if _, err := datagrams.AcceptDatagram(ctx); err != nil {
				return
			}
			count <- struct{}{}
		}
	}()
	sent, err := publish(ctx, o, points, receipts)
	if err != nil {
		return "", err
	}
	return check(ctx, sent, got, count)
}

// withoutPath returns a valid URL without its path.
func withoutPath(text string) string {
	u, _ := url.Parse(text)
	u.Path = ""
	return u.String()
}

// readCatalog receives the object that was published before the subscription.
func readCatalog(ctx context.Context, s *moqt.Session, name moqt.TrackName, want []byte) error {
	sub, err := s.Subscribe(ctx, name, moqt.SubscribeOptions{})
	for errors.As(err, new(*moqt.RequestError)) && ctx.Err() == nil { // the relay may not know the session yet
		time.Sleep(100 * time.Millisecond)
		sub, err = s.Subscribe(ctx, name, moqt.SubscribeOptions{})
	}
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer sub.Cancel()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type object struct {
		payload []byte
		err     error
	}
	received := make(chan object, 2)
	go func() {
		b, err := fetchCatalog(ctx, s, name, sub)
		received <- object{b, err}
	}()
	go func() { // moq-relay sends the newest group unasked, and then may not answer FETCH
		r, err := sub.AcceptSubgroup(ctx)
		if err == nil {
			_, err = r.NextObject()
		}
		if err == nil {
			b, err := r.ReadPayload(nil, 1<<20)
			received <- object{b, err}
		}
	}()
	got := <-received
	if got.err == nil && string(got.payload) != string(want) {
		return fmt.Errorf("the %d bytes received differ from the %d bytes published", len(got.payload), len(want))
	}
	return got.err
}

// fetchCatalog fetches the catalog's object.
func fetchCatalog(ctx context.Context, s *moqt.Session, name moqt.TrackName, sub *moqt.Subscription) ([]byte, error) {
	var f *moqt.FetchReader
	var err error
	if sub.Largest != nil {
		f, err = s.FetchJoining(ctx, sub, 0, moqt.FetchOptions{})
	} else {
		// A relay may answer a track's first SUBSCRIBE before its publisher does, without a joining
		// point. moq-relay fetches single groups only.
		group := moqt.Location{Group: catalogGroup}
		f, err = s.Fetch(ctx, name, group, group, moqt.FetchOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	defer f.Cancel()
	for {
		o, err := f.Next()
		if err != nil {
			return nil, fmt.Errorf("fetch: %w", err)
		}
		if o.Range == wire.RangeNone {
			return f.ReadPayload(nil, 1<<20)
		}
	}
}

// key identifies one description of one frame.
type key struct{ group, object uint64 }

type arrival struct {
	key
	hash [sha256.Size]byte
}

func receive(ctx context.Context, sub *moqt.Subscription, got chan<- arrival) error {
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return err
		}
		go func() {
			var buf []byte
			for {
				o, err := r.NextObject()
				if err == io.EOF {
					return
				}
				if err == nil && o.Status != wire.StatusNormal {
					continue
				}
				if err == nil {
					buf, err = r.ReadPayload(buf, 64<<20)
				}
				if err != nil {
					slog.Error("could not read a subgroup", "group", r.Group, "subgroup", r.Subgroup, "err", err)
					return
				}
				got <- arrival{key{r.Group, o.ID}, sha256.Sum256(buf)}
			}
		}()
	}
}

// publish sends the frames at the configured rate and returns their hashes.
func publish(ctx context.Context, o options, points, receipts *origin.Track) (map[key][sha256.Size]byte, error) {
	sent := map[key][sha256.Size]byte{}
	first := uint64(time.Now().UnixMilli()) // group IDs are never reused (§2.4.1)
	random := rand.NewChaCha8([32]byte{1})
	tick := time.NewTicker(time.Duration(float64(time.Second) / o.fps))
	defer tick.Stop()
	for n := range o.frames {
		group := first + uint64(n)
		for d := range uint64(o.descriptions) {
			payload := make([]byte, o.size)
			_, _ = random.Read(payload)
			h := wire.SubgroupHeader{Group: group, Subgroup: d, Mode: wire.SubgroupIDExplicit, Priority: uint8(64 + 32*d)}
			if err := points.WriteObject(h, moqt.Object{ID: d}, payload); err != nil {
				return nil, err
			}
			sent[key{group, d}] = sha256.Sum256(payload)
		}
		receipts.SendDatagram(moqt.Datagram{Group: group, Payload: binary.BigEndian.AppendUint64(nil, group)})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return sent, nil
}

// check waits for all objects and at least one datagram.
func check(
	ctx context.Context,
	sent map[key][sha256.Size]byte,
	got <-chan arrival,
	datagrams <-chan struct{},
) (string, error) {
	total := len(sent)
	for len(sent) > 0 {
		select {
		case a := <-got:
			want, ok := sent[a.key]
			if !ok {
				return "", fmt.Errorf("group %d object %d arrived twice or was never sent", a.group, a.object)
			}
			if a.hash != want {
				return "", fmt.Errorf("group %d object %d differs from the published object", a.group, a.object)
			}
			delete(sent, a.key)
		case <-ctx.Done():
			return "", fmt.Errorf("%d of %d objects did not arrive: %w", len(sent), total, context.Cause(ctx))
		}
	}
	if len(datagrams) == 0 {
		return "", errors.New("no datagram arrived")
	}
	return fmt.Sprintf("%d objects and %d datagrams, bytes as sent", total, len(datagrams)), nil
}
