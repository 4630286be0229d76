namespace UnityEngine
{
    public class GUIContent
    {
        public GUIContent(string text)
        {
        }
    }

    public sealed class GUILayoutOption
    {
    }

    public class GUILayout
    {
        public static bool Button(string text, params GUILayoutOption[] options) => false;
        public static void Label(string text, params GUILayoutOption[] options)
        {
        }

        public static string TextField(string text, params GUILayoutOption[] options) => text;
        public static bool Toggle(bool value, string text, params GUILayoutOption[] options) => value;
        public static float HorizontalSlider(float value, float leftValue, float rightValue,
            params GUILayoutOption[] options) => value;
        public static void BeginArea(Rect screenRect)
        {
        }

        public static void EndArea()
        {
        }

        public static void BeginHorizontal(params GUILayoutOption[] options)
        {
        }

        public static void EndHorizontal()
        {
        }

        public static GUILayoutOption Width(float width) => null;
        public static void Space(float pixels)
        {
        }
    }

    public class GUI
    {
        public static bool enabled { get; set; }
        public static bool changed { get; set; }
    }

    public class Input
    {
        public static Vector3 mousePosition => default;
        public static Vector2 mouseScrollDelta => default;
        public static bool GetMouseButton(int button) => false;
        public static bool GetKeyDown(KeyCode key) => false;
        public static float GetAxis(string axisName) => 0;
    }

    public enum KeyCode
    {
        Space = 32,
        H = 104,
        R = 114,
    }

    public class TouchScreenKeyboard
    {
        public enum Status
        {
            Visible = 0,
            Done = 1,
            Canceled = 2,
            LostFocus = 3,
        }

        public static bool isSupported => false;
        public Status status => Status.Done;
        public string text { get; set; }
        public static TouchScreenKeyboard Open(string text, TouchScreenKeyboardType keyboardType,
            bool autocorrection) => new TouchScreenKeyboard { text = text };
    }

    public enum TouchScreenKeyboardType
    {
        Default = 0,
        URL = 3,
    }
}
