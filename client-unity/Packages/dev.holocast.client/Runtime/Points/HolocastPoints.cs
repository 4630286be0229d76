using System;
using System.Collections.Generic;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    /// <summary>
    /// Shows the points, or the surfaces they form, of one or all cameras of a HolocastSession, by default the one
    /// on this object or a parent.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Points")]
    [DefaultExecutionOrder(-50)]
    [DisallowMultipleComponent]
    public sealed class HolocastPoints : MonoBehaviour
    {
        /// <summary>Value of Camera that selects all cameras.</summary>
        public const int AllCameras = -1;

        const string ShaderName = "HolocastPoints";

        [SerializeField, Tooltip("Empty: the session on this object or its parents")]
        HolocastSession session;

        [SerializeField, Tooltip("Camera number; -1 for all")]
        int cameraNumber = AllCameras;

        [SerializeField,
            Tooltip("Name of the quality, for example \"high\". Empty: the best the display can keep up with")]
        string quality = "";

        [SerializeField, Tooltip("Surface: frames with a pixel grid are closed surfaces; others are points")]
        HolocastLook look = HolocastLook.Surface;

        [SerializeField, Range(0.1f, 8),
            Tooltip("Point size, in multiples of the distance between neighbouring points")]
        float pointSize = 1.4f;

        [SerializeField, Min(1),
            Tooltip("Maximum points over all cameras. More are thinned: every second, third… point is drawn")]
        int maxPoints = 300000;

        [SerializeField,
            Tooltip("While the display misses its frame rate, draw points instead of surfaces and request fewer")]
        bool keepDisplayRate = true;

        [SerializeField, Min(0),
            Tooltip("Maximum Mbit/s of all cameras, shared by their parts of the main camera's picture. 0: no limit")]
        float maxBitrate;

        [SerializeField, Tooltip("Points cast shadows. Universal Render Pipeline only")]
        bool castShadows;

        readonly List<CameraPoints> views = new List<CameraPoints>();
        readonly List<Subscription> subscriptions = new List<Subscription>();
        readonly PointBudget budget = new PointBudget();
        readonly RateCounter pictures = new RateCounter();
        Shader shader;
        UnityEngine.Camera eyes;
        int generation = -1;
        bool catalogChanged;
        string notice = "";

        struct Subscription
        {
            public int Camera;
            public HolocastTrack Track;
            public uint Descriptions;
        }

        /// <summary>The session whose points are shown.</summary>
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

        /// <summary>Number of the camera to show, or AllCameras.</summary>
        public int Camera
        {
            get => cameraNumber;
            set
            {
                cameraNumber = value;
                catalogChanged = true;
            }
        }

        /// <summary>
        /// Quality by name, for example "full", "high" or "low"; empty selects the best the display can keep up with.
        /// </summary>
        public string Quality
        {
            get => quality;
            set
            {
                quality = value ?? "";
                catalogChanged = true;
            }
        }

        /// <summary>
        /// Surfaces, the default, or points; from the next frame on. Frames without a grid (layouts B and C) and frames
        /// thinned to MaxPoints are drawn as points.
        /// </summary>
        public HolocastLook Look
        {
            get => look;
            set => look = value;
        }

        /// <summary>Look on display: Surface if any camera is drawn as a surface.</summary>
        public HolocastLook ShownLook
        {
            get
            {
                for (int i = 0; i < views.Count; i++)
                {
                    if (views[i].IsSurface)
                    {
                        return HolocastLook.Surface;
                    }
                }
                return HolocastLook.Points;
            }
        }

        /// <summary>
        /// Edge length of a point, in multiples of the distance between neighbouring points; at least 0.1.
        /// </summary>
        public float PointSize
        {
            get => pointSize;
            set
            {
                pointSize = Mathf.Max(0.1f, value);
                ApplyAppearance();
            }
        }

        /// <summary>
        /// Maximum points over all cameras. If there are more, only every second, third… point of each
        /// camera is drawn.
        /// </summary>
        public int MaxPoints
        {
            get => maxPoints;
            set => maxPoints = Mathf.Max(1, value);
        }

        /// <summary>
        /// While the display misses its frame rate, draws points instead of surfaces, then requests fewer points.
        /// </summary>
        public bool KeepDisplayRate
        {
            get => keepDisplayRate;
            set => keepDisplayRate = value;
        }

        /// <summary>
        /// Maximum Mbit/s of all cameras while Quality is empty; cameras in view get the better qualities. 0 lowers
        /// the total once frames are lost.
        /// </summary>
        public float MaxBitrate
        {
            get => maxBitrate;
            set => maxBitrate = Mathf.Max(0, value);
        }

        /// <summary>Points cast shadows. Universal Render Pipeline only.</summary>
        public bool CastShadows
        {
            get => castShadows;
            set
            {
                castShadows = value;
                ApplyAppearance();
            }
        }

        /// <summary>Points on display, over all cameras shown.</summary>
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

        /// <summary>Pictures rendered in the last second.</summary>
        public double DisplayFps => pictures.PerSecond;

        /// <summary>
        /// Reduction by KeepDisplayRate; 0 is none. If there are surfaces, level 1 replaces them by points. Each
        /// further level requests about half as many points.
        /// </summary>
        public int BudgetLevel => budget.Level;

        internal IReadOnlyList<CameraPoints> Views => views;

        /// <summary>
        /// Locates the subject: the centre of the nearer half of each camera's points, averaged over the
        /// cameras, and the horizontal direction in which the first camera sees it, both in world coordinates.
        /// Returns false until a frame has been shown.
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
            // Cameras point at their subject. TransformVector includes the scale, which holds the
            // pose's reflection; TransformDirection does not.
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
            ApplyAppearance();
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
                for (int i = 0; i < subscriptions.Count; i++)
                {
                    session.Client.Unsubscribe((uint)subscriptions[i].Camera);
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
            subscriptions.Clear();
            budget.Restart();
            generation = -1;
            if (notice.Length > 0)
            {
                notice = "";
                session.SetNotice(this, "");
            }
        }

        // Runs after the session's Update, so that an arriving frame is rendered in the same Unity
        // frame.
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
                double rate = DisplayRate.Current();
                if (budget.Update(Time.unscaledTimeAsDouble, pictures.PerSecond, rate, WorstLevel()) != before)
                {
                    ApplyCatalog(client);
                }
            }
            ReportView(client);
            for (int i = 0; i < views.Count; i++)
            {
                HolocastCamera camera = session.Catalog.Camera(views[i].Camera);
                if (camera != null)
                {
                    views[i].Show(client, camera, maxPoints, PointsBesides(i), pointSize,
                        Looks.At(look, keepDisplayRate ? budget.Level : 0));
                }
            }
            UpdateNotice();
        }

        // Reports the main camera's view, which chooses each camera's quality.
        void ReportView(Client client)
        {
            if (quality.Length > 0 || views.Count == 0)
            {
                return;
            }
            if (eyes == null)
            {
                eyes = UnityEngine.Camera.main;
                if (eyes == null)
                {
                    return;
                }
            }
            HcView view = Studio.View(transform.InverseTransformPoint(eyes.transform.position),
                Quaternion.Inverse(transform.rotation) * eyes.transform.rotation, session.Catalog.StudioYUp);
            view.height = Mathf.Clamp(eyes.fieldOfView, 10, 150);
            view.width = Mathf.Min(150, 2 * Mathf.Rad2Deg
                * Mathf.Atan(eyes.aspect * Mathf.Tan((float)view.height * Mathf.Deg2Rad / 2)));
            view.maxBitrate = maxBitrate * 1e6;
            client.View(view);
        }

        // Points of the other cameras' frames, before thinning.
        int PointsBesides(int view)
        {
            int n = 0;
            for (int i = 0; i < views.Count; i++)
            {
                n += i == view ? 0 : views[i].PointsOfFrame;
            }
            return n;
        }

        // Matches the views to the catalog and updates the subscriptions.
        void ApplyCatalog(Client client)
        {
            HolocastCatalog catalog = session.Catalog;
            for (int i = views.Count - 1; i >= 0; i--)
            {
                int n = views[i].Camera;
                if (catalog.Camera(n) == null || !Wanted(n))
                {
                    client.Unsubscribe((uint)n);
                    views[i].ReleaseHeld(client);
                    views[i].Dispose();
                    views.RemoveAt(i);
                    RemoveSubscription(n);
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
                    view.SetShadows(castShadows);
                    views.Add(view);
                }
                view.SetPose(camera.Best, catalog.StudioYUp);
                Choose(camera, out HolocastTrack track, out uint descriptions);
                Subscribe(client, camera.Number, track, descriptions);
            }
            for (int i = 0; i < views.Count; i++)
            {
                views[i].SetOthers(views.Count > 1);
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

        void Subscribe(Client client, int camera, HolocastTrack track, uint descriptions)
        {
            for (int i = 0; i < subscriptions.Count; i++)
            {
                if (subscriptions[i].Camera != camera)
                {
                    continue;
                }
                if (subscriptions[i].Track != track || subscriptions[i].Descriptions != descriptions)
                {
                    subscriptions.RemoveAt(i);
                    break;
                }
                return;
            }
            // Without a quality, the library chooses by the view.
            bool automatic = quality.Length == 0 && track == session.Catalog.Camera(camera).Tracks[0];
            if (client.Subscribe((uint)camera, automatic ? null : track.QualityBytes, descriptions))
            {
                subscriptions.Add(new Subscription { Camera = camera, Track = track, Descriptions = descriptions });
            }
        }

        // Appends the received quality, a single one if all cameras have the same, otherwise one
        // per camera, and the mean depth error where it is known.
        internal void AddQualities(TextBuffer t)
        {
            bool same = true;
            for (int i = 1; i < subscriptions.Count; i++)
            {
                same &= Received(i).Quality == Received(0).Quality;
            }
            for (int i = 0; i < (same ? Mathf.Min(1, subscriptions.Count) : subscriptions.Count); i++)
            {
                if (i > 0)
                {
                    t.Add(", ");
                }
                if (!same)
                {
                    t.Add((long)subscriptions[i].Camera).Add(' ');
                }
                t.Add(Received(i).Quality);
            }
            double sum = 0;
            int known = 0;
            for (int i = 0; i < subscriptions.Count; i++)
            {
                double error = Received(i).DepthErrorMm;
                sum += error;
                known += error > 0 ? 1 : 0;
            }
            if (known > 0)
            {
                t.Add("  depth ±").Add(sum / known).Add(" mm");
            }
        }

        // Track that the library receives for a subscription.
        HolocastTrack Received(int subscription)
        {
            Subscription s = subscriptions[subscription];
            return session.Catalog.Camera(s.Camera)?.Received ?? s.Track;
        }

        void RemoveSubscription(int camera)
        {
            for (int i = subscriptions.Count - 1; i >= 0; i--)
            {
                if (subscriptions[i].Camera == camera)
                {
                    subscriptions.RemoveAt(i);
                }
            }
        }

        // Picks the track and the number of descriptions for the budget level: after points instead of
        // surfaces, fewer descriptions (half, a quarter), then the next lower quality.
        void Choose(HolocastCamera camera, out HolocastTrack track, out uint descriptions)
        {
            int level = keepDisplayRate ? Mathf.Max(0, budget.Level - Looks.Levels(look, HasGrid())) : 0;
            if (quality.Length > 0)
            {
                track = camera.Track(quality);
                descriptions = (uint)Mathf.Max(1, track.Descriptions >> level);
                return;
            }
            track = camera.Tracks[0];
            for (int i = 0; i < camera.Tracks.Count; i++)
            {
                if (i > 0 && !Relieves(camera.Tracks[i], track))
                {
                    continue;
                }
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

        // A lower quality of layout W reduces the bit rate, but not the number of points.
        static bool Relieves(HolocastTrack track, HolocastTrack better)
        {
            return track.MaxPoints < better.MaxPoints;
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
                    HolocastTrack last = camera.Tracks[0];
                    for (int t = 0; t < camera.Tracks.Count; t++)
                    {
                        if (t == 0 || Relieves(camera.Tracks[t], last))
                        {
                            last = camera.Tracks[t];
                            levels += Levels(last);
                        }
                    }
                }
                worst = Mathf.Max(worst, levels - 1);
            }
            return worst + Looks.Levels(look, HasGrid());
        }

        bool HasGrid()
        {
            for (int i = 0; i < session.Catalog.Cameras.Count; i++)
            {
                if (Looks.HasGrid(session.Catalog.Cameras[i].Best.layout))
                {
                    return true;
                }
            }
            return false;
        }

        void ApplyAppearance()
        {
            for (int i = 0; i < views.Count; i++)
            {
                views[i].SetShadows(castShadows);
                views[i].SetPointSize(pointSize);
            }
        }

        // Notifies the user if points are thinned.
        void UpdateNotice()
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
                if (notice.Length > 0)
                {
                    notice = "";
                    session.SetNotice(this, "");
                }
                return;
            }
            if (notice.Length == 0)
            {
                int step = (thinned.PointsOfFrame + thinned.Points - 1) / thinned.Points;
                int all = thinned.PointsOfFrame + PointsBesides(views.IndexOf(thinned));
                notice = (views.Count == 1 ? "Camera " + thinned.Camera + " sends " : views.Count + " cameras send ")
                    + all + " points and MaxPoints is " + maxPoints + ": one in " + step + " is drawn.";
                session.SetNotice(this, notice);
            }
        }
    }
}
