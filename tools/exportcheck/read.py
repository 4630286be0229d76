"""Prints the contents of exports as other programs read them, one JSON object, for exportcheck_test.go.

read.py rgbd FOLDER…     Cameras' RGB-D images, by Open3D.
read.py foxglove FILE    An MCAP file, by Foxglove's reader and message types.
read.py meshes FILE…     Meshes in glTF or PLY files, by Open3D and trimesh.
"""

import glob
import json
import sys
import types

import numpy as np


def summary(points):
    return {"points": len(points), "mean": points.mean(axis=0).tolist()}


def import_open3d():
    # Its viewers need packages that are not installed.
    sys.modules["open3d.visualization"] = types.ModuleType("open3d.visualization")
    import open3d

    return open3d


def rgbd(*folders):
    o3d = import_open3d()
    return [camera(o3d, folder) for folder in folders]


def camera(o3d, folder):
    intrinsic = o3d.io.read_pinhole_camera_intrinsic(folder + "/intrinsic.json")
    log = o3d.io.read_pinhole_camera_trajectory(folder + "/trajectory.log").parameters
    trajectory = o3d.io.read_pinhole_camera_trajectory(folder + "/trajectory.json").parameters
    frames = []
    for i, (depth, color) in enumerate(
        zip(sorted(glob.glob(folder + "/depth/*")), sorted(glob.glob(folder + "/color/*")), strict=True)
    ):
        image = o3d.geometry.RGBDImage.create_from_color_and_depth(
            o3d.io.read_image(color),
            o3d.io.read_image(depth),
            depth_scale=1000.0,
            depth_trunc=100.0,
            convert_rgb_to_intensity=False,
        )
        cloud = o3d.geometry.PointCloud.create_from_rgbd_image(image, intrinsic, trajectory[i].extrinsic)
        frames.append(summary(np.asarray(cloud.points)) | {"color": np.asarray(cloud.colors).mean(axis=0).tolist()})
    return {
        "width": intrinsic.width,
        "focal": list(intrinsic.get_focal_length()),
        "same": all(np.allclose(a.extrinsic, b.extrinsic) for a, b in zip(log, trajectory, strict=True)),
        "frames": frames,
    }


def fields(d):
    """Returns a message type's fields as text, including nested types."""
    out = []
    for f in d.fields:
        inner = f.message_type or f.enum_type
        out.append(f"{d.full_name}.{f.name}={f.number}:{f.type} {f.is_repeated} {inner.full_name if inner else ''}")
        if f.message_type:
            out += fields(f.message_type)
        if f.enum_type:
            out += [f"{v.name}={v.number}" for v in f.enum_type.values]
    return out


def foxglove(path):
    from foxglove_schemas_protobuf import FrameTransforms_pb2, PointCloud_pb2
    from google.protobuf import descriptor_pb2, descriptor_pool
    from mcap.reader import make_reader

    kinds = {
        "foxglove.PointCloud": PointCloud_pb2.PointCloud,
        "foxglove.FrameTransforms": FrameTransforms_pb2.FrameTransforms,
    }
    result = {"same": True, "clouds": {}, "transforms": []}
    with open(path, "rb") as f:
        for schema, channel, message in make_reader(f, validate_crcs=True).iter_messages():
            kind = kinds[schema.name]
            pool = descriptor_pool.DescriptorPool()
            for file in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file:
                pool.Add(file)
            result["same"] &= fields(pool.FindMessageTypeByName(schema.name)) == fields(kind.DESCRIPTOR)
            m = kind.FromString(message.data)
            if schema.name == "foxglove.FrameTransforms":
                result["transforms"] += [[t.parent_frame_id, t.child_frame_id, t.translation.x] for t in m.transforms]
                continue
            result["same"] &= m.timestamp.ToNanoseconds() == message.log_time
            types = {1: "u1", 7: "<f4"}
            layout = np.dtype(
                {
                    "names": [x.name for x in m.fields],
                    "formats": [types[x.type] for x in m.fields],
                    "offsets": [x.offset for x in m.fields],
                    "itemsize": m.point_stride,
                }
            )
            points = np.frombuffer(m.data, layout)
            xyz = np.stack([points["x"], points["y"], points["z"]], axis=1).astype(float)
            result["clouds"].setdefault(channel.topic, []).append(
                summary(xyz) | {"color": [points[c].mean() / 255 for c in ("red", "green", "blue")]}
            )
    return result


def mesh(vertices, triangles, normals, colors):
    """Summarizes a mesh. facing is the share of triangles, wound counter-clockwise, on their normals' side."""
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    front = np.cross(b - a, c - a)
    return summary(vertices) | {
        "triangles": len(triangles),
        "color": colors[:, :3].mean(axis=0).tolist(),
        "facing": float((np.einsum("ij,ij->i", front, normals[triangles[:, 0]]) > 0).mean()),
    }


def srgb(linear):
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def by_open3d(o3d, path):
    m = o3d.io.read_triangle_mesh(path)
    colors = np.asarray(m.vertex_colors)
    return mesh(
        np.asarray(m.vertices),
        np.asarray(m.triangles),
        np.asarray(m.vertex_normals),
        srgb(colors) if path.endswith(".glb") else colors,
    )


def by_trimesh(trimesh, path):
    m = trimesh.load(path, process=False)
    if path.endswith(".ply"):
        return mesh(m.vertices, m.faces, m.vertex_normals, m.visual.vertex_colors / 255.0)
    parts = [m.geometry[name] for name in sorted(m.geometry)]
    first = np.cumsum([0] + [len(p.vertices) for p in parts])
    colors = np.concatenate([p.visual.vertex_attributes["color"] for p in parts])
    scale = np.iinfo(colors.dtype).max if np.issubdtype(colors.dtype, np.integer) else 1
    return mesh(
        np.concatenate([p.vertices for p in parts]),
        np.concatenate([p.faces + n for p, n in zip(parts, first)]),
        np.concatenate([p.vertex_normals for p in parts]),
        srgb(colors / scale),
    )


def meshes(*paths):
    o3d = import_open3d()
    import trimesh

    return [{"Open3D": by_open3d(o3d, p), "trimesh": by_trimesh(trimesh, p)} for p in paths]


print(json.dumps({"rgbd": rgbd, "foxglove": foxglove, "meshes": meshes}[sys.argv[1]](*sys.argv[2:])))
