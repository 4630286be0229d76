package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/recorder"
	"holocast/internal/recording"
	"holocast/internal/service"
)

type recordOptions struct {
	target   connect.Target
	duration time.Duration
	wait     bool
	all      bool
	json     bool
}

func recordCommand() *cobra.Command {
	var o recordOptions
	c := &cobra.Command{
		Use:   "record URL FILE.mcap",
		Short: "Record a session",
		Long: `Records every object of a session, from the catalog's tracks and the viewers' receipts, unchanged
and with its arrival time. The MCAP file can be published with replay. Ctrl-C ends the recording
cleanly. After a crash or on a full disk at most the last second is lost.`,
		Example: `  holocast record moqt://localhost:4443/demo demo.mcap
  holocast record moqt://localhost:4443/demo demo.mcap --duration 30s --wait`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target.URL = args[0]
			return record(cmd.Context(), o, args[1], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	o.target.AddFlags(f)
	f.DurationVar(&o.duration, "duration", 0, "stop after this long (default at the session's end or Ctrl-C)")
	f.BoolVar(&o.wait, "wait", false, "wait for the relay and the session to appear")
	f.BoolVar(&o.all, "all", false, "record every track in the session's namespace, not only the catalog's and receipts")
	f.BoolVar(&o.json, "json", false, "print a summary as one JSON object, the last line of stdout")
	return c
}

// recorded is the final summary.
type recorded struct {
	File    string  `json:"file"`
	Objects uint64  `json:"objects"`
	Records uint64  `json:"records"` // objects, and subgroup ends that arrived separately
	Bytes   uint64  `json:"bytes"`   // payload bytes
	Seconds float64 `json:"seconds"`

	Paths pathReports `json:"paths,omitempty"` // of the last session, if it had several
}

func record(ctx context.Context, o recordOptions, path string, stdout io.Writer) (err error) {
	ns, err := o.target.Namespace()
	if err != nil {
		return err
	}
	w, err := recording.Create(
		path, map[string]string{"url": o.target.Address(), "program": "holocast " + service.Version(wire.ALPN)},
	)
	if err != nil {
		return err
	}
	r := recorder.New(w, recorder.Config{Namespace: ns, All: o.all, Wait: o.wait})
	defer func() {
		err = errors.Join(err, w.Close())
		if n, _, _ := r.Counts(); n == 0 {
			_ = os.Remove(path)
		}
	}()

	running, stop := context.WithCancel(ctx)
	defer stop()
	var paths pathMeter
	ended := make(chan error, 1)
	go func() {
		ended <- keep(running, o.target, r.Handler(), moqt.Config{}, o.wait, false, paths.measured(r.Record))
	}()

	bar := newBytesBar("recording")
	if o.duration > 0 {
		bar = newTimeBar("recording", o.duration)
	}
	tick, sync := time.NewTicker(100*time.Millisecond), time.NewTicker(time.Second)
	defer tick.Stop()
	defer sync.Stop()
	var began time.Time
	for going := true; going; {
		select {
		case err = <-ended:
			going = false
		case <-sync.C:
			_ = w.Sync() // Write reports errors too
		case now := <-tick.C:
			select {
			case <-r.Joined():
			default:
				continue
			}
			if began.IsZero() {
				began = now
			}
			_, bytes, _ := r.Counts()
			bar.set(now.Sub(began), int64(bytes))
			if o.duration > 0 && now.Sub(began) >= o.duration {
				stop()
			}
		}
	}
	bar.end()
	switch {
	case r.Err() != nil:
		return r.Err() // the file's error, which ended the connection
	case err != nil && running.Err() == nil:
		return err
	}
	err = nil
	n, bytes, records := r.Counts()
	if n == 0 {
		return errors.New("nothing recorded")
	}
	sum := recorded{
		File:    path,
		Objects: n,
		Records: records,
		Bytes:   bytes,
		Seconds: time.Since(began).Round(time.Millisecond).Seconds(),
		Paths:   paths.total(time.Now()),
	}
	if o.json {
		return json.NewEncoder(stdout).Encode(sum)
	}
	fmt.Fprintf(
		stdout, "%s: %d objects in %d records, %.1f MB, %.1f s%s\n", path, n, records, float64(bytes)/1e6, sum.Seconds,
		sum.Paths,
	)
	return nil
}
