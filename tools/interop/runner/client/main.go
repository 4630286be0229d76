// Command client is the test client for the public MoQ interop runner
// (github.com/englishm/moq-interop-runner): it runs the runner's test cases against any relay and
// prints TAP version 14. It exits with 0 if all pass, 1 if one fails, and 127 if the named test is
// unknown.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/service"
)

// track is the tests' track, in the runner's prescribed namespace.
var track = moqt.TrackName{Namespace: moqt.Namespace{"moq-test", "interop"}, Name: "test-track"}

// unknown is the exit code for a test that this client does not have.
const unknown = 127

// test is one of the runner's test cases. run returns nil if it passes.
type test struct {
	name  string
	limit time.Duration // including the handshake
	run   func(ctx context.Context, d *dialer) error
}

var tests = []test{
	{"setup-only", 2 * time.Second, setupOnly},
	{"announce-only", 4 * time.Second, announceOnly},
	{"publish-namespace-done", 4 * time.Second, publishNamespaceDone},
	{"subscribe-error", 2 * time.Second, subscribeError},
	{"announce-subscribe", 3 * time.Second, announceSubscribe},
	{"subscribe-before-announce", 3500 * time.Millisecond, subscribeBeforeAnnounce},
}

// dialer connects to the relay and remembers the draft of the last session.
type dialer struct {
	url      string
	insecure bool // do not verify the relay's certificate
	log      *slog.Logger
	draft    string // of the last session
}

func (d *dialer) dial(ctx context.Context, h moqt.Handler) (*moqt.Session, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: d.insecure} //nolint:gosec // by request
	s, err := moqt.Dial(ctx, d.url, config, h, moqt.Config{Log: d.log})
	if err == nil {
		d.draft = s.Version().String()
	}
	return s, err
}

// end closes a session and returns an error if it had already failed.
func end(s *moqt.Session) error {
	err := s.Err()
	s.Close(wire.NoError, "")
	if err != nil {
		return fmt.Errorf("the session ended early: %w", err)
	}
	return nil
}

func setupOnly(ctx context.Context, d *dialer) error {
	s, err := d.dial(ctx, moqt.Handler{}) // includes both SETUP messages
	if err != nil {
		return err
	}
	return end(s)
}

// announce connects as a publisher of the track.
func announce(ctx context.Context, d *dialer) (*moqt.Session, *moqt.PublishedNamespace, error) {
	var set origin.Set
	set.Add(origin.NewTrack(track, nil, origin.Limits{}))
	s, err := d.dial(ctx, set.Handler())
	if err != nil {
		return nil, nil, fmt.Errorf("publisher: %w", err)
	}
	p, err := s.PublishNamespace(ctx, track.Namespace)
	if err != nil {
		s.Close(wire.NoError, "")
		return nil, nil, fmt.Errorf("publisher: PUBLISH_NAMESPACE: %w", err)
	}
	return s, p, nil
}

func announceOnly(ctx context.Context, d *dialer) error {
	s, _, err := announce(ctx, d)
	if err != nil {
		return err
	}
	return end(s)
}

func publishNamespaceDone(ctx context.Context, d *dialer) error {
	s, p, err := announce(ctx, d)
	if err != nil {
		return err
	}
	p.Withdraw()
	return end(s)
}

func subscribeError(ctx context.Context, d *dialer) error {
	s, err := d.dial(ctx, moqt.Handler{})
	if err != nil {
		return err
	}
	missing := moqt.TrackName{Namespace: moqt.Namespace{"nonexistent", "namespace"}, Name: track.Name}
	_, err = s.Subscribe(ctx, missing, moqt.SubscribeOptions{})
	switch {
	case err == nil:
		_ = end(s)
		return errors.New("SUBSCRIBE_OK, want REQUEST_ERROR")
	case !refused(err):
		_ = end(s)
		return fmt.Errorf("SUBSCRIBE: %w", err)
	}
	return end(s)
}

// refused reports whether the peer answered REQUEST_ERROR.
func refused(err error) bool { return errors.As(err, new(*moqt.RequestError)) }

