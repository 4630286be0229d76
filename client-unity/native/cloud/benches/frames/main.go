// Command frames writes captured frames as objects for the decode benchmarks, including a group in
// layout W. It prints Go's decoding time for each: median and minimum of many runs, in milliseconds.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
	"holocast/internal/pointvideo"
)

// groupFrames is the length of the group in layout W.
const groupFrames = 10

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: frames DIRECTORY")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(dir string) error {
	data := os.Getenv("HOLOCAST_DATA")
	if data == "" {
		data = "../shared/data"
	}
	frames, err := frametest.Load(data, groupFrames)
	if err != nil {
		fmt.Printf("no captured frames (%v): using the synthetic scene\n", err)
		frames = []frametest.Frame{frametest.Synthetic(1), frametest.Synthetic(2)}
	}
	// The first camera's come first.
	if err := video(dir, frames[:min(groupFrames, len(frames))]); err != nil {
		return err
	}
	frame := frames[0]
	e, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		return err
	}
	defer e.Close()
	d, err := pointcloud.NewDecoder()
	if err != nil {
		return err
	}
	defer d.Close()
	for _, c := range []struct {
		name   string
		cloud  *frametest.Cloud
		layout pointcloud.Layout
	}{
		{"nfov-a", &frame.NFOV, pointcloud.LayoutGrid},
		{"nfov-b", &frame.NFOV, pointcloud.LayoutPoints},
		{"nfov-c", &frame.NFOV, pointcloud.LayoutInterleaved},
		{"fhd-a", &frame.FHD, pointcloud.LayoutGrid},
	} {
		in := pointcloud.Frame{Layout: c.layout, Grid: c.cloud.Grid, Points: c.cloud.Points}
		object, err := e.Encode(nil, pointcloud.Header{}, &in, 0)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, c.name+".hcpf"), object, 0o644); err != nil {
			return err
		}
		var out pointcloud.Frame
		times := make([]float64, 0, 200)
		for len(times) < cap(times) {
			began := time.Now()
			if _, err := d.Decode(&out, object); err != nil {
				return err
			}
			times = append(times, time.Since(began).Seconds()*1e3)
		}
		slices.Sort(times)
		fmt.Printf("go    %-7s %8d points  p50 %.2f ms  min %.2f ms\n",
			c.name, len(c.cloud.Points.XYZ)/3, times[len(times)/2], times[0])
	}
	return nil
}

// video encodes a group in layout W, and decodes it where libopenh264 is installed.
func video(dir string, frames []frametest.Frame) error {
	g := &frames[0].NFOV.Grid
	e, err := pointvideo.NewEncoder(pointvideo.Config{Width: g.Width, Height: g.Height})
	if err != nil {
		return err
	}
	defer e.Close()
	d, err := pointvideo.NewDecoder()
	if err == nil {
		defer d.Close()
	} else {
		fmt.Println(err)
	}
	var out pointcloud.Grid
	times := make([]float64, 0, groupFrames)
	for i := range groupFrames {
		object, err := e.Encode(nil, pointcloud.Header{}, &frames[i%len(frames)].NFOV.Grid, i == 0)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("nfov-w%02d.hcpf", i)), object, 0o644); err != nil {
			return err
		}
		if d == nil {
			continue
		}
		began := time.Now()
		if _, err := d.Decode(&out, object); err != nil {
			return err
		}
		times = append(times, time.Since(began).Seconds()*1e3)
	}
	if slices.Sort(times); d != nil {
		fmt.Printf("go    nfov-w  %8d points  p50 %.2f ms  min %.2f ms\n", len(frames[0].NFOV.Points.XYZ)/3,
			times[len(times)/2], times[0])
	}
	return nil
}
