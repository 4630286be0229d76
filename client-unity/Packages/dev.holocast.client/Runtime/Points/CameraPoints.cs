using System;
using Holocast.Native;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast
{
    // Renders one camera's points with a mesh renderer below HolocastPoints, at the camera's pose.
    // Allocates nothing per frame while the track stays the same.
    sealed class CameraPoints : IDisposable
    {
        static readonly int Words = Shader.PropertyToID("_HolocastWords");
        static readonly int Rays = Shader.PropertyToID("_HolocastRays");
        static readonly int Edge = Shader.PropertyToID("_HolocastEdge");
        static readonly int Nearer = Shader.PropertyToID("_HolocastNearer");

        // Of several cameras' surfaces that coincide within this distance, the best covers the others, mm.
        const float CoverWithin = 20;

        const string CloudKeyword = "HOLOCAST_CLOUD";
        const string SurfaceKeyword = "HOLOCAST_SURFACE";

        readonly GameObject gameObject;
        readonly Transform transform;
        readonly MeshFilter filter;
        readonly MeshRenderer renderer;
        readonly Material material;
        readonly RayTexture rays = new RayTexture();
        readonly SurfaceQuads quads = new SurfaceQuads();
        QuadMesh mesh;
        PointBuffers buffers;
        float spacing; // distance between neighbouring points per unit of depth
        uint shownVersion;
        HcFrame held; // held until its track and rays are known; valid if heldBy is not null
        Client heldBy;

        public CameraPoints(int camera, Transform parent, Shader shader)
        {
            Camera = camera;
            gameObject = new GameObject("Camera " + camera) { hideFlags = HideFlags.DontSave,
                layer = parent.gameObject.layer };
            transform = gameObject.transform;
            transform.SetParent(parent, false);
            material = new Material(shader) { name = "Holocast points", hideFlags = HideFlags.HideAndDontSave };
            filter = gameObject.AddComponent<MeshFilter>();
            renderer = gameObject.AddComponent<MeshRenderer>();
            renderer.sharedMaterial = material;
            renderer.receiveShadows = false;
            renderer.lightProbeUsage = LightProbeUsage.Off;
            renderer.reflectionProbeUsage = ReflectionProbeUsage.Off;
            renderer.motionVectorGenerationMode = MotionVectorGenerationMode.ForceNoMotion;
            renderer.enabled = false;
        }

        public int Camera { get; }

        // Points drawn, and points in the same frame before thinning to the buffers' capacity.
        public int Points { get; private set; }

        public int PointsOfFrame { get; private set; }

        // The frame is drawn as a surface, not as points.
        public bool IsSurface { get; private set; }

        public uint Sequence { get; private set; }

        // Capture time of the frame, UNIX µs.
        public ulong CapturedUs { get; private set; }

        // Centre of the nearer half of the points, world coordinates.
        public bool HasSubject { get; private set; }

        Vector3 subject;

        public Vector3 Subject => transform.TransformPoint(subject);

        // Studio y coordinate of the floor, mm.
        public float Floor { get; private set; }

        public Transform Transform => transform;

        public void SetPose(in HcTrack track, bool yUp)
        {
            Studio.Pose(track, yUp, out Vector3 position, out Quaternion rotation, out Vector3 scale);
            transform.localPosition = position;
            transform.localRotation = rotation;
            transform.localScale = scale;
        }

        public void SetShadows(bool cast)
        {
            renderer.shadowCastingMode = cast ? ShadowCastingMode.On : ShadowCastingMode.Off;
        }

        public void SetPointSize(float spread)
        {
            material.SetFloat(Edge, spread * spacing);
        }

        // several: other cameras' surfaces are shown, too.
        public void SetOthers(bool several)
        {
            material.SetFloat(Nearer, several ? CoverWithin : 0);
        }

        // Shows the newest frame, if there is a new one. others: points in the other cameras' frames,
        // which count towards maxPoints too.
        public void Show(Client client, HolocastCamera camera, int maxPoints, int others, float spread,
            HolocastLook look)
        {
            if (client.Acquire((uint)Camera, out HcFrame frame))
            {
                ReleaseHeld(client);
                held = frame;
                heldBy = client;
            }
            if (heldBy != client)
            {
                heldBy = null; // the held frame was freed with its client
                return;
            }
            HolocastTrack track = camera.TrackOfVersion(held.trackVersion);
            bool grid = Looks.HasGrid(held.layout);
            if (track == null || grid && !rays.Has(client, track.Raw))
            {
                return; // keep showing the previous frame; the next may be seconds away
            }
            heldBy = null;
            bool shown = TryShow(client, track, held, grid, maxPoints, others, spread, look);
            client.Release(held, shown ? Abi.ShownNow : Abi.NotShown);
        }

        // Releases the held frame, if any.
        public void ReleaseHeld(Client client)
        {
            if (heldBy == client)
            {
                client.Release(held, Abi.NotShown);
            }
            heldBy = null;
        }

        bool TryShow(Client client, HolocastTrack track, in HcFrame frame, bool grid, int maxPoints, int others,
            float spread, HolocastLook look)
        {
            Reserve(Math.Max(1, Math.Min(maxPoints, track.MaxPoints)), (int)frame.wordsPerPoint);
            uint step = Step(frame.points, others, maxPoints);
            int points = buffers.Write(client, frame, step);
            if (points < 0)
            {
                return false;
            }
            if (shownVersion != frame.trackVersion)
            {
                shownVersion = frame.trackVersion;
                if (grid)
                {
                    material.DisableKeyword(CloudKeyword);
                    material.SetTexture(Rays, rays.Texture);
                }
                else
                {
                    material.EnableKeyword(CloudKeyword);
                }
                ref readonly HcTrack raw = ref track.Raw;
                double focal = (raw.fx + raw.fy) / 2;
                spacing = focal > 0 ? (float)(1 / focal) : 1f / 500;
                SetPointSize(spread);
            }
            SetSurface(Looks.IsSurface(look, frame.layout, step)
                && quads.Compute(client, frame, track, buffers.Current, points, rays.Texture, spacing, material));
            material.SetBuffer(Words, buffers.Current);
            mesh.Show(points);
            renderer.enabled = points > 0;
            Points = points;
            PointsOfFrame = (int)frame.points;
            Sequence = frame.sequence;
            CapturedUs = frame.capturedUs;
            if ((frame.flags & Abi.FrameSubject) != 0)
            {
                SetSubject(frame);
            }
            return true;
        }

        void SetSurface(bool surface)
        {
            if (surface == IsSurface)
            {
                return;
            }
            IsSurface = surface;
            if (surface)
            {
                material.EnableKeyword(SurfaceKeyword);
            }
            else
            {
                material.DisableKeyword(SurfaceKeyword);
            }
        }

        // The smallest step at which all cameras' points fit into maxPoints when only every step-th point is
        // drawn. All cameras use the same step, so each keeps its share of the points.
        internal static uint Step(uint points, int others, int maxPoints)
        {
            long all = points + (long)others;
            return (uint)Math.Max(1, (all + maxPoints - 1) / maxPoints);
        }

        unsafe void SetSubject(in HcFrame frame)
        {
            fixed (float* m = frame.middle)
            {
                subject = new Vector3(m[0], m[1], m[2]);
            }
            Floor = frame.floor;
            HasSubject = true;
        }

        // Recreates mesh and buffers if the track or MaxPoints changed. The old frame stays visible
        // until the new one is drawn.
        void Reserve(int capacity, int wordsPerPoint)
        {
            if (buffers == null || buffers.Capacity != capacity || buffers.WordsPerPoint != wordsPerPoint)
            {
                buffers?.Dispose();
                buffers = new PointBuffers(capacity, wordsPerPoint);
            }
            if (mesh == null || mesh.Capacity != capacity)
            {
                mesh?.Dispose();
                mesh = new QuadMesh(capacity);
                filter.sharedMesh = mesh.Mesh;
            }
        }

        public void Dispose()
        {
            renderer.enabled = false; // Destroy takes effect at the end of the frame, but the buffers are gone now
            rays.Dispose();
            buffers?.Dispose();
            quads.Dispose();
            mesh?.Dispose();
            UnityEngine.Object.Destroy(material);
            UnityEngine.Object.Destroy(gameObject);
        }
    }
}
