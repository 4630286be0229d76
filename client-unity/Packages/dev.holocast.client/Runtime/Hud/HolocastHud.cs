using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast
{
    /// <summary>
    /// Shows the statistics of a HolocastSession (frame rate, frame delay, loss, points, bit rate) and its
    /// message for the user, as text in the scene. Follows the user's view with a delay.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Hud")]
    [DefaultExecutionOrder(100)]
    [DisallowMultipleComponent]
    public sealed class HolocastHud : MonoBehaviour
    {
        const string ShaderName = "HolocastText";
        const int FontSize = 48;
        const int Glyphs = 1024;
        const double Period = 0.25; // seconds between text updates

        [SerializeField, Tooltip("Empty: the session on this object or its parents, else the only one in the scene")]
        HolocastSession session;

        [SerializeField, Tooltip("Empty: the session's HolocastPoints")]
        HolocastPoints points;

        [SerializeField, Tooltip("Empty: Unity's built-in font")]
        Font font;

        [SerializeField, Tooltip("Text color. HoloLens displays dark colors as transparent")]
        Color color = new Color(0.85f, 0.95f, 1f, 1f);

        [SerializeField, Tooltip("Show statistics. Messages always show")]
        bool figures = true;

        [SerializeField, Tooltip("Follow the user's view. If off, it stays in place")]
        bool followHead = true;

        [SerializeField, Tooltip("Offset from the user's head, metres: right, up, forward")]
        Vector3 offset = new Vector3(-0.28f, 0.16f, 1.0f);

        [SerializeField, Tooltip("Line height, metres")]
        float lineHeight = 0.018f;

        [SerializeField, Tooltip("Maximum line width, metres")]
        float width = 0.5f;

        readonly TextBuffer text = new TextBuffer(Glyphs);
        readonly TextBuffer written = new TextBuffer(Glyphs);
        readonly RateCounter pictures = new RateCounter();
        TextMeshBuilder builder;
        Material material;
        GameObject glyphs;
        Transform head;
        double nextAt;
        string asked = "";

        /// <summary>The session whose statistics and message are shown.</summary>
        public HolocastSession Session
        {
            get => session;
            set => session = value;
        }

        /// <summary>The component whose point count is shown.</summary>
        public HolocastPoints Points
        {
            get => points;
            set => points = value;
        }

        /// <summary>Shows statistics. Messages are always shown.</summary>
        public bool Figures
        {
            get => figures;
            set
            {
                figures = value;
                nextAt = 0;
            }
        }

        /// <summary>Follows the user's view. If false, the HUD stays in place.</summary>
        public bool FollowHead
        {
            get => followHead;
            set => followHead = value;
        }

        // Lines above the message.
        internal string Header { get; set; } = "";

        /// <summary>Text on display.</summary>
        public string Text => written.ToString();

        void OnEnable()
        {
            if (session == null)
            {
                session = GetComponentInParent<HolocastSession>();
            }
            if (session == null)
            {
                session = FindAnyObjectByType<HolocastSession>();
            }
            if (points == null && session != null)
            {
                points = session.GetComponentInChildren<HolocastPoints>();
            }
            if (font == null)
            {
                font = Resources.GetBuiltinResource<Font>("LegacyRuntime.ttf");
            }
            builder = new TextMeshBuilder(font, FontSize, Glyphs);
            material = new Material(Resources.Load<Shader>(ShaderName)) { hideFlags = HideFlags.HideAndDontSave };
            glyphs = new GameObject("Text") { hideFlags = HideFlags.DontSave, layer = gameObject.layer };
            glyphs.transform.SetParent(transform, false);
            glyphs.AddComponent<MeshFilter>().sharedMesh = builder.Mesh;
            var renderer = glyphs.AddComponent<MeshRenderer>();
            renderer.sharedMaterial = material;
            renderer.shadowCastingMode = ShadowCastingMode.Off;
            renderer.receiveShadows = false;
            nextAt = 0;
        }

        void OnDisable()
        {
            builder.Dispose();
            Destroy(material);
            Destroy(glyphs);
        }

        void LateUpdate()
        {
            double now = Time.unscaledTimeAsDouble;
            pictures.Count(now);
            if (followHead)
            {
                Follow(Time.unscaledDeltaTime);
            }
            if (now >= nextAt || builder.Stale)
            {
                nextAt = now + Period;
                Write();
            }
        }

        void Write()
        {
            string message = session != null ? session.Message : "No HolocastSession in the scene.";
            string asks = Header.Length > 0 ? Header + message : message;
            if (asks != asked)
            {
                asked = asks;
                builder.Request(asks + (session != null ? session.Address.Session + session.Address.Host : ""));
            }
            Compose(text, session, points, figures, pictures.PerSecond, asks);
            if (!builder.Stale && Same(text, written))
            {
                return;
            }
            written.Clear();
            for (int i = 0; i < text.Length; i++)
            {
                written.Add(text[i]);
            }
            material.mainTexture = font.material.mainTexture;
            material.color = color;
            builder.Build(written, lineHeight, width);
        }

        // Composes the HUD's text without allocating.
        internal static void Compose(TextBuffer t, HolocastSession session, HolocastPoints points, bool figures,
            double displayFps, string message)
        {
            t.Clear();
            if (message.Length > 0)
            {
                t.Add(message).Add('\n');
            }
            if (!figures || session == null)
            {
                return;
            }
            if (session.TryGetStatistics(out HolocastStatistics s) && s.Frames > 0)
            {
                t.Add("FPS ").Add(s.Fps).Add("  received ").Add(s.ReceivedFps).Add("  display ").Add(displayFps)
                    .Add('\n');
                t.Add(s.Replayed ? "Arrival to picture p50 " : "Frame delay p50 ").Add(s.FrameDelayP50).Add("  p95 ")
                    .Add(s.FrameDelayP95).Add(" ms");
                if (s.ClockErrorMs >= 0 && !s.Replayed)
                {
                    t.Add("  clock ±").Add(s.ClockErrorMs);
                }
                t.Add('\n');
                t.Add("Points ").Add((long)(points != null ? points.Points : 0)).Add("  ").Add(s.MbitPerSecond)
                    .Add(" Mbit/s  decode ").Add(s.DecodeMs).Add(" ms\n");
                if (points != null && points.Points > 0)
                {
                    points.AddQualities(t.Add("Quality "));
                    t.Add(points.ShownLook == HolocastLook.Surface ? "  surface\n" : "  points\n");
                }
                t.Add("Lost ").Add(s.FramesLost).Add("  late ").Add(s.FramesLate).Add("  skipped ")
                    .Add(s.FramesSkipped);
                if (s.FramesRepaired + s.PartsLost > 0)
                {
                    t.Add("\nRepaired ").Add(s.FramesRepaired).Add("  parts lost ").Add(s.PartsLost);
                }
            }
            if (session.TryGetSphereStatistics(out HolocastStatistics v))
            {
                t.Add(t.Length > 0 && t[t.Length - 1] != '\n' ? "\n360° FPS " : "360° FPS ").Add(v.Fps).Add("  ")
                    .Add(v.MbitPerSecond).Add(" Mbit/s  decode ").Add(v.DecodeMs)
                    .Add(" ms\n360° lost ").Add(v.FramesLost).Add("  skipped ").Add(v.FramesSkipped).Add("  damaged ")
                    .Add(v.FramesDamaged);
                t.Add("  tiles ").Add((long)(100 * v.TileHits + 0.5)).Add(" % of the view");
            }
            else if (session.HasSphere && !session.ShowsSphere && message.Length == 0)
            {
                t.Add("\n360° video available: add a HolocastSphere to show it");
            }
            for (int i = 0; i < session.Sounds.Count; i++)
            {
                ComposeSound(t, session.Sounds[i]);
            }
        }

        static void ComposeSound(TextBuffer t, HolocastSound sound)
        {
            if (!sound.TryGetStatistics(out HolocastSoundStatistics s) || !s.Playing)
            {
                return;
            }
            t.Add(t.Length > 0 && t[t.Length - 1] != '\n' ? "\nSound " : "Sound ").Add(s.DelayMs).Add(" ms  buffer ")
                .Add(s.BufferMs).Add("  concealed ").Add(s.ConcealedMs);
            if (s.HasLipOffset)
            {
                t.Add("  lip offset ").Add(s.LipOffsetMs);
            }
        }

        static bool Same(TextBuffer a, TextBuffer b)
        {
            if (a.Length != b.Length)
            {
                return false;
            }
            for (int i = 0; i < a.Length; i++)
            {
                if (a[i] != b[i])
                {
                    return false;
                }
            }
            return true;
        }

        // Follows the head with a time constant of 1/4 s, slow enough to keep text readable.
        void Follow(float seconds)
        {
            if (head == null)
            {
                Camera main = Camera.main;
                if (main == null)
                {
                    return;
                }
                head = main.transform;
                Vector3 there = head.TransformPoint(offset);
                transform.SetPositionAndRotation(there, Facing(there));
                return;
            }
            Vector3 place = head.TransformPoint(offset);
            float share = 1 - Mathf.Exp(-4 * seconds);
            Vector3 position = Vector3.Lerp(transform.position, place, share);
            transform.SetPositionAndRotation(position, Quaternion.Slerp(transform.rotation, Facing(position), share));
        }

        Quaternion Facing(Vector3 position)
        {
            Vector3 away = position - head.position;
            return away.sqrMagnitude > 1e-6f ? Quaternion.LookRotation(away, head.up) : head.rotation;
        }
    }
}
