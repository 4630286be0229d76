using System;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    // X and Y of the ray of each pixel of a camera, which the shader multiplies by depth.
    sealed class RayTexture : IDisposable
    {
        Texture2D texture;
        uint shown;

        public Texture2D Texture => texture;

        // Whether Texture has the rays of a track's version; where it has not, they are fetched
        // once the native library has computed them.
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
