using System;
using System.Threading;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    // X and Y of the ray of each pixel of a camera, which the shader multiplies by depth. They
    // are computed on a thread of the pool: that takes longer than a picture.
    sealed class RayTexture : IDisposable
    {
        Texture2D texture;
        uint shown;
        Job job;

        // Whether Texture has the rays of a track's version.
        public bool Has(uint version)
        {
            return texture != null && shown == version;
        }

        public Texture2D Texture => texture;

        // Asks for the rays of a track; has to be called until Has says yes.
        public void Want(Client client, in HcTrack track)
        {
            if (job != null && !job.Done)
            {
                return;
            }
            if (job == null || job.Version != track.version)
            {
                job = new Job(client, track);
                ThreadPool.QueueUserWorkItem(job.Run);
                return;
            }
            float[] rays = job.Rays;
            job = null;
            if (rays == null || rays.Length != 2 * track.width * track.height)
            {
                return; // the catalog has changed meanwhile
            }
            if (texture == null || texture.width != track.width || texture.height != track.height)
            {
                Destroy();
                texture = new Texture2D((int)track.width, (int)track.height, TextureFormat.RGFloat, false, true)
                {
                    name = "Holocast rays",
                    hideFlags = HideFlags.HideAndDontSave,
                    filterMode = FilterMode.Point,
                    wrapMode = TextureWrapMode.Clamp,
                };
            }
            texture.SetPixelData(rays, 0);
            texture.Apply(false);
            shown = track.version;
        }

        public void Dispose()
        {
            Destroy();
            job = null;
        }

        void Destroy()
        {
            if (texture != null)
            {
                UnityEngine.Object.DestroyImmediate(texture);
                texture = null;
            }
        }

        sealed class Job
        {
            readonly Client client;
            readonly uint camera;
            volatile bool done;

            public Job(Client client, in HcTrack track)
            {
                this.client = client;
                camera = track.camera;
                Version = track.version;
            }

            public uint Version { get; }

            public float[] Rays { get; private set; }

            public bool Done => done;

            public void Run(object _)
            {
                try
                {
                    Rays = client.Rays(camera, Version);
                }
                catch (ObjectDisposedException)
                {
                    // The session was left.
                }
                done = true;
            }
        }
    }
}
