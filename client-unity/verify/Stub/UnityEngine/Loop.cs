using System.Collections.Generic;

namespace UnityEngine.Stub
{
    // Unity's player loop, as the package sees it. For tests; Unity has no such class.
    public static class Loop
    {
        public static readonly List<GameObject> Objects = new List<GameObject>();
        public static readonly List<string> Log = new List<string>();
        static readonly List<MonoBehaviour> behaviours = new List<MonoBehaviour>();
        static readonly List<MonoBehaviour> running = new List<MonoBehaviour>();
        static readonly Dictionary<string, Object> resources = new Dictionary<string, Object>();
        static bool changed;

        // Number of frames so far.
        public static int Frame { get; private set; }

        // Runs one frame, with the time since the previous one.
        public static void Tick(float seconds)
        {
            Time.unscaledDeltaTime = seconds;
            Time.unscaledTimeAsDouble += seconds;
            Frame++;
            Refresh();
            for (int i = 0; i < running.Count; i++)
            {
                running[i].StartOnce();
            }
            for (int i = 0; i < running.Count; i++)
            {
                if (running[i].isActiveAndEnabled)
                {
                    running[i].update?.Invoke();
                }
            }
            for (int i = 0; i < running.Count; i++)
            {
                if (!running[i].destroyed && running[i].isActiveAndEnabled)
                {
                    running[i].lateUpdate?.Invoke();
                }
            }
            Application.BeforeRender();
        }

        static void Refresh()
        {
            if (!changed)
            {
                return;
            }
            changed = false;
            running.Clear();
            running.AddRange(behaviours);
            // Stable sort: creation order within the same execution order.
            for (int i = 1; i < running.Count; i++)
            {
                for (int k = i; k > 0 && running[k - 1].order > running[k].order; k--)
                {
                    MonoBehaviour b = running[k];
                    running[k] = running[k - 1];
                    running[k - 1] = b;
                }
            }
        }

        internal static void Add(MonoBehaviour b)
        {
            behaviours.Add(b);
            changed = true;
        }

        internal static void Remove(MonoBehaviour b)
        {
            behaviours.Remove(b);
            changed = true;
        }

        internal static void Destroyed(Object o)
        {
        }

        // Result of Resources.Load.
        public static Object Resource(string path)
        {
            if (!resources.TryGetValue(path, out Object o))
            {
                if (path.EndsWith(".ttf"))
                {
                    o = new Font();
                }
                else if (path == "HolocastQuads")
                {
                    o = new ComputeShader { name = path };
                }
                else
                {
                    o = new Shader { name = path };
                }
                resources[path] = o;
            }
            return o;
        }

        // Destroys all objects, and clears the player preferences and the log.
        public static void Clear()
        {
            while (Objects.Count > 0)
            {
                Object.DestroyImmediate(Objects[Objects.Count - 1]);
            }
            PlayerPrefs.Values.Clear();
            Log.Clear();
        }
    }
}
