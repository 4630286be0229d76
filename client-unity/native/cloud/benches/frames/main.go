// Command frames writes captured frames as objects for the decode benchmark, and prints Go's
// decoding time for each: median and minimum of many runs, in milliseconds.
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
)

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
	frame := frametest.Synthetic(1)
	if frames, err := frametest.Load(data, 1); err == nil {
		frame = frames[0]
	} else {
		fmt.Printf("no captured frames (%v): using the synthetic scene\n", err)
	}
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
