// Package realframes provides camera frames for benchmarks.
package realframes

import (
	"errors"
	"io/fs"

	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
)

// Load encodes the cameras' frames below dataDir (HOLOCAST_DATA), or a synthetic scene if there are
// none, in layout A as one description. source names the frames for a report.
func Load(dataDir string) (source string, frames [][]byte, err error) {
	source = "Frames of an Azure Kinect (NFOV unbinned; LiveScan3D test data)"
	clouds, err := frametest.Load(dataDir, 0)
	if errors.Is(err, fs.ErrNotExist) {
		source, clouds = "Frames of a synthetic scene (HOLOCAST_DATA was not found)",
			[]frametest.Frame{frametest.Synthetic(1), frametest.Synthetic(2)}
	} else if err != nil {
		return "", nil, err
	}
	e, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		return "", nil, err
	}
	defer e.Close()
	for i := range clouds {
		frame, err := e.Encode(nil, pointcloud.Header{Descriptions: 1}, clouds[i].NFOV.Frame(pointcloud.LayoutGrid), 0)
		if err != nil {
			return "", nil, err
		}
		frames = append(frames, frame)
	}
	return source, frames, nil
}
