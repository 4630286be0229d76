using System;
using System.Collections.Generic;
using System.Text;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    /// <summary>One quality of one camera.</summary>
    public sealed class HolocastTrack
    {
        internal HcTrack Raw;

        /// <summary>Name of the quality, for example "full", "high" or "low".</summary>
        public string Quality { get; private set; } = "";

        /// <summary>Maximum points per frame.</summary>
        public int MaxPoints => (int)Raw.maxPoints;

        /// <summary>Independently decodable objects per frame: 1 or 4.</summary>
        public int Descriptions => (int)Raw.descriptions;

        /// <summary>Frames per second; 0 = unknown.</summary>
        public double Framerate => Raw.framerate;

        /// <summary>Maximum bits per second; 0 = unknown.</summary>
        public double Bitrate => Raw.bitrate;

        /// <summary>Root mean square error that coding with loss adds to depth, mm; 0 = unknown.</summary>
        public double DepthErrorMm => Raw.depthError;

        /// <summary>Width of the sensor's grid in pixels; 0 for unorganized clouds.</summary>
        public int Width => (int)Raw.width;

        /// <summary>Height of the sensor's grid in pixels; 0 for unorganized clouds.</summary>
        public int Height => (int)Raw.height;

        internal byte[] QualityBytes { get; private set; } = new byte[1];

        internal unsafe void Set(in HcTrack raw)
        {
            bool renamed = false;
            for (int i = 0; i < HcTrack.QualityLength && !renamed; i++)
            {
                renamed = raw.quality[i] != Raw.quality[i];
            }
            Raw = raw;
            if (renamed)
            {
                fixed (byte* q = Raw.quality)
                {
                    Quality = HolocastCatalog.Text(q, HcTrack.QualityLength);
                }
                QualityBytes = Client.Utf8(Quality);
            }
        }
    }

    /// <summary>A camera of a session: its tracks, best first, and its pose.</summary>
    public sealed class HolocastCamera
    {
        readonly List<HolocastTrack> tracks = new List<HolocastTrack>();

        /// <summary>Number of the camera in its session.</summary>
        public int Number { get; internal set; }

        /// <summary>Display name of the camera.</summary>
        public string Name { get; private set; } = "";

        /// <summary>Tracks of the camera, best quality first.</summary>
        public IReadOnlyList<HolocastTrack> Tracks => tracks;

        /// <summary>The track of the named quality, or the best track if there is none.</summary>
        public HolocastTrack Track(string quality)
        {
            foreach (HolocastTrack t in tracks)
            {
                if (t.Quality == quality)
                {
                    return t;
                }
            }
            return tracks[0];
        }

        internal HolocastTrack TrackOfVersion(uint version)
        {
            for (int i = 0; i < tracks.Count; i++)
            {
                if (tracks[i].Raw.version == version)
                {
                    return tracks[i];
                }
            }
            return null;
        }

        internal unsafe void SetTrack(int index, in HcTrack raw)
        {
            if (index == tracks.Count)
            {
                tracks.Add(new HolocastTrack());
            }
            if (index == 0)
            {
                bool renamed = tracks[0].Raw.size == 0;
                for (int i = 0; i < HcTrack.CameraNameLength && !renamed; i++)
                {
                    renamed = raw.cameraName[i] != tracks[0].Raw.cameraName[i];
                }
                if (renamed)
                {
                    fixed (byte* n = raw.cameraName)
                    {
                        Name = HolocastCatalog.Text(n, HcTrack.CameraNameLength);
                    }
                }
            }
            tracks[index].Set(raw);
        }

        internal void KeepTracks(int count)
        {
            if (tracks.Count > count)
            {
                tracks.RemoveRange(count, tracks.Count - count);
            }
        }

        // The received track, or null.
        internal HolocastTrack Received
        {
            get
            {
                for (int i = 0; i < tracks.Count; i++)
                {
                    if ((tracks[i].Raw.flags & Abi.TrackSubscribed) != 0)
                    {
                        return tracks[i];
                    }
                }
                return null;
            }
        }

        internal ref readonly HcTrack Best => ref tracks[0].Raw;
    }

    /// <summary>The cameras of a session, sorted by number.</summary>
    public sealed class HolocastCatalog
    {
        readonly List<HolocastCamera> cameras = new List<HolocastCamera>();
        HcTrack[] raw = new HcTrack[8];

        /// <summary>Cameras sorted by number.</summary>
        public IReadOnlyList<HolocastCamera> Cameras => cameras;

        /// <summary>
        /// True if the studio's y axis points up. Derived from the cameras' poses, as their y axes point down.
        /// </summary>
        public bool StudioYUp { get; private set; }

        internal HolocastCamera Camera(int number)
        {
            for (int i = 0; i < cameras.Count; i++)
            {
                if (cameras[i].Number == number)
                {
                    return cameras[i];
                }
            }
            return null;
        }

        internal void Clear()
        {
            cameras.Clear();
        }

        // Reuses objects, since a moving camera must not cause allocations.
        internal void Read(Client client)
        {
            int count = client.Catalog(ref raw);
            Set(raw, count);
        }

        internal unsafe void Set(HcTrack[] tracks, int count)
        {
            int used = 0;
            double up = 0;
            for (int from = 0; from < count;)
            {
                int to = from;
                while (to < count && tracks[to].camera == tracks[from].camera)
                {
                    to++;
                }
                if (used == cameras.Count)
                {
                    cameras.Add(new HolocastCamera());
                }
                HolocastCamera camera = cameras[used++];
                camera.Number = (int)tracks[from].camera;
                for (int i = from; i < to; i++)
                {
                    camera.SetTrack(i - from, tracks[i]);
                }
                camera.KeepTracks(to - from);
                up += tracks[from].rotation[4];
                from = to;
            }
            if (used < cameras.Count)
            {
                cameras.RemoveRange(used, cameras.Count - used);
            }
            StudioYUp = up < 0;
        }

        internal static unsafe string Text(byte* bytes, int capacity)
        {
            int n = 0;
            while (n < capacity && bytes[n] != 0)
            {
                n++;
            }
            return n == 0 ? "" : Encoding.UTF8.GetString(bytes, n);
        }
    }

    // Converts camera coordinates (right-handed, y down, mm) by way of studio coordinates to
    // Unity's (left-handed, y up, m).
    static class Studio
    {
        const float Metre = 0.001f;

        // The conversion includes a reflection of the studio's y axis, or of its z axis if y points
        // up. The result is a proper rotation and a scale with one negative component.
        public static unsafe void Pose(in HcTrack track, bool yUp, out Vector3 position, out Quaternion rotation,
            out Vector3 scale)
        {
            double sy = yUp ? 1 : -1;
            double sz = yUp ? -1 : 1;
            fixed (double* r = track.rotation, t = track.translation)
            {
                position = new Vector3((float)t[0], (float)(sy * t[1]), (float)(sz * t[2])) * Metre;
                // F·R·F, where F is the reflection.
                rotation = Rotation(
                    r[0], sy * r[1], sz * r[2],
                    sy * r[3], r[4], sy * sz * r[5],
                    sz * r[6], sz * sy * r[7], r[8]);
            }
            scale = new Vector3(Metre, (float)sy * Metre, (float)sz * Metre);
        }

        // The view of an eye at a position and rotation in the hologram's space, without its angles.
        public static unsafe HcView View(Vector3 position, Quaternion rotation, bool yUp)
        {
            var v = new HcView();
            double* m = v.rotation;
            Row(m, rotation * Vector3.right, yUp);
            Row(m + 3, rotation * Vector3.down, yUp);
            Row(m + 6, rotation * Vector3.forward, yUp);
            double* at = stackalloc double[3];
            Row(at, position / Metre, yUp);
            for (int i = 0; i < 3; i++)
            {
                v.translation[i] = -(m[3 * i] * at[0] + m[3 * i + 1] * at[1] + m[3 * i + 2] * at[2]);
            }
            return v;
        }

        // Writes a vector of the hologram's space in studio space, whose reflection Pose describes.
        static unsafe void Row(double* to, Vector3 v, bool yUp)
        {
            to[0] = v.x;
            to[1] = yUp ? v.y : -v.y;
            to[2] = yUp ? -v.z : v.z;
        }

        // Quaternion of a rotation matrix, computed from its largest component for accuracy.
        internal static Quaternion Rotation(
            double m00, double m01, double m02, double m10, double m11, double m12, double m20, double m21, double m22)
        {
            double x, y, z, w;
            if (m00 + m11 + m22 > 0)
            {
                double s = 2 * Math.Sqrt(1 + m00 + m11 + m22);
                w = s / 4;
                x = (m21 - m12) / s;
                y = (m02 - m20) / s;
                z = (m10 - m01) / s;
            }
            else if (m00 > m11 && m00 > m22)
            {
                double s = 2 * Math.Sqrt(1 + m00 - m11 - m22);
                w = (m21 - m12) / s;
                x = s / 4;
                y = (m01 + m10) / s;
                z = (m02 + m20) / s;
            }
            else if (m11 > m22)
            {
                double s = 2 * Math.Sqrt(1 + m11 - m00 - m22);
                w = (m02 - m20) / s;
                x = (m01 + m10) / s;
                y = s / 4;
                z = (m12 + m21) / s;
            }
            else
            {
                double s = 2 * Math.Sqrt(1 + m22 - m00 - m11);
                w = (m10 - m01) / s;
                x = (m02 + m20) / s;
                y = (m12 + m21) / s;
                z = s / 4;
            }
            return new Quaternion((float)x, (float)y, (float)z, (float)w);
        }

        // A place in studio coordinates, mm.
        public static Vector3 Place(double x, double y, double z, bool yUp)
        {
            return new Vector3((float)x, (float)(yUp ? y : -y), (float)(yUp ? -z : z)) * Metre;
        }

        // Height above the studio's origin, in metres, of a studio y coordinate in mm.
        public static float Height(float studioY, bool yUp)
        {
            return (yUp ? studioY : -studioY) * Metre;
        }
    }
}
