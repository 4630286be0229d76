// Package mesh holds triangle meshes and writes them as glTF.
package mesh

import (
	"fmt"
	"math"
)

// Mesh is a triangle mesh with a color and a normal per vertex.
type Mesh struct {
	Name      string
	XYZ       []float32 // 3×n, millimetres
	Normals   []float32 // 3×n, of length 1
	RGB       []byte    // 3×n, sRGB
	Triangles []uint32  // 3×m vertex numbers, counter-clockwise from the front
}

// Check returns an error if the mesh is inconsistent.
func (m *Mesh) Check() error {
	n := len(m.XYZ)
	if n%3 != 0 || len(m.Normals) != n || len(m.RGB) != n || len(m.Triangles)%3 != 0 {
		return fmt.Errorf("mesh: %d coordinates, %d of normals, %d color values and %d corners do not form triangles",
			n, len(m.Normals), len(m.RGB), len(m.Triangles))
	}
	for _, v := range m.Triangles {
		if int(v) >= n/3 {
			return fmt.Errorf("mesh: a triangle has vertex %d of %d", v, n/3)
		}
	}
	for i, v := range m.XYZ {
		if f := float64(v) + float64(m.Normals[i]); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("mesh: vertex %d is not finite", i/3)
		}
	}
	return nil
}

// Append adds another mesh's vertices and triangles.
func (m *Mesh) Append(other *Mesh) {
	base := uint32(len(m.XYZ) / 3)
	m.XYZ, m.Normals = append(m.XYZ, other.XYZ...), append(m.Normals, other.Normals...)
	m.RGB = append(m.RGB, other.RGB...)
	for _, v := range other.Triangles {
		m.Triangles = append(m.Triangles, base+v)
	}
}

// FlipYZ turns the mesh by 180° about the x axis, from y down to y up.
func (m *Mesh) FlipYZ() {
	for i := range m.XYZ {
		if i%3 != 0 {
			m.XYZ[i], m.Normals[i] = -m.XYZ[i], -m.Normals[i]
		}
	}
}
