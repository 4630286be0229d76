package export

import (
	"context"
	"errors"
	"io"

	"holocast/internal/ffmpeg"
)

var errExited = errors.New("the encoder exited")

// encode runs FFmpeg with the input that feed writes. If FFmpeg fails, writing fails and encode returns FFmpeg's error.
func encode(ctx context.Context, args []string, feed func(context.Context, io.Writer) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	// FFmpeg 5 otherwise ignores a full disk while it writes the last part of a file.
	args = append([]string{"-xerror"}, args...)
	encoder, _, err := ffmpeg.Start(ctx, 0, r, args...)
	if err != nil {
		return err
	}
	stopped := context.AfterFunc(ctx, func() { _ = r.CloseWithError(context.Canceled) })
	defer stopped()
	ended := make(chan error, 1)
	go func() {
		err := encoder.Wait()
		_ = r.CloseWithError(errExited)
		ended <- err
	}()
	ferr := feed(ctx, w)
	_ = w.CloseWithError(ferr) // nil means end of file
	if ferr != nil {
		cancel()
	}
	err = <-ended
	if ferr != nil && (err == nil || !errors.Is(ferr, errExited)) {
		return ferr
	}
	return err
}
