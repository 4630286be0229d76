using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using Unity.Collections;
using UnityEngine.Rendering;

namespace UnityEngine
{
    public sealed class Shader : Object
    {
        static readonly Dictionary<string, int> ids = new Dictionary<string, int>();

        public static int PropertyToID(string name)
        {
            if (!ids.TryGetValue(name, out int id))
            {
                ids[name] = id = ids.Count + 1;
            }
            return id;
        }
    }

    public class Material : Object
    {
        internal readonly Dictionary<int, object> values = new Dictionary<int, object>();
        internal readonly Dictionary<int, float> floats = new Dictionary<int, float>();
        readonly HashSet<string> keywords = new HashSet<string>();

        public Material(Shader shader)
        {
            this.shader = shader ?? throw new ArgumentNullException(nameof(shader));
        }

        public Shader shader { get; set; }
        public Texture mainTexture { get; set; }
        public Color color { get; set; }

        public void SetFloat(int id, float value) => floats[id] = value;
        public void SetTexture(int id, Texture value) => values[id] = value;
        public void SetBuffer(int id, GraphicsBuffer value) => values[id] = value;
        public void EnableKeyword(string keyword) => keywords.Add(keyword);
        public void DisableKeyword(string keyword) => keywords.Remove(keyword);
        public bool IsKeywordEnabled(string keyword) => keywords.Contains(keyword);
        public float GetFloat(int id) => floats[id];
        public Texture GetTexture(int id) => (Texture)values[id];

        // For tests; Unity does not return buffers.
        public GraphicsBuffer StubBuffer(int id) => (GraphicsBuffer)values[id];
    }

    public class Texture : Object
    {
        public virtual int width { get; protected set; }
        public virtual int height { get; protected set; }
        public FilterMode filterMode { get; set; }
        public TextureWrapMode wrapMode { get; set; }
        public TextureWrapMode wrapModeU { get; set; }
        public TextureWrapMode wrapModeV { get; set; }
    }

    public enum FilterMode
    {
        Point = 0,
        Bilinear = 1,
    }

    public enum TextureWrapMode
    {
        Repeat = 0,
        Clamp = 1,
    }

    public enum TextureFormat
    {
        RGBA32 = 4,
        RGFloat = 19,
        R8 = 63,
    }

    public sealed class Texture2D : Texture
    {
        byte[] written = Array.Empty<byte>();
        unsafe byte* raw;

        public Texture2D(int width, int height, TextureFormat format, bool mipChain, bool linear)
        {
            this.width = width;
            this.height = height;
            this.format = format;
        }

        public TextureFormat format { get; }

        public void SetPixelData<T>(T[] data, int mipLevel, int sourceDataStartIndex = 0)
        {
            if (data.Length * Marshal.SizeOf<T>() != width * height * 8)
            {
                throw new ArgumentException("SetPixelData: the data is not as large as the texture");
            }
            written = new byte[data.Length * Marshal.SizeOf<T>()];
            Buffer.BlockCopy(data, 0, written, 0, written.Length);
        }

        // Pixels in memory, written in place.
        public unsafe NativeArray<T> GetRawTextureData<T>() where T : struct
        {
            if (format != TextureFormat.R8 || Marshal.SizeOf<T>() != 1)
            {
                throw new ArgumentException("GetRawTextureData: the stub supports only bytes of R8 textures");
            }
            if (raw == null)
            {
                raw = (byte*)Marshal.AllocHGlobal(width * height);
                StubPixels = new byte[width * height];
            }
            return new NativeArray<T>(raw, width * height);
        }

        public unsafe void Apply(bool updateMipmaps)
        {
            if (raw != null)
            {
                Marshal.Copy((IntPtr)raw, StubPixels, 0, StubPixels.Length);
                return;
            }
            StubPixels = written;
        }

        unsafe ~Texture2D()
        {
            Marshal.FreeHGlobal((IntPtr)raw);
        }

        // For tests: pixels last uploaded to the GPU.
        public byte[] StubPixels { get; private set; } = Array.Empty<byte>();
    }

