package livescanfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"holocast/capture-server/source"
	"holocast/internal/camera"
)

// posesFile holds the camera poses of a take, written by LiveScan3D's server when the take begins.
const posesFile = "Extrinsics_Open3D.log"

// takePose is one entry of a posesFile.
type takePose struct {
	serial string // "" if missing
	client int    // N of client_N
	pose   camera.Transform
}

// Poses reads the poses that LiveScan3D stored with the take in dir, one for each of the cameras
// that Open returned for dir. Each maps depth camera space to studio space. If no poses are stored,
// the error wraps [fs.ErrNotExist].
func Poses(dir string, cameras []source.Source) ([]camera.Transform, error) {
	path := filepath.Join(dir, posesFile)
	text, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) && len(cameras) == 1 { // dir may be one client's
		path = filepath.Join(filepath.Dir(filepath.Clean(dir)), posesFile)
		text, err = readFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("livescan: %w", err)
	}
	stored, err := parsePoses(text)
	if err != nil {
		return nil, fmt.Errorf("livescan: %s: %w", path, err)
	}
	poses := make([]camera.Transform, len(cameras))
	for i, c := range cameras {
		p, ok := c.(*player)
		if !ok {
			return nil, fmt.Errorf("livescan: %s is not a camera of a take", c.Name())
		}
		pose, err := p.storedPose(stored)
		if err != nil {
			return nil, fmt.Errorf("livescan: %s: %w", path, err)
		}
		// LiveScan3D's points, and thus its poses, are in the colour camera's space.
		poses[i] = pose.Compose(p.cal.DepthToColor)
	}
	return poses, nil
}

// storedPose finds a camera's pose by its client number, or by its serial number if its directory
// was renamed.
func (p *player) storedPose(stored []takePose) (camera.Transform, error) {
	client := clientNumber(p.name)
	for _, s := range stored {
		if client != s.client && (client >= 0 || p.cal.Serial == "" || p.cal.Serial != s.serial) {
			continue
		}
		if s.pose == camera.Identity {
			return s.pose, fmt.Errorf("camera %s was not calibrated", p.name)
		}
		return s.pose, nil
	}
	return camera.Transform{}, fmt.Errorf("no pose for camera %s", p.name)
}

// maxPoses bounds the entries of a posesFile; a client number is a byte.
const maxPoses = 256

// parsePoses parses entries that consist of a line "0, serial number, client number" and a
// row-major 4×4 matrix on one line or four. The matrix maps colour camera space to studio space, in
// metres.
func parsePoses(text []byte) ([]takePose, error) {
	var poses []takePose
	var matrix []float64 // points to the last of poses; nil before the next entry
	number := 0
	for line := range bytes.Lines(trimBOM(text)) {
		number++
		fields := strings.Fields(string(line))
		if len(fields) == 0 {
			continue
		}
		if matrix == nil {
			client, err := strconv.ParseUint(fields[len(fields)-1], 10, 8)
			if err != nil || len(fields) < 2 || len(fields) > 3 || len(poses) == maxPoses {
				return nil, fmt.Errorf("line %d: want 0, serial number and client number", number)
			}
			p := takePose{client: int(client)}
			if len(fields) == 3 { // the serial number may be empty
				p.serial = fields[1]
			}
			poses, matrix = append(poses, p), []float64{}
			continue
		}
		for _, f := range fields {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil || len(matrix) == 16 {
				return nil, fmt.Errorf("line %d: want the 16 numbers of a matrix", number)
			}
			matrix = append(matrix, v)
		}
		if len(matrix) < 16 {
			continue
		}
		pose := &poses[len(poses)-1].pose
		for i := range 3 {
			copy(pose.R[3*i:3*i+3], matrix[4*i:])
			pose.T[i] = 1000 * matrix[4*i+3]
		}
		if err := pose.Validate(); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		matrix = nil
	}
	if matrix != nil || len(poses) == 0 {
		return nil, fmt.Errorf("line %d: the file ends within a pose", number)
	}
	return poses, nil
}

// trimBOM removes the byte order mark that editors on Windows put before UTF-8 text.
func trimBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }
