using System;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    // Texture with X and Y of each pixel's ray at z = 1, which the shader multiplies by the depth.
    sealed class RayTexture : IDisposable
    {
        Texture2D texture;
        uint shown;

        public Texture2D Texture => texture;

        // Returns true if Texture holds the rays of the track's version. If not, fetches them as
        // soon as the native library has computed them.
        public bool Has(Client client, in HcTrack track)
        {
            if (texture != null && shown == track.version)
            {
                return true;
            }
            float[] rays = client.Rays(track.camera, track.version);
            if (rays == null || rays.Length != 2 * track.width * track.height)
            {
                return false;
            }
            if (texture == null || texture.width != track.width || texture.height != track.height)
            {
                Dispose();
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
            return true;
        }

        public void Dispose()
        {
            if (texture != null)
            {
                UnityEngine.Object.Destroy(texture);
                texture = null;
            }
        }
    }
}