    public sealed class MeshFilter : Component
    {
        public Mesh sharedMesh { get; set; }
    }

    public class Renderer : Component
    {
        public bool enabled { get; set; } = true;
        public Material sharedMaterial { get; set; }
        public ShadowCastingMode shadowCastingMode { get; set; }
        public bool receiveShadows { get; set; }
        public LightProbeUsage lightProbeUsage { get; set; }
        public ReflectionProbeUsage reflectionProbeUsage { get; set; }
        public MotionVectorGenerationMode motionVectorGenerationMode { get; set; }
    }

    public sealed class MeshRenderer : Renderer
    {
    }

    public enum MotionVectorGenerationMode
    {
        Camera = 0,
        Object = 1,
        ForceNoMotion = 2,
    }

    public enum MeshTopology
    {
        Triangles = 0,
    }

    public sealed class Mesh : Object
    {
        SubMeshDescriptor submesh;

        public Bounds bounds { get; set; }
        public int subMeshCount { get; set; }
        public int vertexCount { get; private set; }

        // For tests: indices last uploaded to the GPU.
        public uint[] StubIndices { get; private set; } = Array.Empty<uint>();
        public Vector3[] StubVertices { get; private set; } = Array.Empty<Vector3>();

        public void SetVertexBufferParams(int vertexCount, params VertexAttributeDescriptor[] attributes) =>
            this.vertexCount = vertexCount;

        public void SetIndexBufferParams(int indexCount, IndexFormat format) => StubIndices = new uint[indexCount];

        public void SetIndexBufferData<T>(NativeArray<T> data, int dataStart, int meshBufferStart, int count,
            MeshUpdateFlags flags = MeshUpdateFlags.Default) where T : struct
        {
            for (int i = 0; i < count; i++)
            {
                StubIndices[meshBufferStart + i] = Convert.ToUInt32(data[dataStart + i]);
            }
        }

        public void SetSubMesh(int index, SubMeshDescriptor desc, MeshUpdateFlags flags = MeshUpdateFlags.Default)
        {
            if (index >= subMeshCount || desc.indexStart + desc.indexCount > StubIndices.Length || desc.firstVertex
                + desc.vertexCount > vertexCount)
            {
                throw new ArgumentException("SetSubMesh: beyond the mesh");
            }
            submesh = desc;
        }

        public SubMeshDescriptor GetSubMesh(int index) => submesh;

        public void MarkDynamic()
        {
        }

        public void SetVertices(Vector3[] vertices)
        {
            vertexCount = vertices.Length;
            StubVertices = vertices;
        }

        public void SetUVs(int channel, Vector2[] uvs)
        {
        }

        public void SetTriangles(int[] triangles, int submesh)
        {
            StubIndices = Array.ConvertAll(triangles, i => (uint)i);
            subMeshCount = Math.Max(subMeshCount, submesh + 1);
        }
    }

    // Uses main memory instead of the GPU's.
    public sealed unsafe class GraphicsBuffer : IDisposable
    {
        [Flags]
        public enum Target
        {
            Vertex = 1,
            Index = 2,
            Structured = 16,
            Raw = 32,
        }

        [Flags]
        public enum UsageFlags
        {
            None = 0,
            LockBufferForWrite = 1,
        }

        byte* memory;
        bool locked;

        public GraphicsBuffer(Target target, int count, int stride)
            : this(target, UsageFlags.None, count, stride)
        {
        }

        public GraphicsBuffer(Target target, UsageFlags usageFlags, int count, int stride)
        {
            if (count <= 0 || stride <= 0 || stride % 4 != 0)
            {
                throw new ArgumentException("GraphicsBuffer: count and stride must be above 0, stride a multiple of 4");
            }
            this.target = target;
            this.usageFlags = usageFlags;
            this.count = count;
            this.stride = stride;
            memory = (byte*)Marshal.AllocHGlobal((IntPtr)((long)count * stride));
            StubAlive++;
        }

