using System;
using System.Collections.Generic;
using System.Reflection;

namespace UnityEngine
{
    [Flags]
    public enum HideFlags
    {
        None = 0,
        HideInHierarchy = 1,
        DontSaveInEditor = 4,
        DontSaveInBuild = 16,
        DontUnloadUnusedAsset = 32,
        DontSave = DontSaveInEditor | DontSaveInBuild | DontUnloadUnusedAsset,
        HideAndDontSave = HideInHierarchy | DontSave | 8,
    }

    public enum FindObjectsSortMode
    {
        None = 0,
        InstanceID = 1,
    }

    public class Object
    {
        internal bool destroyed;

        public string name { get; set; } = "";
        public HideFlags hideFlags { get; set; }

        public static void Destroy(Object o) => DestroyImmediate(o);

        public static void DestroyImmediate(Object o)
        {
            if (o is null || o.destroyed)
            {
                return;
            }
            o.OnDestroyed();
            o.destroyed = true;
        }

        internal virtual void OnDestroyed()
        {
            Stub.Loop.Destroyed(this);
        }

        public static T FindAnyObjectByType<T>() where T : Object
        {
            T[] all = FindObjectsByType<T>(FindObjectsSortMode.None);
            return all.Length > 0 ? all[0] : null;
        }

        public static T[] FindObjectsByType<T>(FindObjectsSortMode sortMode) where T : Object
        {
            var found = new List<T>();
            foreach (GameObject o in Stub.Loop.Objects)
            {
                if (!o.activeInHierarchy)
                {
                    continue;
                }
                foreach (Component c in o.components)
                {
                    if (c is T t)
                    {
                        found.Add(t);
                    }
                }
            }
            return found.ToArray();
        }

        // Destroyed objects compare equal to null.
        public static bool operator ==(Object a, Object b)
        {
            bool none = a is null || a.destroyed, no = b is null || b.destroyed;
            return none || no ? none == no : ReferenceEquals(a, b);
        }

        public static bool operator !=(Object a, Object b) => !(a == b);

        public static implicit operator bool(Object o) => o != null;

        public override bool Equals(object o) => o is Object u ? this == u : o is null && destroyed;

        public override int GetHashCode() => System.Runtime.CompilerServices.RuntimeHelpers.GetHashCode(this);
    }

    public sealed class GameObject : Object
    {
        internal readonly List<Component> components = new List<Component>();
        bool active = true;

        public GameObject() : this("New Game Object")
        {
        }

        public GameObject(string name)
        {
            this.name = name;
            transform = new Transform { gameObject = this };
            components.Add(transform);
            Stub.Loop.Objects.Add(this);
        }

        public Transform transform { get; }
        public int layer { get; set; }
        public string tag { get; set; } = "Untagged";
        public bool activeSelf => active;
        public bool activeInHierarchy => active
            && (transform.parent == null || transform.parent.gameObject.activeInHierarchy);

        public void SetActive(bool value)
        {
            if (active == value)
            {
                return;
            }
            active = value;
            Refresh();
        }

        internal void Refresh()
        {
            foreach (Component c in components.ToArray())
            {
                (c as MonoBehaviour)?.Refresh();
            }
            foreach (Transform t in transform.children.ToArray())
            {
                t.gameObject.Refresh();
            }
        }

        public T AddComponent<T>() where T : Component => (T)AddComponent(typeof(T));

        public Component AddComponent(Type type)
        {
            foreach (RequireComponent r in type.GetCustomAttributes<RequireComponent>(true))
            {
                if (GetComponent(r.type) == null)
                {
                    AddComponent(r.type);
                }
            }
            var c = (Component)Activator.CreateInstance(type, true);
            c.gameObject = this;
            c.name = name;
            components.Add(c);
            if (c is MonoBehaviour b)
            {
                b.Begin();
            }
            return c;
        }

        public T GetComponent<T>() => (T)(object)GetComponent(typeof(T));

        public Component GetComponent(Type type)
        {
            foreach (Component c in components)
            {
                if (type.IsInstanceOfType(c))
                {
                    return c;
                }
            }
            return null;
        }

        internal override void OnDestroyed()
        {
            foreach (Transform t in transform.children.ToArray())
            {
                DestroyImmediate(t.gameObject);
            }
            for (int i = components.Count - 1; i >= 0; i--)
            {
                if (!(components[i] is Transform))
                {
                    DestroyImmediate(components[i]);
                }
            }
            transform.SetParent(null, false);
            transform.destroyed = true;
            Stub.Loop.Objects.Remove(this);
        }
    }

    public class Component : Object
    {
        public GameObject gameObject { get; internal set; }
        public Transform transform => gameObject.transform;

        public T GetComponent<T>() => gameObject.GetComponent<T>();

        public T GetComponentInParent<T>()
        {
            for (Transform t = transform; t != null; t = t.parent)
            {
                if (t.gameObject.GetComponent(typeof(T)) is T found)
                {
                    return found;
                }
            }
            return default;
        }

