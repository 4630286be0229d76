package main

import (
	"context"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// keep connects to the target and calls use, and does so again when the connection
// is lost, until use says that it is done or ctx ends. Unless patient, a relay that
// cannot be reached at first is an error.
func keep(ctx context.Context, t connect.Target, h moqt.Handler, patient bool, use func(context.Context, *moqt.Session) (done bool, err error)) error {
	if !patient {
		s, err := t.Dial(ctx, h, moqt.Config{})
		if err != nil {
			return err
		}
		done, err := use(ctx, s)
		s.Close(wire.NoError, "")
		if done || err == nil || ctx.Err() != nil {
			return err
		}
	}
	return t.Keep(ctx, h, moqt.Config{}, func(ctx context.Context, s *moqt.Session) error {
		done, err := use(ctx, s)
		if done && err != nil {
			err = connect.Final(err)
		}
		return err
	})
}
