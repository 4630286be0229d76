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
	rgbd      string
	foxglove  string
	mp4       string
	wav       string
	force     bool
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
		Short: "Turn a recording into files of other tools",
		Long: `Writes, from point clouds, any of these:

--ply       a PLY file per frame, with all cameras merged in studio coordinates or one file per
            camera
--k4a       an Azure Kinect recording (mkv) per camera. Its color is in the depth camera's geometry,
            as in the frames; its calibration reflects this
--rgbd      a folder of images per camera: 16-bit depth in millimetres and aligned color (PNG) of a
            pinhole camera, with intrinsics, extrinsics and trajectory as Open3D and the TUM RGB-D
            benchmark define them
--foxglove  an MCAP file of foxglove.PointCloud and foxglove.FrameTransforms messages
--wav       the microphones' sound, mixed to stereo. It begins with the first frame

From 360° video, recorded or prepared, it makes one film of the whole sphere: each tile at the best
recorded quality, with sound and spherical metadata.

Existing files are kept: an export into a folder with an earlier one is refused. --force deletes the
earlier export first, and no other files.`,
		Example: `  holocast export demo.mcap --ply frames
  holocast export demo.mcap --ply frames --camera 0,2 --per-camera
  holocast export demo.mcap --k4a kinects --color bgra
  holocast export demo.mcap --rgbd images --camera 0
  holocast export demo.mcap --foxglove clouds.mcap --force
  holocast export demo.mcap --wav sound.wav
  holocast export tour.mcap --mp4 tour.mp4`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			return exportRecording(cmd.Context(), o, args[0], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.ply, "ply", "", "folder for PLY files")
	f.StringVar(&o.k4a, "k4a", "", "folder for Azure Kinect recordings")
	f.StringVar(&o.rgbd, "rgbd", "", "folder for RGB-D images")
	f.StringVar(&o.foxglove, "foxglove", "", "MCAP file for Foxglove's messages")
	f.StringVar(&o.mp4, "mp4", "", "file for a film of the whole sphere")
	f.StringVar(&o.wav, "wav", "", "WAV file for the sound of the microphones")
	f.BoolVar(&o.force, "force", false, "replace the files of an earlier export")
	f.BoolVar(&o.perCamera, "per-camera", false, "write separate PLY files per camera")
	f.StringVar(&o.color, "color", "mjpg", "color format of Azure Kinect recordings: mjpg, or bgra (exact, large)")
	f.IntSliceVar(&o.cameras, "camera", nil, "cameras to export, by number (default all)")
	f.StringVar(&o.quality, "quality", "", "quality of the tracks (default the best)")
	f.BoolVar(&o.json, "json", false, "print a summary as one JSON object, the last line of stdout")
	c.MarkFlagsOneRequired("ply", "k4a", "rgbd", "foxglove", "mp4", "wav")
	return c
}

func exportRecording(ctx context.Context, o exportOptions, path string, stdout io.Writer) error {
	format := camera.MJPG
	switch o.color {
	case "mjpg":
	case "bgra":
		format = camera.BGRA
	default:
		return fmt.Errorf("--color is %q, want mjpg or bgra", o.color)
	}
	if err := o.unused(path); err != nil {
		return err
	}
	sum := map[string]any{"file": path}
	if o.wav != "" {
		if err := exportSound(ctx, o, path, sum, stdout); err != nil {
			return err
		}
	}
	if o.mp4 != "" {
		if err := exportFilm(ctx, o, path, sum, stdout); err != nil {
			return err
		}
	}
	if o.ply == "" && o.k4a == "" && o.rgbd == "" && o.foxglove == "" {
		if o.json {
			return json.NewEncoder(stdout).Encode(sum)
		}
		return nil
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
	run := func(what, target string, f func(export.Config) (export.Result, error)) error {
		if target == "" {
			return nil
		}
		bar := newCountBar(what, int64(info.Records))
		began := time.Now()
		result, err := f(
			export.Config{
				Cameras:  o.cameras,
				Quality:  o.quality,
				Force:    o.force,
				Progress: func(n uint64) { bar.set(time.Since(began), int64(n)) },
			},
		)
		bar.end()
		if err != nil {
			return err
		}
		sum[what] = map[string]any{
			"folder": target, "files": len(result.Files), "frames": result.Frames,
			"partial": result.Partial, "damaged": result.Damaged, "late": result.Late,
		}
		if !o.json {
			fmt.Fprintf(stdout, "%s: %d frames in %d files", target, result.Frames, len(result.Files))
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
	if err := run("rgbd", o.rgbd, func(c export.Config) (export.Result, error) {
		return export.RGBD(ctx, path, o.rgbd, c)
	}); err != nil {
		return err
	}
	if err := run("foxglove", o.foxglove, func(c export.Config) (export.Result, error) {
		return export.Foxglove(ctx, path, o.foxglove, c)
	}); err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(stdout).Encode(sum)
	}
	return nil
}

// unused returns an error if any of the outputs already exists. Call it before writing one.
func (o exportOptions) unused(path string) error {
	for _, out := range []string{o.mp4, o.wav, o.foxglove} {
		if out != "" {
			if err := export.UnusedFile(path, out, o.force); err != nil {
				return err
			}
		}
	}
	if o.force {
		return nil
	}
	for _, x := range []struct {
		dir  string
		kind export.Kind
	}{{o.ply, export.PLYFiles}, {o.k4a, export.K4AFiles}, {o.rgbd, export.RGBDFiles}} {
		if x.dir != "" {
			if err := x.kind.Unused(x.dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func exportSound(ctx context.Context, o exportOptions, path string, sum map[string]any, stdout io.Writer) error {
	written, err := export.WAV(ctx, path, o.wav, export.Config{})
	if err != nil {
		return err
	}
	sum["wav"] = map[string]any{
		"file": o.wav, "seconds": written.Length.Seconds(), "concealed_ms": written.ConcealedMS, "refused": written.Refused,
	}
	if !o.json {
		fmt.Fprintf(stdout, "%s: %.1f s of sound", o.wav, written.Length.Seconds())
		if written.ConcealedMS > 0 {
			fmt.Fprintf(stdout, ", %.0f ms of it missing", written.ConcealedMS)
		}
		fmt.Fprintln(stdout)
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
