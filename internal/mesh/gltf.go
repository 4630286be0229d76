package mesh

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"holocast/internal/srgb"
)

// glTF 2.0 (https://registry.khronos.org/glTF/specs/2.0/glTF-2.0.html), sections 3.6, 3.7, 3.9 and 4.4.
const (
	glbMagic      = 0x46546c67
	glbVersion    = 2
	chunkJSON     = 0x4e4f534a
	chunkBIN      = 0x004e4942
	arrayBuffer   = 34962
	elementBuffer = 34963
	typeUint16    = 5123
	typeUint32    = 5125
	typeFloat     = 5126
	unlit         = "KHR_materials_unlit"
)

type object = map[string]any

// WriteGLB writes meshes as the nodes of a glTF 2.0 binary: metres, y up, positions, normals, indices, and vertex
// colors, which glTF defines as linear. The material is unlit, since cameras capture lit surfaces. The meshes' y axis
// must point up. Meshes without triangles are left out; if none remains, it returns ErrEmpty.
func WriteGLB(w io.Writer, meshes ...*Mesh) error {
	g := glb{nodes: []object{}, meshes: []object{}, views: []object{}, accessors: []object{}}
	for _, m := range meshes {
		if err := m.Check(); err != nil {
			return err
		}
		if len(m.Triangles) > 0 {
			g.add(m)
		}
	}
	if len(g.nodes) == 0 {
		return ErrEmpty
	}
	out := bufio.NewWriterSize(w, 1<<16)
	err := g.write(out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("glTF: %w", err)
	}
	return nil
}

// ErrEmpty is returned if there is no triangle to write.
var ErrEmpty = errors.New("no surface: the frame has no neighboring readings")

// glb collects the parts of a file.
type glb struct {
	nodes, meshes, views, accessors []object
	source                          []*Mesh
	size                            int // of the binary chunk
}

func (g *glb) add(m *Mesh) {
	n := len(m.XYZ) / 3
	low, high := bounds(m.XYZ)
	first := len(g.accessors)
	g.part(12*n, arrayBuffer, object{"componentType": typeFloat, "count": n, "type": "VEC3", "min": low, "max": high})
	g.part(12*n, arrayBuffer, object{"componentType": typeFloat, "count": n, "type": "VEC3"})
	g.part(8*n, arrayBuffer, object{"componentType": typeUint16, "count": n, "type": "VEC4", "normalized": true})
	g.part(4*len(m.Triangles), elementBuffer,
		object{"componentType": typeUint32, "count": len(m.Triangles), "type": "SCALAR"})
	g.nodes = append(g.nodes, object{"name": m.Name, "mesh": len(g.meshes)})
	g.meshes = append(g.meshes, object{"name": m.Name, "primitives": []object{{
		"attributes": object{"POSITION": first, "NORMAL": first + 1, "COLOR_0": first + 2},
		"indices":    first + 3, "material": 0,
	}}})
	g.source = append(g.source, m)
}

// part adds a buffer view of the given size with an accessor.
func (g *glb) part(size, target int, accessor object) {
	accessor["bufferView"] = len(g.views)
	g.accessors = append(g.accessors, accessor)
	g.views = append(g.views, object{"buffer": 0, "byteOffset": g.size, "byteLength": size, "target": target})
	g.size += size
}

// bounds returns the least and greatest coordinates in metres, as written.
func bounds(xyz []float32) (low, high [3]float32) {
	for k := range 3 {
		low[k], high[k] = metres(xyz[k]), metres(xyz[k])
	}
	for i, v := range xyz {
		low[i%3], high[i%3] = min(low[i%3], metres(v)), max(high[i%3], metres(v))
	}
	return low, high
}

func metres(mm float32) float32 { return mm / 1000 }

func (g *glb) write(w io.Writer) error {
	all := make([]int, len(g.nodes))
	for i := range all {
		all[i] = i
	}
	doc, err := json.Marshal(object{
		"asset": object{"version": "2.0", "generator": "Holocast"}, "extensionsUsed": []string{unlit},
		"scene": 0, "scenes": []object{{"nodes": all}}, "nodes": g.nodes, "meshes": g.meshes,
		"materials": []object{{
			"name":                 "captured",
			"pbrMetallicRoughness": object{"metallicFactor": 0, "roughnessFactor": 1},
			"extensions":           object{unlit: object{}},
		}},
		"buffers": []object{{"byteLength": g.size}}, "bufferViews": g.views, "accessors": g.accessors,
	})
	if err != nil {
		return err
	}
	for len(doc)%4 != 0 {
		doc = append(doc, ' ')
	}
	total := 12 + 8 + len(doc) + 8 + g.size
	if total > math.MaxUint32 {
		return fmt.Errorf("%d bytes exceed a GLB file's 4 GiB", total)
	}
	le := binary.LittleEndian
	var head []byte
	for _, v := range []int{glbMagic, glbVersion, total, len(doc), chunkJSON} {
		head = le.AppendUint32(head, uint32(v)) //nolint:gosec // bounded by total
	}
	head = append(head, doc...)
	head = le.AppendUint32(head, uint32(g.size)) //nolint:gosec // bounded by total
	head = le.AppendUint32(head, chunkBIN)
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, m := range g.source {
		if err := m.writeBuffer(w); err != nil {
			return err
		}
	}
	return nil
}

// writeBuffer writes positions, normals, colors and indices.
func (m *Mesh) writeBuffer(w io.Writer) error {
	le := binary.LittleEndian
	b := make([]byte, 0, 1<<16)
	var err error
	flush := func(need int) {
		if len(b)+need > cap(b) && err == nil {
			_, err = w.Write(b)
			b = b[:0]
		}
	}
	for _, v := range m.XYZ {
		flush(4)
		b = le.AppendUint32(b, math.Float32bits(metres(v)))
	}
	for _, v := range m.Normals {
		flush(4)
		b = le.AppendUint32(b, math.Float32bits(v))
	}
	linear := linearTable()
	for i := 0; i < len(m.RGB); i += 3 {
		flush(8)
		for _, c := range m.RGB[i : i+3] {
			b = le.AppendUint16(b, linear[c])
		}
		b = le.AppendUint16(b, math.MaxUint16) // opaque
	}
	for _, v := range m.Triangles {
		flush(4)
		b = le.AppendUint32(b, v)
	}
	flush(cap(b) + 1)
	return err
}

// linearTable maps sRGB values to linear ones of 16 bits.
func linearTable() (t [256]uint16) {
	for i := range t {
		t[i] = uint16(math.Round(srgb.Linear(float64(i)/255) * math.MaxUint16))
	}
	return t
}
