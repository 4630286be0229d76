package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/prepared"
	"holocast/internal/service"
)

type prepareOptions struct {
	prepared.Options
	grid, size string
}

func prepareCommand() *cobra.Command {
	var o prepareOptions
	c := &cobra.Command{
		Use:   "prepare FILM FOLDER",
		Short: "Encode a 360° film as tiles for repeated publishing",
		Long: `Cuts a 360° film into tiles and encodes each at several qualities, with slower and better presets
than a live encoder. The folder contains CMAF files, the session's catalog, the tiles' rates and
distortions, and an MPEG-DASH manifest for other players. Run the same command again to resume after
Ctrl-C or a full disk.

FILM is any input of FFmpeg with equirectangular projection, mono or stereo.`,
		Example: `  holocast prepare panorama.mp4 tour
  holocast prepare panorama.mp4 tour --qualities 8 --preset slow
  holocast replay tour moqt://localhost:4443/tour --loop`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			return prepare(cmd.Context(), o, args[0], args[1], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.grid, "grid", "8x4", "tiles: columns x rows")
	f.IntVar(&o.Qualities, "qualities", 5, "qualities of each tile, 1 to 8")
	f.IntSliceVar(
		&o.Quantisers, "quantisers", nil,
		"H.264 quantizers of the qualities, lowest quality first (default spread over 38 to 22)",
	)
	f.StringVar(&o.Preset, "preset", "medium", "libx264 preset: ultrafast, superfast and so on to veryslow")
	f.StringVar(&o.Stereo, "stereo", "auto", "stereo layout of the film: auto, mono, top-bottom or side-by-side")
	f.StringVar(&o.size, "size", "", "scale one eye's picture to WxH pixels (default its own)")
	return c
}

func prepare(ctx context.Context, o prepareOptions, film, folder string, stdout io.Writer) error {
	var rest string
	if n, _ := fmt.Sscanf(o.grid, "%dx%d%s", &o.Columns, &o.Rows, &rest); n != 2 {
		return fmt.Errorf("--grid is %q, want COLUMNSxROWS, such as 8x4", o.grid)
	}
	if n, _ := fmt.Sscanf(o.size, "%dx%d%s", &o.Width, &o.Height, &rest); o.size != "" && n != 2 {
		return fmt.Errorf("--size is %q, want WIDTHxHEIGHT, such as 1920x960", o.size)
	}
	var b *bar
	began := time.Now()
	o.Progress = func(done, total int64) {
		if b == nil {
			b = newCountBar("preparing", total)
		}
		b.set(time.Since(began), done)
	}
	err := prepared.Prepare(ctx, film, folder, o.Options)
	if b != nil {
		b.end()
	}
	if err != nil {
		return err
	}
	s, err := prepared.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // read-only
	v := s.Video.Sphere
	fmt.Fprintf(stdout, "%s: %.1f s of %d×%d tiles at %d qualities, in %s\n", folder, float64(s.Video.TrackDuration)/1000,
		v.Columns, v.Rows, v.Qualities, time.Since(began).Round(time.Second))
	return nil
}
