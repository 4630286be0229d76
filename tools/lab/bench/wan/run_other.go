//go:build !linux

package wan

import (
	"context"
	"errors"
)

func (r *Result) measurePaths(context.Context, Options, []*sequence, int) error {
	return errors.New("emulated paths need Linux; measure --parts quality")
}
