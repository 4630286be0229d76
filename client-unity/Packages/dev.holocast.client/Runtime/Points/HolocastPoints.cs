using System;
using System.Collections.Generic;
using Holocast.Native;
using UnityEngine;
using UnityEngine.XR;

namespace Holocast
{
    /// <summary>
    /// Shows the points of one camera, or of all, of a HolocastSession on this object or above it.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Points")]
    [DefaultExecutionOrder(-50)]
    [DisallowMultipleComponent]
    public sealed class HolocastPoints : MonoBehaviour
    {
        /// <summary>Value of Camera: all of them.</summary>
        public const int AllCameras = -1;

        const string ShaderName = "HolocastPoints";

        [SerializeField, Tooltip("Empty: the one on this object or above it")]
        HolocastSession session;

        [SerializeField, Tooltip("Number of the camera; -1 for all")]
        int cameraNumber = AllCameras;

        [SerializeField, Tooltip("As \"full\" or \"low\". Empty: the best that the display keeps up with")]
        string quality = "";

        [SerializeField, Range(0.1f, 8), Tooltip("Edge of a point, in distances between neighbouring points")]
        float pointSize = 1.4f;

        [SerializeField, Min(1), Tooltip("Points of a camera at most; of larger frames every second, third… is drawn")]
        int maxPoints = 300000;

        [SerializeField, Tooltip("Ask for fewer points while the display misses its rate")]
        bool keepDisplayRate = true;

        readonly List<CameraPoints> views = new List<CameraPoints>();
        readonly List<Wish> wishes = new List<Wish>();
        readonly PointBudget budget = new PointBudget();
        readonly RateCounter pictures = new RateCounter();
        Shader shader;
        int generation = -1;
        bool catalogChanged;
        string noticeOf = "";

        struct Wish
        {
            public int Camera;
            public HolocastTrack Track;
            public uint Descriptions;
        }

        public HolocastSession Session
        {
            get => session;
            set
            {
                Unbind();
                session = value;
                if (isActiveAndEnabled)
                {
                    Bind();
                }
            }
        }

        /// <summary>Number of the camera shown, or AllCameras.</summary>
        public int Camera
        {
            get => cameraNumber;
            set
            {
                cameraNumber = value;
                catalogChanged = true;
            }
        }

        /// <summary>Quality by name; empty = the best that the display keeps up with.</summary>
        public string Quality
        {
            get => quality;
            set
            {
                quality = value ?? "";
                catalogChanged = true;
            }
        }

        /// <summary>Edge of a point, in distances between neighbouring points.</summary>
        public float PointSize
        {
            get => pointSize;
            set
            {
                pointSize = Mathf.Max(0.1f, value);
                ApplyPointSize();
            }
        }

        /// <summary>Points of a camera at most; of larger frames every second, third… is drawn.</summary>
        public int MaxPoints
        {
            get => maxPoints;
            set => maxPoints = Mathf.Max(1, value);
        }

        /// <summary>Ask for fewer points while the display misses its rate.</summary>
        public bool KeepDisplayRate
        {
            get => keepDisplayRate;
            set => keepDisplayRate = value;
        }

        /// <summary>Points drawn now, of all cameras shown.</summary>
        public int Points
        {
            get
            {
                int n = 0;
                for (int i = 0; i < views.Count; i++)
                {
                    n += views[i].Points;
                }
                return n;
            }
        }

        /// <summary>Pictures of the last second.</summary>
        public double DisplayFps => pictures.PerSecond;

        /// <summary>0 = all points are asked for; each further level is about half.</summary>
        public int BudgetLevel => budget.Level;

        internal IReadOnlyList<CameraPoints> Views => views;

