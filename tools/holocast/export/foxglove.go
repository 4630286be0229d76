package export

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/foxglove/mcap/go/mcap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// The coordinate frames of an export: the session, and each camera.
const foxgloveRoot = "session"

func foxgloveFrame(number int) string { return fmt.Sprintf("camera-%d", number) }

// Foxglove writes an MCAP file with two kinds of channels in Protocol Buffers. /camera-0/points and
// so on carry foxglove.PointCloud in the camera's coordinates, in metres. /tf carries
// foxglove.FrameTransforms with the cameras' poses at the start and after each change. Timestamps
// are capture times on the relay's clock.
func Foxglove(ctx context.Context, path, out string, cfg Config) (result Result, err error) {
	if err := UnusedFile(path, out, cfg.Force); err != nil {
		return Result{}, err
	}
	x, err := open(path, cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = x.close() }() // read-only
	err = create(out, func(f *os.File) error { return x.foxglove(ctx, f) })
	x.result.Files = []string{out}
	return x.result, err
}

func (x *reader) foxglove(ctx context.Context, f *os.File) error {
	w, err := mcap.NewWriter(f, &mcap.WriterOptions{
		Chunked: true, ChunkSize: 4 << 20, Compression: mcap.CompressionZSTD, IncludeCRC: true,
	})
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&mcap.Header{Library: "holocast"}); err != nil {
		return err
	}
	for i, name := range []string{"PointCloud", "FrameTransforms"} {
		set, err := proto.Marshal(foxgloveSchema(name))
		if err != nil {
			return err
		}
		if err := w.WriteSchema(&mcap.Schema{
			ID: uint16(i + 1), Name: "foxglove." + name, Encoding: "protobuf", Data: set,
		}); err != nil {
			return err
		}
	}
	channel := func(id uint16, schema uint16, topic string) error {
		return w.WriteChannel(&mcap.Channel{ID: id, SchemaID: schema, Topic: topic, MessageEncoding: "protobuf"})
	}
	if err := channel(0, 2, "/tf"); err != nil {
		return err
	}
	channels := map[*stream]uint16{}
	for i, s := range x.chosen {
		channels[s] = uint16(i + 1)
		if err := channel(channels[s], 1, "/"+foxgloveFrame(s.number)+"/points"); err != nil {
			return err
		}
	}
	poses := map[*stream]camera.Transform{}
	sequences := map[uint16]uint32{}
	message := func(channel uint16, at uint64, data []byte) error {
		ns := min(at, math.MaxInt64/1000) * 1000
		sequences[channel]++
		return w.WriteMessage(&mcap.Message{
			ChannelID: channel, Sequence: sequences[channel], LogTime: ns, PublishTime: ns, Data: data,
		})
	}
	err = x.frames(ctx, func(s *stream, f *frame) error {
		h, err := s.decode(f)
		if err != nil {
			x.damaged(s, f, err)
			return nil
		}
		if pose := s.pose(h.CaptureTime); poses[s] != pose {
			poses[s] = pose
			if err := message(0, h.CaptureTime, frameTransforms(h.CaptureTime, s.number, pose)); err != nil {
				return err
			}
		}
		points := s.frame.Points
		if s.frame.Layout.OnGrid() {
			points = s.frame.Grid.Transform(&s.rays, camera.Identity)
		}
		x.result.Frames++
		return message(channels[s], h.CaptureTime, pointCloud(h.CaptureTime, s.number, points))
	})
	return errors.Join(err, w.Close())
}

// Messages of https://docs.foxglove.dev/docs/sdk/schemas, written with protowire: a field's number,
// then its value.

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return appendMessage(b, field, []byte(s))
}

func doubles(values ...float64) (b []byte) {
	for i, v := range values {
		b = protowire.AppendTag(b, protowire.Number(i+1), protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(v))
	}
	return b
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendFixed32(b []byte, field protowire.Number, v uint32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(b, field, protowire.Fixed32Type), v)
}

// timestamp returns a google.protobuf.Timestamp for a time in µs since 1970.
func timestamp(at uint64) []byte {
	return appendVarint(appendVarint(nil, 1, at/1e6), 2, at%1e6*1000)
}

func frameTransforms(at uint64, number int, pose camera.Transform) []byte {
	q := pose.Quaternion()
	t := appendMessage(nil, 1, timestamp(at))
	t = appendText(t, 2, foxgloveRoot)
	t = appendText(t, 3, foxgloveFrame(number))
	t = appendMessage(t, 4, doubles(pose.T[0]/1000, pose.T[1]/1000, pose.T[2]/1000))
	t = appendMessage(t, 5, doubles(q.X, q.Y, q.Z, q.W))
	return appendMessage(nil, 1, t)
}

// Numeric types of foxglove.PackedElementField.
const (
	numericUint8   = 1
	numericFloat32 = 7
)

// pointStride is the size of a point in bytes: x, y and z, then red, green, blue and alpha.
const pointStride = 3*4 + 4

