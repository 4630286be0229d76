package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/camera"
	"holocast/internal/recording"
	"holocast/internal/service"
	"holocast/tools/holocast/export"
)

type exportOptions struct {
	ply, k4a  string
	mp4       string
	perCamera bool
	color     string
	cameras   []int
	quality   string
	json      bool
}

func exportCommand() *cobra.Command {
	var o exportOptions
	c := &cobra.Command{
		Use:   "export FILE.mcap|FOLDER",
		Short: "Turn a recording into PLY files, Azure Kinect recordings or a 360° film",
		Long: `Writes one PLY file per frame, with all cameras merged in studio coordinates or one file per camera,
or one Azure Kinect recording (mkv) per camera. A Kinect recording has its color in the depth
camera's geometry, as in the frames; its calibration reflects this.

From 360° video, recorded or prepared, it makes one film of the whole sphere: each tile at the best
recorded quality, with sound and spherical metadata.`,
		Example: `  holocast export demo.mcap --ply frames
  holocast export demo.mcap --ply frames --camera 0,2 --per-camera
  holocast export demo.mcap --k4a kinects --color bgra
  holocast export tour.mcap --mp4 tour.mp4`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			return exportRecording(cmd.Context(), o, args[0], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.ply, "ply", "", "folder for PLY files")
	f.StringVar(&o.k4a, "k4a", "", "folder for Azure Kinect recordings")
	f.StringVar(&o.mp4, "mp4", "", "file for a film of the whole sphere")
	f.BoolVar(&o.perCamera, "per-camera", false, "write separate PLY files per camera")
	f.StringVar(&o.color, "color", "mjpg", "color format of Azure Kinect recordings: mjpg, or bgra (exact, large)")
	f.IntSliceVar(&o.cameras, "camera", nil, "cameras to export, by number (default all)")
	f.StringVar(&o.quality, "quality", "", "quality of the tracks (default the best)")
	f.BoolVar(&o.json, "json", false, "print a summary as one JSON object, the last line of stdout")
	c.MarkFlagsOneRequired("ply", "k4a", "mp4")
	return c
}

func exportRecording(ctx context.Context, o exportOptions, path string, stdout io.Writer) error {
	format := camera.MJPG
	switch o.color {
	case "mjpg":
	case "bgra":
		format = camera.BGRA
	default:
		return fmt.Errorf("--color %q: want mjpg or bgra", o.color)
	}
	sum := map[string]any{"file": path}
	if o.mp4 != "" {
		if err := exportFilm(ctx, o, path, sum, stdout); err != nil {
			return err
		}
		if o.ply == "" && o.k4a == "" {
			if o.json {
				return json.NewEncoder(stdout).Encode(sum)
			}
			return nil
		}
	}
	r, err := recording.Open(path)
	if err != nil {
		return err
	}
	info := r.Info
	if err := r.Close(); err != nil {
		return err
	}
	if t := info.Truncated; t != nil {
		fmt.Fprintf(os.Stderr, "holocast: %s: %v\n", path, t)
	}
	run := func(what, dir string, f func(export.Config) (export.Result, error)) error {
		if dir == "" {
			return nil
		}
		bar := newCountBar(what, int64(info.Records))
		began := time.Now()
		result, err := f(
			export.Config{
				Cameras:  o.cameras,
				Quality:  o.quality,
				Progress: func(n uint64) { bar.set(time.Since(began), int64(n)) },
			},
		)
		bar.end()
		if err != nil {
			return err
		}
		sum[what] = map[string]any{
			"folder": dir, "files": len(result.Files), "frames": result.Frames,
			"partial": result.Partial, "damaged": result.Damaged, "late": result.Late,
		}
		if !o.json {
			fmt.Fprintf(stdout, "%s: %d frames in %d files", dir, result.Frames, len(result.Files))
			if n := result.Damaged + result.Late; n > 0 {
				fmt.Fprintf(stdout, ", %d skipped (damaged or late)", n)
			}
			fmt.Fprintln(stdout)
		}
		return nil
	}
	if err := run("ply", o.ply, func(c export.Config) (export.Result, error) {
		return export.PLY(ctx, path, o.ply, !o.perCamera, c)
	}); err != nil {
		return err
	}
	if err := run("k4a", o.k4a, func(c export.Config) (export.Result, error) {
		return export.K4A(ctx, path, o.k4a, format, c)
	}); err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(stdout).Encode(sum)
	}
	return nil
}

func exportFilm(ctx context.Context, o exportOptions, path string, sum map[string]any, stdout io.Writer) error {
	bar := newCountBar("mp4", 1000)
	began := time.Now()
	film, err := export.MP4(
		ctx, path, o.mp4, export.Config{Progress: func(n uint64) { bar.set(time.Since(began), int64(n)) }},
	)
	bar.end()
	if err != nil {
		return err
	}
	sum["mp4"] = map[string]any{"file": o.mp4, "frames": film.Frames, "missing": film.Missing}
	if !o.json {
		fmt.Fprintf(stdout, "%s: %d frames", o.mp4, film.Frames)
		if film.Missing > 0 {
			fmt.Fprintf(stdout, ", %d incomplete tile GoPs shown at low resolution", film.Missing)
		}
		fmt.Fprintln(stdout)
	}
	return nil
}