        /// <summary>
        /// Where the subject is and which way it is looked at: the middle of the nearer half of all
        /// points, and the horizontal direction from the first camera to it, world coordinates.
        /// </summary>
        public bool TryGetSubject(out Vector3 middle, out Vector3 seenAlong)
        {
            middle = Vector3.zero;
            seenAlong = Vector3.forward;
            int n = 0;
            for (int i = 0; i < views.Count; i++)
            {
                if (views[i].HasSubject)
                {
                    middle += views[i].Subject;
                    n++;
                }
            }
            if (n == 0)
            {
                return false;
            }
            middle /= n;
            // Whoever placed the camera aimed it at the subject. A vector, not a direction: to the
            // camera's pose belongs a reflection, which is in the scale.
            Vector3 along = views[0].Transform.TransformVector(Vector3.forward) * 1000;
            along.y = 0;
            seenAlong = along.sqrMagnitude > 1e-6f ? along.normalized : Vector3.forward;
            return true;
        }

        void OnEnable()
        {
            if (session == null)
            {
                session = GetComponentInParent<HolocastSession>();
            }
            if (shader == null)
            {
                shader = Resources.Load<Shader>(ShaderName);
            }
            Bind();
        }

        void OnDisable()
        {
            Unbind();
        }

        void OnValidate()
        {
            catalogChanged = true;
            ApplyPointSize();
        }

        void Bind()
        {
            if (session == null)
            {
                return;
            }
            session.CatalogChanged += OnCatalogChanged;
            catalogChanged = true;
        }

        void Unbind()
        {
            if (session == null)
            {
                return;
            }
            session.CatalogChanged -= OnCatalogChanged;
            if (session.Client != null && generation == session.Generation)
            {
                for (int i = 0; i < wishes.Count; i++)
                {
                    session.Client.Unsubscribe((uint)wishes[i].Camera);
                }
            }
            Clear();
        }

        void OnCatalogChanged()
        {
            catalogChanged = true;
        }

        void Clear()
        {
            foreach (CameraPoints v in views)
            {
                v.Dispose();
            }
            views.Clear();
            wishes.Clear();
            budget.Restart();
            generation = -1;
            if (noticeOf.Length > 0)
            {
                noticeOf = "";
                session.SetNotice("");
            }
        }

        // After the session's Update, before the picture: a frame that arrives is in the next one.
        void LateUpdate()
        {
            pictures.Count(Time.unscaledTimeAsDouble);
            if (session == null)
            {
                return;
            }
            Client client = session.Client;
            if (generation != session.Generation || client == null)
            {
                Clear();
                if (client == null)
                {
                    return;
                }
                generation = session.Generation;
                catalogChanged = true;
            }
            if (catalogChanged)
            {
                catalogChanged = false;
                ApplyCatalog(client);
            }
            if (keepDisplayRate && session.State == HolocastState.Live)
            {
                int before = budget.Level;
                if (budget.Update(Time.unscaledTimeAsDouble, pictures.PerSecond, DisplayRate(), WorstLevel()) != before)
                {
                    ApplyCatalog(client);
                }
            }
            for (int i = 0; i < views.Count; i++)
            {
                HolocastCamera camera = session.Catalog.Camera(views[i].Camera);
                if (camera != null)
                {
                    views[i].Show(client, camera, maxPoints, pointSize);
                }
            }
            Notice();
        }

        // Makes the views those of the catalog, and asks for their tracks.
        void ApplyCatalog(Client client)
        {
            HolocastCatalog catalog = session.Catalog;
            for (int i = views.Count - 1; i >= 0; i--)
            {
                int n = views[i].Camera;
                if (catalog.Camera(n) == null || !Wanted(n))
                {
                    client.Unsubscribe((uint)n);
                    views[i].GiveBack(client);
                    views[i].Dispose();
                    views.RemoveAt(i);
                    Forget(n);
                }
            }
            for (int i = 0; i < catalog.Cameras.Count; i++)
            {
                HolocastCamera camera = catalog.Cameras[i];
                if (!Wanted(camera.Number))
                {
                    continue;
                }
                CameraPoints view = View(camera.Number);
                if (view == null)
                {
                    view = new CameraPoints(camera.Number, transform, shader);
                    views.Add(view);
                }
                view.SetPose(camera.Best, catalog.StudioYUp);
                Choose(camera, out HolocastTrack track, out uint descriptions);
                Ask(client, camera.Number, track, descriptions);
            }
        }