        public T GetComponentInChildren<T>()
        {
            if (gameObject.GetComponent(typeof(T)) is T here)
            {
                return here;
            }
            foreach (Transform t in transform.children)
            {
                if (t.GetComponentInChildren<T>() is T found)
                {
                    return found;
                }
            }
            return default;
        }

        internal override void OnDestroyed()
        {
            gameObject.components.Remove(this);
        }
    }

    public class Behaviour : Component
    {
        bool on = true;

        public bool enabled
        {
            get => on;
            set
            {
                on = value;
                (this as MonoBehaviour)?.Refresh();
            }
        }

        public bool isActiveAndEnabled => on && gameObject.activeInHierarchy;
    }

    public class MonoBehaviour : Behaviour
    {
        internal Action update, lateUpdate, onGui;
        internal int order;
        bool awake, running, started;

        Action Message(string message)
        {
            for (Type t = GetType(); t != typeof(MonoBehaviour); t = t.BaseType)
            {
                MethodInfo m = t.GetMethod(message, BindingFlags.Instance | BindingFlags.Public | BindingFlags.NonPublic
                    | BindingFlags.DeclaredOnly, null, Type.EmptyTypes, null);
                if (m != null)
                {
                    return (Action)Delegate.CreateDelegate(typeof(Action), this, m);
                }
            }
            return null;
        }

        internal void Begin()
        {
            update = Message("Update");
            lateUpdate = Message("LateUpdate");
            onGui = Message("OnGUI");
            order = GetType().GetCustomAttribute<DefaultExecutionOrder>()?.order ?? 0;
            Refresh();
        }

        internal void Refresh()
        {
            if (!awake && gameObject.activeInHierarchy)
            {
                awake = true;
                Message("Awake")?.Invoke();
            }
            bool should = isActiveAndEnabled;
            if (should == running)
            {
                return;
            }
            running = should;
            if (running)
            {
                Message("OnEnable")?.Invoke();
                Stub.Loop.Add(this);
            }
            else
            {
                Stub.Loop.Remove(this);
                Message("OnDisable")?.Invoke();
            }
        }

        internal void StartOnce()
        {
            if (!started)
            {
                started = true;
                Message("Start")?.Invoke();
            }
        }

        internal override void OnDestroyed()
        {
            if (running)
            {
                running = false;
                Stub.Loop.Remove(this);
                Message("OnDisable")?.Invoke();
            }
            Message("OnDestroy")?.Invoke();
            base.OnDestroyed();
        }
    }

    public sealed class Transform : Component
    {
        internal readonly List<Transform> children = new List<Transform>();

        public Transform parent { get; private set; }
        public Vector3 localPosition { get; set; }
        public Quaternion localRotation { get; set; } = Quaternion.identity;
        public Vector3 localScale { get; set; } = Vector3.one;
        public int childCount => children.Count;

        public Transform GetChild(int i) => children[i];

        public void SetParent(Transform to, bool worldPositionStays)
        {
            Vector3 p = position;
            Quaternion r = rotation;
            parent?.children.Remove(this);
            parent = to;
            to?.children.Add(this);
            if (worldPositionStays)
            {
                SetPositionAndRotation(p, r);
            }
        }

        public Matrix4x4 localToWorldMatrix
        {
            get
            {
                Matrix4x4 m = Matrix4x4.TRS(localPosition, localRotation, localScale);
                return parent is null ? m : parent.localToWorldMatrix * m;
            }
        }

        public Vector3 position
        {
            get => parent is null ? localPosition : parent.TransformPoint(localPosition);
            set => localPosition = parent is null ? value : parent.InverseTransformPoint(value);
        }

        public Quaternion rotation
        {
            get => parent is null ? localRotation : parent.rotation * localRotation;
            set => localRotation = parent is null ? value : Quaternion.Inverse(parent.rotation) * value;
        }

        public Vector3 forward => rotation * Vector3.forward;
        public Vector3 up => rotation * Vector3.up;
        public Vector3 right => rotation * Vector3.right;

        public void SetPositionAndRotation(Vector3 p, Quaternion r)
        {
            position = p;
            rotation = r;
        }

        public Vector3 TransformPoint(Vector3 p) => localToWorldMatrix.MultiplyPoint3x4(p);
        public Vector3 TransformVector(Vector3 v) => localToWorldMatrix.MultiplyVector(v);
        public Vector3 TransformDirection(Vector3 v) => rotation * v;

        public Vector3 InverseTransformPoint(Vector3 p)
        {
            if (!(parent is null))
            {
                p = parent.InverseTransformPoint(p);
            }
            Vector3 q = Quaternion.Inverse(localRotation) * (p - localPosition);
            return new Vector3(q.x / localScale.x, q.y / localScale.y, q.z / localScale.z);
        }

        public void Rotate(Vector3 axis, float angle) => localRotation *= Quaternion.AngleAxis(angle, axis);
    }

    public sealed class Camera : Behaviour
    {
        public float fieldOfView { get; set; } = 60;
        public float aspect { get; set; } = 1.5f;
        public float nearClipPlane { get; set; } = 0.3f;
        public float farClipPlane { get; set; } = 1000;
        public CameraClearFlags clearFlags { get; set; }
        public Color backgroundColor { get; set; }

