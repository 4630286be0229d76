package main

import (
	"context"

	"holocast/internal/connect"
	"holocast/internal/moqt"
)

// keep connects to the target and calls use, and reconnects when the connection is lost. It returns
// when use returns nil or a connect.Final error, or when ctx is done. If patient is not set, it
// also returns if the relay cannot be reached at first. If moving is set, two calls of use may
// overlap while the session moves to another relay (connect.Target.KeepMoving).
func keep(
	ctx context.Context, t connect.Target, h moqt.Handler, cfg moqt.Config, patient, moving bool,
	use func(context.Context, *moqt.Session) error,
) error {
	t.Impatient = !patient
	if moving {
		return t.KeepMoving(ctx, h, cfg, use)
	}
	return t.Keep(ctx, h, cfg, use)
}