        bool Wanted(int camera)
        {
            return cameraNumber == AllCameras || cameraNumber == camera;
        }

        CameraPoints View(int camera)
        {
            for (int i = 0; i < views.Count; i++)
            {
                if (views[i].Camera == camera)
                {
                    return views[i];
                }
            }
            return null;
        }

        void Ask(Client client, int camera, HolocastTrack track, uint descriptions)
        {
            for (int i = 0; i < wishes.Count; i++)
            {
                if (wishes[i].Camera != camera)
                {
                    continue;
                }
                if (wishes[i].Track != track || wishes[i].Descriptions != descriptions)
                {
                    wishes.RemoveAt(i);
                    break;
                }
                return;
            }
            if (client.Subscribe((uint)camera, track.QualityBytes, descriptions))
            {
                wishes.Add(new Wish { Camera = camera, Track = track, Descriptions = descriptions });
            }
        }

        void Forget(int camera)
        {
            for (int i = wishes.Count - 1; i >= 0; i--)
            {
                if (wishes[i].Camera == camera)
                {
                    wishes.RemoveAt(i);
                }
            }
        }

        // The track and its descriptions of the present level: half of the descriptions, a
        // quarter, then the next lower quality.
        void Choose(HolocastCamera camera, out HolocastTrack track, out uint descriptions)
        {
            int level = keepDisplayRate ? budget.Level : 0;
            if (quality.Length > 0)
            {
                track = camera.Track(quality);
                descriptions = (uint)Mathf.Max(1, track.Descriptions >> level);
                return;
            }
            track = camera.Tracks[0];
            for (int i = 0; i < camera.Tracks.Count; i++)
            {
                track = camera.Tracks[i];
                int levels = Levels(track);
                if (level < levels)
                {
                    descriptions = (uint)Mathf.Max(1, track.Descriptions >> level);
                    return;
                }
                level -= levels;
            }
            descriptions = 1;
        }

        static int Levels(HolocastTrack track)
        {
            return track.Descriptions >= 4 ? 3 : 1;
        }

        int WorstLevel()
        {
            int worst = 0;
            for (int i = 0; i < session.Catalog.Cameras.Count; i++)
            {
                HolocastCamera camera = session.Catalog.Cameras[i];
                int levels = 0;
                if (quality.Length > 0)
                {
                    levels = Levels(camera.Track(quality));
                }
                else
                {
                    for (int t = 0; t < camera.Tracks.Count; t++)
                    {
                        levels += Levels(camera.Tracks[t]);
                    }
                }
                worst = Mathf.Max(worst, levels - 1);
            }
            return worst;
        }

        static double DisplayRate()
        {
            float xr = XRDevice.refreshRate;
            if (XRSettings.isDeviceActive && xr > 1)
            {
                return xr;
            }
            // Without a headset: what the application asks for, or sixty.
            int target = Application.targetFrameRate;
            return target > 0 ? target : 60;
        }

        void ApplyPointSize()
        {
            for (int i = 0; i < views.Count; i++)
            {
                views[i].SetPointSize(pointSize);
            }
        }

        // Says where frames are larger than the buffers.
        void Notice()
        {
            CameraPoints thinned = null;
            for (int i = 0; i < views.Count; i++)
            {
                if (views[i].PointsOfFrame > views[i].Points && views[i].Points > 0)
                {
                    thinned = views[i];
                    break;
                }
            }
            if (thinned == null)
            {
                if (noticeOf.Length > 0)
                {
                    noticeOf = "";
                    session.SetNotice("");
                }
                return;
            }
            if (noticeOf.Length == 0)
            {
                int step = (thinned.PointsOfFrame + thinned.Points - 1) / thinned.Points;
                noticeOf = "Camera " + thinned.Camera + " sends " + thinned.PointsOfFrame + " points and MaxPoints is " + maxPoints
                    + ": one in " + step + " is drawn.";
                session.SetNotice(noticeOf);
            }
        }
    }
}