        public static Camera main
        {
            get
            {
                foreach (GameObject o in Stub.Loop.Objects)
                {
                    if (o.tag == "MainCamera" && o.GetComponent(typeof(Camera)) is Camera c && c.isActiveAndEnabled)
                    {
                        return c;
                    }
                }
                return null;
            }
        }
    }

    public enum CameraClearFlags
    {
        Skybox = 1,
        SolidColor = 2,
    }

    public sealed class BoxCollider : Component
    {
        public Vector3 center { get; set; }
        public Vector3 size { get; set; }
    }

    public static class Resources
    {
        public static T Load<T>(string path) where T : Object => Stub.Loop.Resource(path) as T;
        public static T GetBuiltinResource<T>(string path) where T : Object => Stub.Loop.Resource(path) as T;
    }

    public static class PlayerPrefs
    {
        internal static readonly Dictionary<string, string> Values = new Dictionary<string, string>();

        public static string GetString(string key, string otherwise) => Values.TryGetValue(key, out string v) ? v
            : otherwise;
        public static void SetString(string key, string value) => Values[key] = value;
        public static void DeleteKey(string key) => Values.Remove(key);
        public static void Save()
        {
        }
    }

    public static class Time
    {
        public static double unscaledTimeAsDouble { get; internal set; }
        public static float unscaledDeltaTime { get; internal set; }
        public static float deltaTime => unscaledDeltaTime;
        public static float realtimeSinceStartup => (float)unscaledTimeAsDouble;
    }

    public static class Application
    {
        public static bool isPlaying { get; internal set; } = true;
        public static int targetFrameRate { get; set; } = -1;
        public static bool isMobilePlatform => false;
        public static string unityVersion => "2022.3.62f1";
        public static bool runInBackground { get; set; }
        public static event Events.UnityAction onBeforeRender;

        internal static void BeforeRender() => onBeforeRender?.Invoke();
    }

    public struct RefreshRate
    {
        public double value => 60;
    }

    public struct Resolution
    {
        public RefreshRate refreshRateRatio => default;
    }

    public static class QualitySettings
    {
        public static int vSyncCount => 1;
    }

    public static class Screen
    {
        public static Resolution currentResolution => default;
        public static int width => 1280;
        public static int height => 720;
    }

    public static class Debug
    {
        public static void Log(object message) => Stub.Loop.Log.Add("log: " + message);
        public static void LogWarning(object message) => Stub.Loop.Log.Add("warning: " + message);
        public static void LogError(object message) => Stub.Loop.Log.Add("error: " + message);
        public static void LogException(Exception e) => Stub.Loop.Log.Add("exception: " + e);
    }
}

namespace UnityEngine.Events
{
    public delegate void UnityAction();

    public delegate void UnityAction<T0>(T0 a);

    public abstract class UnityEventBase
    {
    }

    public class UnityEvent<T0> : UnityEventBase
    {
        readonly List<UnityAction<T0>> listeners = new List<UnityAction<T0>>();

        public void AddListener(UnityAction<T0> call) => listeners.Add(call);
        public void RemoveListener(UnityAction<T0> call) => listeners.Remove(call);

        public void Invoke(T0 a)
        {
            for (int i = 0; i < listeners.Count; i++)
            {
                listeners[i](a);
            }
        }
    }
}

namespace UnityEngine.SceneManagement
{
    public struct Scene
    {
        public string path => "";
    }

    public class SceneManager
    {
        public static Scene GetActiveScene() => default;
    }
}

namespace UnityEngine
{
    [AttributeUsage(AttributeTargets.Field)]
    public sealed class SerializeField : Attribute
    {
    }

    [AttributeUsage(AttributeTargets.Field)]
    public class PropertyAttribute : Attribute
    {
    }

    public sealed class TooltipAttribute : PropertyAttribute
    {
        public TooltipAttribute(string tooltip)
        {
        }
    }

    public sealed class RangeAttribute : PropertyAttribute
    {
        public RangeAttribute(float min, float max)
        {
        }
    }

    public sealed class MinAttribute : PropertyAttribute
    {
        public MinAttribute(float min)
        {
        }
    }

    public sealed class AddComponentMenu : Attribute
    {
        public AddComponentMenu(string menuName)
        {
        }
    }

    public sealed class DisallowMultipleComponent : Attribute
    {
    }

    [AttributeUsage(AttributeTargets.Class)]
    public sealed class DefaultExecutionOrder : Attribute
    {
        public DefaultExecutionOrder(int order)
        {
            this.order = order;
        }

        public int order { get; }
    }

    [AttributeUsage(AttributeTargets.Class, AllowMultiple = true)]
    public sealed class RequireComponent : Attribute
    {
        internal readonly Type type;

        public RequireComponent(Type requiredComponent)
        {
            type = requiredComponent;
        }
    }

    [AttributeUsage(AttributeTargets.Method)]
    public class BeforeRenderOrderAttribute : Attribute
    {
        public BeforeRenderOrderAttribute(int order)
        {
        }
    }
}
