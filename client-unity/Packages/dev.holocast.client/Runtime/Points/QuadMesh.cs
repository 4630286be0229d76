using System;
using Unity.Collections;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast
{
    // A mesh with four vertices and two triangles per point. The vertices carry no data: the shader
    // uses SV_VertexID. The length of the single submesh sets the number of points drawn.
    sealed class QuadMesh : IDisposable
    {
        // Disables culling, since only the GPU knows the positions.
        static readonly Bounds Everywhere = new Bounds(Vector3.zero, new Vector3(1e6f, 1e6f, 1e6f));

        const MeshUpdateFlags Unchecked = MeshUpdateFlags.DontRecalculateBounds | MeshUpdateFlags.DontValidateIndices;

        int shown = -1;

        public QuadMesh(int capacity)
        {
            Capacity = capacity;
            Mesh = new Mesh { name = "Holocast points", hideFlags = HideFlags.HideAndDontSave };
            Mesh.SetVertexBufferParams(4 * capacity,
                new VertexAttributeDescriptor(VertexAttribute.Position, VertexAttributeFormat.Float16, 4));
            Mesh.SetIndexBufferParams(6 * capacity, IndexFormat.UInt32);
            var indices = new NativeArray<uint>(6 * capacity, Allocator.Temp, NativeArrayOptions.UninitializedMemory);
            for (int i = 0, v = 0; v < 4 * capacity; v += 4)
            {
                indices[i++] = (uint)v;
                indices[i++] = (uint)v + 1;
                indices[i++] = (uint)v + 2;
                indices[i++] = (uint)v + 2;
                indices[i++] = (uint)v + 1;
                indices[i++] = (uint)v + 3;
            }
            Mesh.SetIndexBufferData(indices, 0, 0, indices.Length, Unchecked);
            indices.Dispose();
            Mesh.subMeshCount = 1;
            Mesh.bounds = Everywhere;
            Show(0);
        }

        public Mesh Mesh { get; }

        public int Capacity { get; }

        public void Show(int points)
        {
            if (points == shown)
            {
                return;
            }
            shown = points;
            Mesh.SetSubMesh(0, new SubMeshDescriptor(0, 6 * points, MeshTopology.Triangles)
            {
                vertexCount = 4 * points,
                bounds = Everywhere,
            }, Unchecked);
        }

        public void Dispose()
        {
            UnityEngine.Object.Destroy(Mesh);
        }
    }
}
