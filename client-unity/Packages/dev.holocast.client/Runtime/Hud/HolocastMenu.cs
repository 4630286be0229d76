using System;
using System.Collections.Generic;
using UnityEngine;
using UnityEngine.Rendering;
using UnityEngine.XR;

namespace Holocast
{
    /// <summary>
    /// A headset menu to join sessions, type an address, move the hologram and control playback. It opens
    /// while no session is live and whenever the user looks down. To choose an item, look at it and pinch.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Menu")]
    [DefaultExecutionOrder(-60)]
    [DisallowMultipleComponent]
    public sealed class HolocastMenu : MonoBehaviour
    {
        const string ShaderName = "HolocastText";
        const int FontSize = 48;
        const int Glyphs = 1024;
        const int MaxSessions = 8;

        // Degrees below the horizon at which looking down opens and closes the menu.
        const float OpenAngle = 35;
        const float CloseAngle = 20;

        // Distance in metres and angle in degrees beyond which an open menu moves back in front of the
        // user.
        const float Farthest = 2.5f;
        const float Aside = 60;

        [SerializeField]
        HolocastSession session;

        [SerializeField]
        HolocastBrowser browser;

        [SerializeField]
        HolocastPlacement placement;

        [SerializeField]
        HolocastPlayback playback;

        [SerializeField]
        HolocastHud hud;

        [SerializeField, Tooltip("Empty: Unity's built-in font")]
        Font font;

        [SerializeField, Tooltip("Line height, metres")]
        float lineHeight = 0.045f;

        readonly List<Item> items = new List<Item>();
        readonly TextBuffer text = new TextBuffer(Glyphs);
        TextMeshBuilder builder;
        Material material;
        GameObject glyphs;
        MeshRenderer glyphsRenderer;
        Transform head;
        TouchScreenKeyboard keyboard;
        int line = -1;
        bool open, stale, held, playing;

        struct Item
        {
            public string Label;
            public Action Choose;
        }

        /// <summary>True while the user looks at an item of an open menu. A pinch then belongs to the menu.</summary>
        public static bool PointedAt { get; private set; }

        internal bool IsOpen => open;

        internal IEnumerable<string> Labels
        {
            get
            {
                foreach (Item i in items)
                {
                    yield return i.Label;
                }
            }
        }

        void OnEnable()
        {
            if (session == null)
            {
                session = FindAnyObjectByType<HolocastSession>();
            }
            if (session != null)
            {
                browser = browser != null ? browser : session.GetComponentInChildren<HolocastBrowser>();
                placement = placement != null ? placement : session.GetComponentInChildren<HolocastPlacement>();
                playback = playback != null ? playback : session.GetComponentInChildren<HolocastPlayback>();
                session.StateChanged.AddListener(OnStateChanged);
            }
            if (hud == null)
            {
                hud = FindAnyObjectByType<HolocastHud>();
            }
            if (browser != null)
            {
                browser.Changed += OnChanged;
            }
            if (font == null)
            {
                font = Resources.GetBuiltinResource<Font>("LegacyRuntime.ttf");
            }
            builder = new TextMeshBuilder(font, FontSize, Glyphs);
            material = new Material(Resources.Load<Shader>(ShaderName)) { hideFlags = HideFlags.HideAndDontSave,
                color = Color.white };
            glyphs = new GameObject("Text") { hideFlags = HideFlags.DontSave, layer = gameObject.layer };
            glyphs.transform.SetParent(transform, false);
            glyphs.AddComponent<MeshFilter>().sharedMesh = builder.Mesh;
            glyphsRenderer = glyphs.AddComponent<MeshRenderer>();
            glyphsRenderer.sharedMaterial = material;
            glyphsRenderer.shadowCastingMode = ShadowCastingMode.Off;
            glyphsRenderer.receiveShadows = false;
            glyphsRenderer.enabled = false;
            stale = true;
        }

        void OnDisable()
        {
            if (session != null)
            {
                session.StateChanged.RemoveListener(OnStateChanged);
            }
            if (browser != null)
            {
                browser.Changed -= OnChanged;
            }
            open = PointedAt = false;
            builder.Dispose();
            Destroy(material);
            Destroy(glyphs);
        }

        void OnStateChanged(HolocastState _)
        {
            stale = true;
        }

        void OnChanged()
        {
            stale = true;
        }

        void LateUpdate()
        {
            if (head == null)
            {
                Camera main = Camera.main;
                if (main == null)
                {
                    return;
                }
                head = main.transform;
            }
            HandleTypedAddress();
            OpenOrClose();
            if (playback != null && playback.Playing != playing)
            {
                playing = playback.Playing;
                stale = true;
            }
            if (!open)
            {
                return;
            }
            if (stale)
            {
                stale = false;
                Fill();
                Write();
            }
            int target = LookedAt();
            if (target != line || builder.Stale)
            {
                line = target;
                Write();
            }
            PointedAt = line >= 0;
            bool pressed = HandInput.Pressed(XRNode.LeftHand) | HandInput.Pressed(XRNode.RightHand);
            if (pressed && !held && line >= 0)
            {
                items[line].Choose();
            }
            held = pressed;
        }