        public Target target { get; }
        public UsageFlags usageFlags { get; }
        public int count { get; }
        public int stride { get; }

        public static int StubAlive { get; private set; }

        // The dispatch that wrote the buffer.
        public StubDispatch StubWritten;

        public ReadOnlySpan<byte> StubBytes => new ReadOnlySpan<byte>(memory, count * stride);

        public NativeArray<T> LockBufferForWrite<T>(int bufferStartIndex, int count) where T : struct
        {
            if (locked || memory == null || (usageFlags & UsageFlags.LockBufferForWrite) == 0)
            {
                throw new InvalidOperationException("LockBufferForWrite");
            }
            int size = Marshal.SizeOf<T>();
            if ((bufferStartIndex + count) * size > this.count * stride)
            {
                throw new ArgumentOutOfRangeException(nameof(count));
            }
            locked = true;
            return new NativeArray<T>(memory + bufferStartIndex * size, count);
        }

        public void UnlockBufferAfterWrite<T>(int countWritten) where T : struct
        {
            if (!locked)
            {
                throw new InvalidOperationException("UnlockBufferAfterWrite");
            }
            locked = false;
        }

        public void Dispose()
        {
            if (memory != null)
            {
                Marshal.FreeHGlobal((IntPtr)memory);
                memory = null;
                StubAlive--;
            }
        }
    }

    // Computes nothing; the pictures are drawn with its latest arguments for the buffers it writes.
    public sealed class ComputeShader : Object
    {
        readonly Dictionary<int, object> values = new Dictionary<int, object>();
        readonly Dictionary<int, int> ints = new Dictionary<int, int>();
        readonly Dictionary<int, float> floats = new Dictionary<int, float>();

        public void SetInt(int nameID, int val) => ints[nameID] = val;
        public void SetFloat(int nameID, float val) => floats[nameID] = val;
        public void SetBuffer(int kernelIndex, int nameID, GraphicsBuffer buffer) => values[nameID] = buffer;
        public void SetTexture(int kernelIndex, int nameID, Texture texture) => values[nameID] = texture;

        public void Dispatch(int kernelIndex, int threadGroupsX, int threadGroupsY, int threadGroupsZ)
        {
            foreach (object v in values.Values)
            {
                if (v is GraphicsBuffer b && b.usageFlags == GraphicsBuffer.UsageFlags.None)
                {
                    b.StubWritten ??= new StubDispatch();
                    b.StubWritten.Shader = name;
                    b.StubWritten.Groups = threadGroupsX;
                    foreach (var p in values)
                    {
                        b.StubWritten.Values[p.Key] = p.Value;
                    }
                    foreach (var p in ints)
                    {
                        b.StubWritten.Ints[p.Key] = p.Value;
                    }
                    foreach (var p in floats)
                    {
                        b.StubWritten.Floats[p.Key] = p.Value;
                    }
                }
            }
        }
    }

    public sealed class StubDispatch
    {
        public string Shader;
        public int Groups;
        public readonly Dictionary<int, object> Values = new Dictionary<int, object>();
        public readonly Dictionary<int, int> Ints = new Dictionary<int, int>();
        public readonly Dictionary<int, float> Floats = new Dictionary<int, float>();
    }

    public static class SystemInfo
    {
        public static GraphicsDeviceType graphicsDeviceType => GraphicsDeviceType.Direct3D11;
        public static bool supportsComputeShaders => true;
        public static string deviceModel => "stub";
        public static string operatingSystem => "stub";
    }

    public class TextAsset : Object
    {
        internal byte[] StubBytes = new byte[0];

        public byte[] bytes => StubBytes;
    }

    // A font whose glyphs are all half as wide as high.
    public sealed class Font : Object
    {
        public Font()
        {
            material =
                new Material(new Shader { name = "font" }) { mainTexture =
                new Texture2D(1, 1, TextureFormat.RGBA32, false, false) };
        }

        public static event Action<Font> textureRebuilt;

        public Material material { get; set; }

        public void RequestCharactersInTexture(string characters, int size)
        {
        }

