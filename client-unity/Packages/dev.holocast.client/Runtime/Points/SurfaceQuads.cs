using System;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    // The quads of one camera's newest frame as a surface, which the GPU computes from its points.
    sealed class SurfaceQuads : IDisposable
    {
        const string ShaderName = "HolocastQuads";
        const int PointsPerGroup = 64;
        const int CornerBytes = 16;
        const int FacetBytes = 4;

        static readonly int Words = Shader.PropertyToID("_HolocastWords");
        static readonly int Grid = Shader.PropertyToID("_HolocastGrid");
        static readonly int Rays = Shader.PropertyToID("_HolocastRays");
        static readonly int Count = Shader.PropertyToID("_HolocastCount");
        static readonly int Stride = Shader.PropertyToID("_HolocastStride");
        static readonly int Spacing = Shader.PropertyToID("_HolocastSpacing");
        static readonly int Corners = Shader.PropertyToID("_HolocastCorners");
        static readonly int Facets = Shader.PropertyToID("_HolocastFacets");

        readonly ComputeShader shader = Resources.Load<ComputeShader>(ShaderName);
        PointBuffers grid;
        GraphicsBuffer corners;
        GraphicsBuffer facets;

        // Computes the quads of a frame's points and gives them to the material. spacing: distance between
        // neighbouring points per unit of depth. Returns false if the frame is not on the track's grid.
        public bool Compute(Client client, in HcFrame frame, HolocastTrack track, GraphicsBuffer words, int points,
            Texture rays, float spacing, Material material)
        {
            int stride = track.Width + 2 * Abi.GridBorder;
            if (frame.width != track.Width || frame.height != track.Height
                || !WriteGrid(client, frame, stride * (track.Height + 2 * Abi.GridBorder)))
            {
                return false;
            }
            Reserve(points);
            shader.SetInt(Count, points);
            shader.SetInt(Stride, stride);
            shader.SetFloat(Spacing, spacing);
            shader.SetBuffer(0, Words, words);
            shader.SetBuffer(0, Grid, grid.Current);
            shader.SetTexture(0, Rays, rays);
            shader.SetBuffer(0, Corners, corners);
            shader.SetBuffer(0, Facets, facets);
            shader.Dispatch(0, Math.Max(1, (points + PointsPerGroup - 1) / PointsPerGroup), 1, 1);
            material.SetBuffer(Corners, corners);
            material.SetBuffer(Facets, facets);
            return true;
        }

        bool WriteGrid(Client client, in HcFrame frame, int pixels)
        {
            if (grid == null || grid.Capacity != pixels)
            {
                grid?.Dispose();
                grid = new PointBuffers(pixels, 2);
            }
            return grid.WriteGrid(client, frame);
        }

        void Reserve(int points)
        {
            if (facets != null && facets.count >= points)
            {
                return;
            }
            DisposeQuads();
            int capacity = points + points / 4 + 1;
            corners = new GraphicsBuffer(GraphicsBuffer.Target.Structured, 4 * capacity, CornerBytes);
            facets = new GraphicsBuffer(GraphicsBuffer.Target.Structured, capacity, FacetBytes);
        }

        void DisposeQuads()
        {
            corners?.Dispose();
            facets?.Dispose();
        }

        public void Dispose()
        {
            DisposeQuads();
            grid?.Dispose();
        }
    }
}