        void OpenOrClose()
        {
            float down = -Mathf.Atan2(head.forward.y,
                new Vector3(head.forward.x, 0, head.forward.z).magnitude) * Mathf.Rad2Deg;
            bool nothing = session == null || session.State != HolocastState.Live;
            bool wanted = nothing || down > (open ? CloseAngle : OpenAngle);
            if (wanted == open)
            {
                if (open && OutOfReach())
                {
                    Place(nothing);
                }
                return;
            }
            open = wanted;
            glyphsRenderer.enabled = open;
            if (!open)
            {
                PointedAt = false;
                return;
            }
            Place(nothing);
            line = -1;
            stale = true;
        }

        // True if the user has walked or turned away from the menu.
        bool OutOfReach()
        {
            Vector3 there = transform.position - head.position;
            Vector3 ahead = head.forward;
            there.y = ahead.y = 0;
            return there.magnitude > Farthest
                || ahead.sqrMagnitude > 1e-4f
                && Vector3.Dot(there.normalized, ahead.normalized) < Mathf.Cos(Aside * Mathf.Deg2Rad);
        }

        // Places the menu in front of the user, so that it is visible without turning the head.
        void Place(bool atEyeLevel)
        {
            Vector3 ahead = head.forward;
            ahead.y = 0;
            ahead = ahead.sqrMagnitude > 1e-4f ? ahead.normalized : Vector3.forward;
            Vector3 place = head.position + ahead * 1.2f + Vector3.down * (atEyeLevel ? 0 : 0.7f);
            transform.SetPositionAndRotation(place, Quaternion.LookRotation(place - head.position, Vector3.up));
        }

        // Index of the item that the gaze hits; -1 if none.
        int LookedAt()
        {
            Vector3 from = transform.InverseTransformPoint(head.position);
            Vector3 to = transform.InverseTransformPoint(head.position + head.forward);
            Vector3 along = to - from;
            if (along.z < 1e-3f || from.z > 0)
            {
                return -1;
            }
            Vector3 met = from + along * (-from.z / along.z);
            int i = (int)(-met.y / lineHeight);
            return met.y <= 0 && met.x > -0.1f && met.x < 0.7f && i < items.Count ? i : -1;
        }

        void Fill()
        {
            items.Clear();
            if (session != null && session.State == HolocastState.Live)
            {
                if (placement != null)
                {
                    Add("Bring here", placement.BringHere);
                    Add("Carry until the next pinch", placement.PickUp);
                }
                if (playback != null && playback.Available)
                {
                    Add(playback.Playing ? "Pause" : "Play", playback.Toggle);
                    Add("Restart", () => playback.Seek(0));
                    Add("Shared playback", playback.GoLive);
                }
                HolocastPoints points = hud != null ? hud.Points : null;
                if (points != null)
                {
                    bool surface = points.Look == HolocastLook.Surface;
                    Add(surface ? "Draw points" : "Draw surfaces", () =>
                    {
                        points.Look = surface ? HolocastLook.Points : HolocastLook.Surface;
                        stale = true;
                    });
                }
                Add("Leave session", session.Disconnect);
            }
            if (browser != null)
            {
                for (int i = 0; i < browser.Sessions.Count && i < MaxSessions; i++)
                {
                    string name = browser.Sessions[i];
                    Add("Join " + name, () => browser.Join(name));
                }
                for (int i = 0; i < browser.Addresses.Count; i++)
                {
                    HolocastAddress address = browser.Addresses[i];
                    Add("Join " + address.Session + " at " + address.Host, () => browser.Join(address));
                }
                Add("Type an address", AskForAddress);
            }
            if (hud != null)
            {
                Add(hud.Figures ? "Hide statistics" : "Show statistics", () =>
                {
                    hud.Figures = !hud.Figures;
                    stale = true;
                });
            }
        }

        void Add(string label, Action choose)
        {
            items.Add(new Item { Label = label, Choose = choose });
        }

        void Write()
        {
            text.Clear();
            for (int i = 0; i < items.Count; i++)
            {
                text.Add(i == line ? "> " : "  ").Add(items[i].Label).Add('\n');
            }
            builder.Request(text.ToString());
            material.mainTexture = font.material.mainTexture;
            builder.Build(text, lineHeight, 100);
        }

        void AskForAddress()
        {
            keyboard = TouchScreenKeyboard.Open(browser.Addresses.Count > 0 ? browser.Addresses[0].ToString()
                : "moqt://", TouchScreenKeyboardType.URL, false);
        }

        // Joins the session at the typed address, or lists the relay's sessions if it names none.
        void HandleTypedAddress()
        {
            if (keyboard == null || keyboard.status == TouchScreenKeyboard.Status.Visible)
            {
                return;
            }
            if (keyboard.status == TouchScreenKeyboard.Status.Done)
            {
                if (!browser.JoinText(keyboard.text))
                {
                    browser.Browse(keyboard.text);
                }
            }
            keyboard = null;
        }
    }
}