func announceSubscribe(ctx context.Context, d *dialer) error {
	publisher, _, err := announce(ctx, d)
	if err != nil {
		return err
	}
	subscriber, err := d.dial(ctx, moqt.Handler{})
	if err != nil {
		return errors.Join(fmt.Errorf("subscriber: %w", err), end(publisher))
	}
	if _, err = subscriber.Subscribe(ctx, track, moqt.SubscribeOptions{}); err != nil {
		err = fmt.Errorf("subscriber: SUBSCRIBE: %w", err)
	}
	return errors.Join(err, end(subscriber), end(publisher))
}

// subscribeBeforeAnnounce accepts both answers that the runner allows: SUBSCRIBE_OK once the
// publisher is there, and REQUEST_ERROR.
func subscribeBeforeAnnounce(ctx context.Context, d *dialer) error {
	subscriber, err := d.dial(ctx, moqt.Handler{})
	if err != nil {
		return fmt.Errorf("subscriber: %w", err)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := subscriber.Subscribe(ctx, track, moqt.SubscribeOptions{RendezvousTimeout: 2 * time.Second})
		answer <- err
	}()
	select {
	case <-time.After(500 * time.Millisecond): // prescribed
	case <-ctx.Done():
	}
	publisher, _, err := announce(ctx, d)
	if err != nil {
		return errors.Join(err, end(subscriber))
	}
	if err = <-answer; err != nil && !refused(err) {
		err = fmt.Errorf("subscriber: SUBSCRIBE: %w", err)
	} else {
		err = nil
	}
	return errors.Join(err, end(subscriber), end(publisher))
}

// run runs the tests and returns how many failed.
func run(ctx context.Context, w io.Writer, d *dialer, list []test) (failed int) {
	_, _ = fmt.Fprintf(w, "TAP version 14\n# Holocast %s\n# Relay: %s\n", service.Version(), d.url)
	_, _ = fmt.Fprintf(w, "1..%d\n", len(list))
	for i, t := range list {
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, t.limit)
		err := t.run(limited, d)
		cancel()
		verdict := "ok"
		if err != nil {
			verdict = "not ok"
			failed++
		}
		_, _ = fmt.Fprintf(w, "%s %d - %s\n  ---\n", verdict, i+1, t.name)
		_, _ = fmt.Fprintf(w, "  duration_ms: %d\n", time.Since(start).Milliseconds())
		if d.draft != "" {
			_, _ = fmt.Fprintf(w, "  draft: %s\n", d.draft)
		}
		if err != nil {
			_, _ = fmt.Fprintf(w, "  message: %s\n", strconv.Quote(err.Error()))
		}
		_, _ = fmt.Fprintln(w, "  ...")
	}
	return failed
}

func main() {
	on := func(variable string) bool { v := os.Getenv(variable); return v == "1" || v == "true" }
	f := pflag.NewFlagSet("interop-client", pflag.ExitOnError)
	url := cmp.Or(os.Getenv("RELAY_URL"), "https://localhost:4443")
	f.StringVarP(&url, "relay", "r", url, "relay: https:// or moqt:// URL")
	name := f.StringP("test", "t", os.Getenv("TESTCASE"), "test to run; \"\" runs all")
	list := f.BoolP("list", "l", false, "print the names of the tests")
	verbose := f.BoolP("verbose", "v", on("VERBOSE"), "log the sessions' events to standard error")
	insecure := f.Bool("tls-disable-verify", on("TLS_DISABLE_VERIFY"), "accept any certificate")
	_ = f.Parse(os.Args[1:])
	chosen := tests
	if *name != "" {
		chosen = nil
		for _, t := range tests {
			if t.name == *name {
				chosen = append(chosen, t)
			}
		}
	}
	switch {
	case *list:
		for _, t := range tests {
			fmt.Println(t.name)
		}
		return
	case len(chosen) == 0:
		fmt.Fprintf(os.Stderr, "interop-client: there is no test %q\n", *name)
		os.Exit(unknown)
	}
	level := slog.LevelError
	if *verbose {
		level = slog.LevelDebug
	}
	d := &dialer{
		url: url, insecure: *insecure,
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
	if run(context.Background(), os.Stdout, d, chosen) > 0 {
		os.Exit(1)
	}
}
