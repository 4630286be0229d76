using System;
using Unity.Collections.LowLevel.Unsafe;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    // The newest frame's words in GPU memory. Rotates three buffers, because the GPU may still read the
    // previous two while one is written.
    sealed class PointBuffers : IDisposable
    {
        const int Count = 3;

        readonly GraphicsBuffer[] buffers = new GraphicsBuffer[Count];
        int current;

        public PointBuffers(int capacity, int wordsPerPoint)
        {
            Capacity = capacity;
            WordsPerPoint = wordsPerPoint;
            // Matches the shader's declaration: uint2 elements, or uint for three words per point,
            // as the stride of uint3 differs between graphics APIs.
            int perElement = wordsPerPoint == 2 ? 2 : 1;
            for (int i = 0; i < Count; i++)
            {
                buffers[i] = new GraphicsBuffer(
                    GraphicsBuffer.Target.Structured, GraphicsBuffer.UsageFlags.LockBufferForWrite,
                    capacity * wordsPerPoint / perElement, 4 * perElement);
            }
        }

        public int Capacity { get; }

        public int WordsPerPoint { get; }

        public GraphicsBuffer Current => buffers[current];

        // Copies every step-th point of a frame; returns the points copied, or -1 if they do not
        // fit.
        public unsafe int Write(Client client, in HcFrame frame, uint step)
        {
            int next = (current + 1) % Count;
            GraphicsBuffer buffer = buffers[next];
            int room = Capacity * WordsPerPoint;
            var words = buffer.LockBufferForWrite<uint>(0, room);
            int copied = client.Copy(frame, step, (uint*)words.GetUnsafePtr(), room);
            buffer.UnlockBufferAfterWrite<uint>(Math.Max(0, copied) * WordsPerPoint);
            if (copied >= 0)
            {
                current = next;
            }
            return copied;
        }

        // Writes the points of a frame of two words each at their pixels, Capacity in all including the border;
        // returns false if the frame has another size.
        public unsafe bool WriteGrid(Client client, in HcFrame frame)
        {
            int next = (current + 1) % Count;
            GraphicsBuffer buffer = buffers[next];
            int room = Capacity * WordsPerPoint;
            var words = buffer.LockBufferForWrite<uint>(0, room);
            bool written = client.CopyGrid(frame, (uint*)words.GetUnsafePtr(), room);
            buffer.UnlockBufferAfterWrite<uint>(written ? room : 0);
            if (written)
            {
                current = next;
            }
            return written;
        }

        public void Dispose()
        {
            foreach (GraphicsBuffer b in buffers)
            {
                b.Dispose();
            }
        }
    }
}
