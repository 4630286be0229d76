package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holocast/internal/camera"
	"holocast/internal/prepared"
	"holocast/internal/recording"
	"holocast/internal/secureobjects"
	"holocast/internal/service"
	"holocast/tools/holocast/export"
)

type exportOptions struct {
	ply, k4a  string
	rgbd      string
	foxglove  string
	mp4       string
	wav       string
	png, glb  string
	force     bool
	perCamera bool
	mesh      bool
	view      viewOptions
	color     string
	cameras   []int
	quality   string
	json      bool
	key       string // key file
}

func exportCommand() *cobra.Command {
	var o exportOptions
	c := &cobra.Command{
		Use:   "export FILE.mcap|FOLDER",
		Short: "Turn a recording into files of other tools",
		Long: `Writes, from point clouds, any of these:

--ply       a PLY file per frame, with all cameras merged in studio coordinates or one file per
            camera. With --mesh it holds the surfaces' triangles
--glb       a frame's surfaces as glTF, a mesh per camera: metres, y up, vertex colors, normals
--png       a picture of a frame from any direction
--mp4       a film with sound whose viewer moves around the scene; with --at, around one frame
--k4a       an Azure Kinect recording (mkv) per camera. Its color is in the depth camera's geometry,
            as in the frames; its calibration reflects this
--rgbd      a folder of images per camera: 16-bit depth in millimetres and aligned color (PNG) of a
            pinhole camera, with intrinsics, extrinsics and trajectory as Open3D and the TUM RGB-D
            benchmark define them
--foxglove  an MCAP file of foxglove.PointCloud and foxglove.FrameTransforms messages
--wav       the microphones' sound, mixed to stereo. It begins with the first frame

--azimuth, --elevation, --distance and --target place the viewer of pictures and films. Azimuth 0 is
the studio's front: the viewer looks along its z axis, or against it if y points up. Layouts without
a grid have no surfaces and are drawn as points.

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
  holocast export demo.mcap --glb frame.glb --at 2s
  holocast export demo.mcap --png frame.png --azimuth 30 --elevation 10 --size 1920x1080
  holocast export demo.mcap --mp4 turntable.mp4 --turn 8s
  holocast export tour.mcap --mp4 tour.mp4`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.needs(cmd.Flags()); err != nil {
				return err
			}
			return exportRecording(cmd.Context(), o, args[0], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.ply, "ply", "", "folder for PLY files")
	f.StringVar(&o.k4a, "k4a", "", "folder for Azure Kinect recordings")
	f.StringVar(&o.rgbd, "rgbd", "", "folder for RGB-D images")
	f.StringVar(&o.foxglove, "foxglove", "", "MCAP file for Foxglove's messages")
	f.StringVar(&o.mp4, "mp4", "", "file for a film: a turntable, or of 360° video the whole sphere")
	f.StringVar(&o.png, "png", "", "PNG file for a picture of a frame")
	f.StringVar(&o.glb, "glb", "", "glTF binary (GLB) for a frame's surfaces")
	f.StringVar(&o.wav, "wav", "", "WAV file for the sound of the microphones")
	f.StringVar(&o.key, "e2e-key", "", secureobjects.KeyUsage)
	f.BoolVar(&o.force, "force", false, "replace the files of an earlier export")
	f.BoolVar(&o.perCamera, "per-camera", false, "write separate PLY files per camera")
	f.BoolVar(&o.mesh, "mesh", false, "write triangles into PLY files, of layouts A and W")
	o.view.addFlags(f)
	f.StringVar(&o.color, "color", "mjpg", "color format of Azure Kinect recordings: mjpg, or bgra (exact, large)")
	f.IntSliceVar(&o.cameras, "camera", nil, "cameras to export, by number (default all)")
	f.StringVar(&o.quality, "quality", "", "quality of the tracks (default the best)")
	f.BoolVar(&o.json, "json", false, "print a summary as one JSON object, the last line of stdout")
	c.MarkFlagsOneRequired("ply", "k4a", "rgbd", "foxglove", "mp4", "wav", "png", "glb")
	return c
}

// needs returns an error if a flag is given without an output to which it applies.
func (o *exportOptions) needs(f *pflag.FlagSet) error {
	for _, x := range []struct{ flags, outputs []string }{
		{viewFlags, []string{"png", "mp4"}},
		{filmFlags, []string{"mp4"}},
		{[]string{"at"}, []string{"png", "glb", "mp4"}},
		{[]string{"mesh", "per-camera"}, []string{"ply"}},
		{[]string{"color"}, []string{"k4a"}},
	} {
		for _, flag := range x.flags {
			if f.Changed(flag) && !slices.ContainsFunc(x.outputs, f.Changed) {
				return fmt.Errorf("--%s needs --%s", flag, strings.Join(x.outputs, " or --"))
			}
		}
	}
	o.view.still = f.Changed("at")
	for _, flag := range slices.Concat(viewFlags, filmFlags, []string{"at"}) {
		if f.Changed(flag) {
			o.view.given = flag
		}
	}
	return nil
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
	view, err := o.view.view(o.mp4 != "")
	if err != nil {
		return err
	}
	if prepared.IsFolder(path) && o.ply+o.k4a+o.rgbd+o.foxglove+o.wav+o.png+o.glb != "" {
		return fmt.Errorf("%s is prepared 360° video and has no point clouds; export it with --mp4 only", path)
	}
	if err := o.unused(path); err != nil {
		return err
	}
	sum := map[string]any{"file": path}
	path, refused, remove, err := o.decrypt(ctx, path)
	if err != nil {
		return err
	}
	defer remove()
	if refused > 0 {
		sum["refused"] = refused
	}
	if o.wav != "" {
		if err := exportSound(ctx, o, path, sum, stdout); err != nil {
			return err
		}
	}
	if o.mp4 != "" {
		if err := exportFilm(ctx, o, view, path, sum, stdout); err != nil {
			return err
		}
	}
	if err := exportStills(ctx, o, view, path, sum, stdout); err != nil {
		return err
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
				Faces:    o.mesh,
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

// decrypt returns the recording to export: a decrypted copy, if it is encrypted, without the objects
// that were refused.
func (o exportOptions) decrypt(ctx context.Context, path string) (
	plain string, refused uint64, remove func(), err error,
) {
	keys, err := keysOf(o.key)
	if err != nil || prepared.IsFolder(path) || !export.Encrypted(path) {
		return path, 0, func() {}, err
	}
	if keys == nil {
		return "", 0, nil, errors.New("the recording is encrypted: give its key with --e2e-key FILE or $" +
			secureobjects.KeyVariable)
	}
	plain, stats, remove, err := export.Decrypt(ctx, path, keys)
	if n := stats.Total(); n > 0 && err == nil {
		fmt.Fprintf(os.Stderr, "holocast: %s: %d objects were refused: %v\n", path, n, stats.Map())
	}
	return plain, stats.Total(), remove, err
}

// unused returns an error if any of the outputs already exists, or two are one file. Call it before writing one.
func (o exportOptions) unused(path string) error {
	var files []string
	for _, out := range []string{o.mp4, o.wav, o.foxglove, o.png, o.glb} {
		if out == "" {
			continue
		}
		if err := export.UnusedFile(path, out, o.force); err != nil {
			return err
		}
		if out = filepath.Clean(out); slices.Contains(files, out) {
			return fmt.Errorf("two outputs are called %s", out)
		}
		files = append(files, out)
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

// config returns the common settings of an export with a progress bar.
func (o exportOptions) config(b *bar) export.Config {
	began := time.Now()
	return export.Config{
		Cameras: o.cameras, Quality: o.quality, Force: o.force,
		Progress: func(n uint64) { b.set(time.Since(began), int64(n)) },
	}
}

// exportFilm makes a film of the sphere or a turntable of point clouds.
func exportFilm(
	ctx context.Context, o exportOptions, v export.View, path string, sum map[string]any, stdout io.Writer,
) error {
	clouds := export.HasClouds(path)
	if o.view.given != "" && !clouds {
		if _, err := os.Stat(path); err != nil {
			return err
		}
		return fmt.Errorf("--%s: %s has no point clouds; a film of 360° video shows the whole sphere", o.view.given, path)
	}
	bar := newCountBar("mp4", 1000)
	var film export.Film
	var err error
	if clouds {
		film, err = export.Turntable(ctx, path, o.mp4, o.view.turning(v), o.config(bar))
	} else {
		film, err = export.MP4(ctx, path, o.mp4, o.config(bar))
	}
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

// exportStills writes files of one frame.
func exportStills(
	ctx context.Context, o exportOptions, v export.View, path string, sum map[string]any, stdout io.Writer,
) error {
	write := func(what, out string, f func(cfg export.Config) (export.Still, error)) error {
		if out == "" {
			return nil
		}
		bar := newCountBar(what, -1)
		still, err := f(o.config(bar))
		bar.end()
		if err != nil {
			return err
		}
		sum[what] = map[string]any{"file": out, "at_s": still.At.Seconds(), "cameras": still.Cameras}
		if !o.json {
			fmt.Fprintf(stdout, "%s: the frame at %.3f s, %d cameras\n", out, still.At.Seconds(), still.Cameras)
		}
		return nil
	}
	if err := write("png", o.png, func(c export.Config) (export.Still, error) {
		return export.PNG(ctx, path, o.png, o.view.frame(), v, c)
	}); err != nil {
		return err
	}
	return write("glb", o.glb, func(c export.Config) (export.Still, error) {
		return export.GLB(ctx, path, o.glb, o.view.frame(), c)
	})
}
