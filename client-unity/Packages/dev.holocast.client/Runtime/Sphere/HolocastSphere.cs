using Holocast.Native;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast
{
    /// <summary>
    /// Shows the 360° video of a HolocastSession, by default the one on this object or a parent,
    /// infinitely far away around every camera, so that only head rotation matters. This object's rotation
    /// turns the sphere.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Sphere")]
    [DefaultExecutionOrder(-50)]
    [DisallowMultipleComponent]
    public sealed class HolocastSphere : MonoBehaviour
    {
        const string ShaderName = "HolocastSphere";

        static readonly int Eyes = Shader.PropertyToID("_HolocastEyes");
        static readonly int FullRange = Shader.PropertyToID("_HolocastFullRange");
        static readonly int Red = Shader.PropertyToID("_HolocastRed");
        static readonly int Blue = Shader.PropertyToID("_HolocastBlue");

        [SerializeField, Tooltip("Empty: the session on this object or its parents")]
        HolocastSession session;

        readonly PictureTextures textures = new PictureTextures();
        GameObject around;
        MeshRenderer surface;
        Mesh mesh;
        Material material;
        Camera eyes;
        int generation = -1;

        /// <summary>The session whose 360° video is shown.</summary>
        public HolocastSession Session
        {
            get => session;
            set
            {
                Unsubscribe();
                session = value;
            }
        }

        /// <summary>True while a picture is displayed.</summary>
        public bool Shows => surface != null && surface.enabled;

        /// <summary>Width of the picture in pixels, both eyes included; 0 if there is none.</summary>
        public int Width { get; private set; }

        /// <summary>Height of the picture in pixels, both eyes included; 0 if there is none.</summary>
        public int Height { get; private set; }

        /// <summary>True if the video is stereoscopic.</summary>
        public bool Stereo { get; private set; }

        internal PictureTextures Textures => textures;

        internal MeshRenderer Surface => surface;

        void OnEnable()
        {
            if (session == null)
            {
                session = GetComponentInParent<HolocastSession>();
            }
            material = new Material(Resources.Load<Shader>(ShaderName)) { name = "Holocast sphere",
                hideFlags = HideFlags.HideAndDontSave };
            mesh = Box();
            around = new GameObject("360° video") { hideFlags = HideFlags.DontSave, layer = gameObject.layer };
            around.transform.SetParent(transform, false);
            around.AddComponent<MeshFilter>().sharedMesh = mesh;
            surface = around.AddComponent<MeshRenderer>();
            surface.sharedMaterial = material;
            surface.shadowCastingMode = ShadowCastingMode.Off;
            surface.receiveShadows = false;
            surface.lightProbeUsage = LightProbeUsage.Off;
            surface.reflectionProbeUsage = ReflectionProbeUsage.Off;
            surface.motionVectorGenerationMode = MotionVectorGenerationMode.ForceNoMotion;
            surface.enabled = false;
        }

        void OnDisable()
        {
            Unsubscribe();
            surface.enabled = false;
            textures.Dispose();
            Destroy(material);
            Destroy(mesh);
            Destroy(around);
        }

        // Eight vertices without data; the shader uses SV_VertexID. Culling is disabled.
        static Mesh Box()
        {
            var box = new Mesh { name = "Holocast sphere", hideFlags = HideFlags.HideAndDontSave };
            box.SetVertices(new Vector3[8]);
            box.SetTriangles(new[]
            {
                0, 2, 1, 1, 2, 3, 4, 5, 6, 5, 7, 6, // z
                0, 1, 4, 1, 5, 4, 2, 6, 3, 3, 6, 7, // y
                0, 4, 2, 2, 4, 6, 1, 3, 5, 3, 7, 5, // x
            }, 0);
            box.bounds = new Bounds(Vector3.zero, new Vector3(1e6f, 1e6f, 1e6f));
            return box;
        }

        // Unsubscribes. The last picture stays until the session changes.
        void Unsubscribe()
        {
            if (session == null)
            {
                return;
            }
            if (session.Client != null && generation == session.Generation)
            {
                session.Client.Unsubscribe(Abi.Sphere);
            }
            session.ShowsSphere = false;
            generation = -1;
        }

        // Runs after the session's Update, before rendering.
        void LateUpdate()
        {
            if (session == null)
            {
                return;
            }
            Client client = session.Client;
            if (client == null)
            {
                generation = -1;
                Hide();
                return;
            }
            if (generation != session.Generation)
            {
                Hide();
                generation = session.Generation;
                client.Subscribe(Abi.Sphere, null, 0);
                session.ShowsSphere = true;
            }
            ReportGaze(client);
            if (client.Acquire(out HcPicture picture))
            {
                bool shown = textures.Write(client, picture);
                client.Release(picture, shown ? Abi.ShownNow : Abi.NotShown);
                if (shown)
                {
                    Show(picture);
                }
            }
        }

        // Reports the main camera's viewport, which selects the tiles to fetch in high resolution.
        void ReportGaze(Client client)
        {
            if (eyes == null)
            {
                eyes = Camera.main;
                if (eyes == null)
                {
                    return;
                }
            }
            Vector3 gaze = Quaternion.Inverse(around.transform.rotation) * (eyes.transform.rotation * Vector3.forward);
            float height = Mathf.Clamp(eyes.fieldOfView, 10, 150);
            float width = 2 * Mathf.Rad2Deg * Mathf.Atan(eyes.aspect * Mathf.Tan(height * Mathf.Deg2Rad / 2));
            client.Gaze(gaze.x, gaze.y, gaze.z, Mathf.Clamp(width, 10, 150), height);
        }

        void Hide()
        {
            surface.enabled = false;
            Width = Height = 0;
        }

        void Show(in HcPicture p)
        {
            Stereo = (p.flags & Abi.PictureStereo) != 0;
            Width = (int)p.width;
            Height = (int)p.height;
            textures.Bind(material);
            material.SetFloat(Eyes, Stereo ? 2 : 1);
            material.SetFloat(FullRange, (p.flags & Abi.PictureFullRange) != 0 ? 1 : 0);
            bool old = p.matrix == Abi.MatrixBt601;
            material.SetFloat(Red, old ? 0.299f : 0.2126f);
            material.SetFloat(Blue, old ? 0.114f : 0.0722f);
            around.transform.localRotation = Rotation(p.yaw, p.pitch, p.roll);
            surface.enabled = true;
        }

        // Rotation from picture to object coordinates, as in the web viewer: positive yaw turns the
        // picture's centre to the right, pitch up, roll counter-clockwise. Degrees.
        internal static Quaternion Rotation(float yaw, float pitch, float roll)
        {
            return Quaternion.AngleAxis(yaw, Vector3.up) * Quaternion.AngleAxis(-pitch,
                Vector3.right) * Quaternion.AngleAxis(roll, Vector3.forward);
        }
    }
}
