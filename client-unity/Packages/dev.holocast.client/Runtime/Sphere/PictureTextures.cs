using System;
using Unity.Collections;
using Unity.Collections.LowLevel.Unsafe;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    // The planes of a picture as single-channel textures, written in place. Allocates only when the
    // picture size changes.
    sealed class PictureTextures : IDisposable
    {
        static readonly int[] Names =
        {
            Shader.PropertyToID("_HolocastLuma"), Shader.PropertyToID("_HolocastCb"),
                Shader.PropertyToID("_HolocastCr"),
        };

        readonly Texture2D[] planes = new Texture2D[3];

        public Texture2D Plane(int i)
        {
            return planes[i];
        }

        public unsafe bool Write(Client client, in HcPicture picture)
        {
            for (int i = 0; i < planes.Length; i++)
            {
                int width = (int)(i == 0 ? picture.width : (picture.width + 1) / 2),
                    height = (int)(i == 0 ? picture.height : (picture.height + 1) / 2);
                Reserve(i, width, height);
                NativeArray<byte> bytes = planes[i].GetRawTextureData<byte>();
                if (!client.Copy(picture, (uint)i, (byte*)bytes.GetUnsafePtr(), bytes.Length))
                {
                    return false;
                }
            }
            foreach (Texture2D plane in planes)
            {
                plane.Apply(false);
            }
            return true;
        }

        public void Bind(Material material)
        {
            for (int i = 0; i < planes.Length; i++)
            {
                material.SetTexture(Names[i], planes[i]);
            }
        }

        void Reserve(int i, int width, int height)
        {
            if (planes[i] != null && planes[i].width == width && planes[i].height == height)
            {
                return;
            }
            if (planes[i] != null)
            {
                UnityEngine.Object.Destroy(planes[i]);
            }
            planes[i] = new Texture2D(width, height, TextureFormat.R8, false, true)
            {
                name = "Holocast plane",
                hideFlags = HideFlags.HideAndDontSave,
                filterMode = FilterMode.Bilinear,
                wrapModeU = TextureWrapMode.Repeat, // longitude wraps
                wrapModeV = TextureWrapMode.Clamp,
            };
        }

        public void Dispose()
        {
            for (int i = 0; i < planes.Length; i++)
            {
                if (planes[i] != null)
                {
                    UnityEngine.Object.Destroy(planes[i]);
                    planes[i] = null;
                }
            }
        }
    }
}