func pointCloud(at uint64, number int, p pointcloud.Points) []byte {
	m := appendMessage(nil, 1, timestamp(at))
	m = appendText(m, 2, foxgloveFrame(number))
	identity := appendMessage(nil, 1, doubles(0, 0, 0))
	m = appendMessage(m, 3, appendMessage(identity, 2, doubles(0, 0, 0, 1)))
	m = appendFixed32(m, 4, pointStride)
	for i, name := range []string{"x", "y", "z", "red", "green", "blue", "alpha"} {
		offset, numeric := uint32(4*i), uint64(numericFloat32)
		if i >= 3 {
			offset, numeric = uint32(9+i), numericUint8
		}
		m = appendMessage(m, 5, appendVarint(appendFixed32(appendText(nil, 1, name), 2, offset), 3, numeric))
	}
	m = protowire.AppendTag(m, 6, protowire.BytesType)
	m = protowire.AppendVarint(m, uint64(len(p.XYZ)/3*pointStride))
	for i := 0; i < len(p.XYZ); i += 3 {
		for j := range 3 {
			m = binary.LittleEndian.AppendUint32(m, math.Float32bits(float32(p.XYZ[i+j])/1000))
		}
		m = append(m, p.RGB[i], p.RGB[i+1], p.RGB[i+2], 255)
	}
	return m
}

// foxgloveTypes are the message types used, with fields as "name=number:type"; * marks repeated
// fields.
var foxgloveTypes = map[string]string{
	"PointCloud": "timestamp=1:google.protobuf.Timestamp frame_id=2:string pose=3:foxglove.Pose " +
		"point_stride=4:fixed32 fields=5:*foxglove.PackedElementField data=6:bytes",
	"Pose":               "position=1:foxglove.Vector3 orientation=2:foxglove.Quaternion",
	"Vector3":            "x=1:double y=2:double z=3:double",
	"Quaternion":         "x=1:double y=2:double z=3:double w=4:double",
	"PackedElementField": "name=1:string offset=2:fixed32 type=3:enum",
	"FrameTransforms":    "transforms=1:*foxglove.FrameTransform",
	"FrameTransform": "timestamp=1:google.protobuf.Timestamp parent_frame_id=2:string child_frame_id=3:string " +
		"translation=4:foxglove.Vector3 rotation=5:foxglove.Quaternion",
}

// foxgloveSchema returns the descriptor of a message type with its dependencies.
func foxgloveSchema(name string) *descriptorpb.FileDescriptorSet {
	scalars := map[string]descriptorpb.FieldDescriptorProto_Type{
		"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
		"double": descriptorpb.FieldDescriptorProto_TYPE_DOUBLE, "fixed32": descriptorpb.FieldDescriptorProto_TYPE_FIXED32,
		"int32": descriptorpb.FieldDescriptorProto_TYPE_INT32, "int64": descriptorpb.FieldDescriptorProto_TYPE_INT64,
	}
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	file := func(path string) string { return strings.ReplaceAll(path, ".", "/") + ".proto" }
	var add func(pkg, name, fields string)
	add = func(pkg, name, fields string) {
		path := file(pkg + "." + name)
		if pkg == "google.protobuf" {
			path = "google/protobuf/timestamp.proto"
		}
		if seen[path] {
			return
		}
		seen[path] = true
		f := &descriptorpb.FileDescriptorProto{Name: &path, Package: &pkg, Syntax: proto.String("proto3")}
		m := &descriptorpb.DescriptorProto{Name: &name}
		f.MessageType = append(f.MessageType, m)
		for text := range strings.FieldsSeq(fields) {
			field := &descriptorpb.FieldDescriptorProto{Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
			key, kind, _ := strings.Cut(text, ":")
			fieldName, number, _ := strings.Cut(key, "=")
			field.Name, field.Number = &fieldName, proto.Int32(int32(number[0]-'0'))
			if rest, ok := strings.CutPrefix(kind, "*"); ok {
				kind, field.Label = rest, descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			}
			switch scalar, ok := scalars[kind]; {
			case ok:
				field.Type = scalar.Enum()
			case kind == "enum":
				field.Type = descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum()
				field.TypeName = proto.String("." + pkg + "." + name + ".NumericType")
				enum := &descriptorpb.EnumDescriptorProto{Name: proto.String("NumericType")}
				for i, value := range []string{
					"UNKNOWN", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "FLOAT32", "FLOAT64",
				} {
					enum.Value = append(enum.Value, &descriptorpb.EnumValueDescriptorProto{
						Name: &value, Number: proto.Int32(int32(i)),
					})
				}
				m.EnumType = append(m.EnumType, enum)
			default:
				field.Type, field.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String("."+kind)
				dependency := kind[strings.LastIndex(kind, ".")+1:]
				if kind == "google.protobuf.Timestamp" {
					add("google.protobuf", dependency, "seconds=1:int64 nanos=2:int32")
					f.Dependency = append(f.Dependency, "google/protobuf/timestamp.proto")
				} else {
					add("foxglove", dependency, foxgloveTypes[dependency])
					f.Dependency = append(f.Dependency, file(kind))
				}
			}
			m.Field = append(m.Field, field)
		}
		set.File = append(set.File, f) // after its dependencies
	}
	add("foxglove", name, foxgloveTypes[name])
	return set
}
