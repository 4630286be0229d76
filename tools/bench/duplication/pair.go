//go:build linux

package duplication

import (
	"context"
	"errors"
	"time"
)

// pair is the duplication pair and its controller.
type pair struct{}

func (s *session) startPair(ctx context.Context, mode Mode) error {
	return errors.New("not yet")
}

func (p *pair) sample(ctx context.Context, at time.Duration) {}

func (p *pair) history(ctx context.Context, begun time.Time) ([]Decision, []Rewards, error) {
	return nil, nil, nil
}
