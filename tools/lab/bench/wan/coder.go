package wan

import (
	"errors"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// coder codes one camera's frames. Both ends see all frames in order.
type coder interface {
	// encode appends a frame to dst.
	encode(dst []byte, g *pointcloud.Grid) ([]byte, error)
	decode(g *pointcloud.Grid, object []byte) error
	close()
}

// frameCoder codes frames losslessly in a layout of the point-cloud frame.
type frameCoder struct {
	layout  pointcloud.Layout
	rays    *camera.RayTable
	encoder *pointcloud.Encoder
	decoder *pointcloud.Decoder
	from    pointcloud.Frame
	to      pointcloud.Frame
	mask    []bool // pixels of the newest frame with a point
}

// newFrameCoder returns a coder of a layout at a zstd level; 0 is the layout's own.
func newFrameCoder(l pointcloud.Layout, level int, rays *camera.RayTable) (coder, error) {
	e, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{Level: level})
	if err != nil {
		return nil, err
	}
	d, err := pointcloud.NewDecoder()
	if err != nil {
		e.Close()
		return nil, err
	}
	return &frameCoder{layout: l, rays: rays, encoder: e, decoder: d}, nil
}

func (c *frameCoder) encode(dst []byte, g *pointcloud.Grid) ([]byte, error) {
	c.from.SetGrid(c.layout, g, c.rays)
	c.mask = append(c.mask[:0], make([]bool, len(g.Depth))...)
	for i, d := range g.Depth {
		c.mask[i] = d != 0 && !isNaN(c.rays.X[i])
	}
	return c.encoder.Encode(dst, pointcloud.Header{Descriptions: 1}, &c.from, 0)
}

var errPoints = errors.New("the decoded cloud has other points than the encoded one")

// decode returns the points of a layout without a grid to the pixels that they came from.
func (c *frameCoder) decode(g *pointcloud.Grid, object []byte) error {
	if _, err := c.decoder.Decode(&c.to, object); err != nil {
		return err
	}
	if c.layout.OnGrid() {
		*g = c.to.Grid
		return nil
	}
	blank(g, c.rays.Width, c.rays.Height)
	p, n := c.to.Points, 0
	for i, here := range c.mask {
		if !here {
			continue
		}
		if 3*n+3 > len(p.XYZ) {
			return errPoints
		}
		g.Depth[i] = uint16(p.XYZ[3*n+2])
		copy(g.Color[3*i:3*i+3], p.RGB[3*n:])
		n++
	}
	if 3*n != len(p.XYZ) {
		return errPoints
	}
	return nil
}

func (c *frameCoder) close() {
	c.encoder.Close()
	c.decoder.Close()
}

// blank makes g a grid without points.
func blank(g *pointcloud.Grid, width, height int) {
	g.Width, g.Height = width, height
	g.Depth = append(g.Depth[:0], make([]uint16, width*height)...)
	g.Color = append(g.Color[:0], make([]byte, 3*width*height)...)
}