        public bool GetCharacterInfo(char ch, out CharacterInfo info, int size)
        {
            info = new CharacterInfo { size = size };
            return ch >= ' ';
        }

        public void StubRebuild() => textureRebuilt?.Invoke(this);
    }

    public struct CharacterInfo
    {
        public int size;

        public int advance => size / 2;
        public int minX => 0;
        public int maxX => size / 2;
        public int minY => 0;
        public int maxY => size;
        public Vector2 uvBottomLeft => new Vector2(0, 0);
        public Vector2 uvBottomRight => new Vector2(1, 0);
        public Vector2 uvTopLeft => new Vector2(0, 1);
        public Vector2 uvTopRight => new Vector2(1, 1);
    }
}

namespace UnityEngine.Rendering
{
    public enum ShadowCastingMode
    {
        Off = 0,
        On = 1,
    }

    public enum LightProbeUsage
    {
        Off = 0,
    }

    public enum ReflectionProbeUsage
    {
        Off = 0,
    }

    public enum IndexFormat
    {
        UInt16 = 0,
        UInt32 = 1,
    }

    public enum VertexAttribute
    {
        Position = 0,
    }

    public enum VertexAttributeFormat
    {
        Float32 = 0,
        Float16 = 1,
    }

    public struct VertexAttributeDescriptor
    {
        public VertexAttributeDescriptor(VertexAttribute attribute = VertexAttribute.Position,
            VertexAttributeFormat format = VertexAttributeFormat.Float32, int dimension = 3, int stream = 0)
        {
        }
    }

    public struct SubMeshDescriptor
    {
        public SubMeshDescriptor(int indexStart, int indexCount, MeshTopology topology = MeshTopology.Triangles)
        {
            this = default;
            this.indexStart = indexStart;
            this.indexCount = indexCount;
            this.topology = topology;
        }

        public Bounds bounds { get; set; }
        public MeshTopology topology { get; set; }
        public int indexStart { get; set; }
        public int indexCount { get; set; }
        public int firstVertex { get; set; }
        public int vertexCount { get; set; }
    }

    [Flags]
    public enum MeshUpdateFlags
    {
        Default = 0,
        DontValidateIndices = 1,
        DontResetBoneBounds = 2,
        DontNotifyMeshUsers = 4,
        DontRecalculateBounds = 8,
    }

    public enum GraphicsDeviceType
    {
        Direct3D11 = 2,
        Vulkan = 21,
    }

    public abstract class RenderPipelineAsset : ScriptableObject
    {
    }

    public sealed class GraphicsSettings
    {
        public static RenderPipelineAsset currentRenderPipeline => null;
    }
}

namespace UnityEngine
{
    public class ScriptableObject : Object
    {
    }
}

namespace Unity.Collections
{
    public enum Allocator
    {
        Temp = 2,
        Persistent = 4,
    }

    public enum NativeArrayOptions
    {
        UninitializedMemory = 0,
        ClearMemory = 1,
    }

    public unsafe struct NativeArray<T> : IDisposable where T : struct
    {
        internal void* memory;
        bool owned;

        public NativeArray(int length, Allocator allocator, NativeArrayOptions options = NativeArrayOptions.ClearMemory)
        {
            memory = (void*)Marshal.AllocHGlobal(length * Marshal.SizeOf<T>());
            owned = true;
            Length = length;
        }

        internal NativeArray(void* memory, int length)
        {
            this.memory = memory;
            owned = false;
            Length = length;
        }

        public int Length { get; }

        public T this[int i]
        {
            get => new Span<T>(memory, Length)[i];
            set => new Span<T>(memory, Length)[i] = value;
        }

        public void Dispose()
        {
            if (owned)
            {
                Marshal.FreeHGlobal((IntPtr)memory);
            }
            memory = null;
        }
    }
}

namespace Unity.Collections.LowLevel.Unsafe
{
    public static class NativeArrayUnsafeUtility
    {
        public static unsafe void* GetUnsafePtr<T>(this NativeArray<T> array) where T : struct => array.memory;
    }
}
