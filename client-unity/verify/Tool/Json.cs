using System.IO;
using System.Text.Json;

namespace Holocast.Verify
{
    static class Json
    {
        public static JsonElement Read(string path)
        {
            using (JsonDocument d = JsonDocument.Parse(File.ReadAllText(path)))
            {
                return d.RootElement.Clone();
            }
        }

        public static string[] Strings(this JsonElement e, string name)
        {
            if (!e.TryGetProperty(name, out JsonElement list))
            {
                return new string[0];
            }
            var s = new string[list.GetArrayLength()];
            for (int i = 0; i < s.Length; i++)
            {
                s[i] = list[i].GetString();
            }
            return s;
        }

        public static string Text(this JsonElement e, string name)
        {
            return e.TryGetProperty(name, out JsonElement v) && v.ValueKind == JsonValueKind.String ? v.GetString()
                : "";
        }
    }
}
