using System;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast
{
    // Builds a glyph mesh from a TextBuffer without allocating. Lines start at x = 0, run
    // downwards, and break at '\n' and at a maximum width.
    sealed class TextMeshBuilder : IDisposable
    {
        // Glyphs requested up front, since adding glyphs later rebuilds the font texture.
        const string Usual =
            " !\"#%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz“”…–±·";

        readonly Font font;
        readonly int fontSize;
        readonly Vector3[] positions;
        readonly Vector2[] uvs;
        readonly int glyphs;
        string extra = "";
        bool stale;

        public TextMeshBuilder(Font font, int fontSize, int glyphs)
        {
            this.font = font;
            this.fontSize = fontSize;
            this.glyphs = glyphs;
            positions = new Vector3[4 * glyphs];
            uvs = new Vector2[4 * glyphs];
            var indices = new int[6 * glyphs];
            for (int i = 0, v = 0; v < 4 * glyphs; v += 4)
            {
                indices[i++] = v;
                indices[i++] = v + 1;
                indices[i++] = v + 2;
                indices[i++] = v + 2;
                indices[i++] = v + 1;
                indices[i++] = v + 3;
            }
            Mesh = new Mesh { name = "Holocast text", hideFlags = HideFlags.HideAndDontSave };
            Mesh.MarkDynamic();
            Mesh.SetVertices(positions);
            Mesh.SetUVs(0, uvs);
            Mesh.SetTriangles(indices, 0);
            Mesh.bounds = new Bounds(Vector3.zero, Vector3.one * 4);
            Font.textureRebuilt += OnTextureRebuilt;
            Request("");
        }

        public Mesh Mesh { get; }

        // True once the font texture has been rebuilt, which moves its glyphs: the mesh must then be
        // rebuilt too.
        public bool Stale => stale;

        // Requests additional glyphs, for example for a session's name.
        public void Request(string characters)
        {
            extra = characters;
            font.RequestCharactersInTexture(Usual, fontSize);
            if (extra.Length > 0)
            {
                font.RequestCharactersInTexture(extra, fontSize);
            }
        }

        // height: line height, metres. width: maximum line width, metres.
        public void Build(TextBuffer text, float height, float width)
        {
            stale = false;
            float scale = height / (1.3f * fontSize);
            float x = 0;
            float y = -height;
            int n = 0;
            for (int i = 0; i < text.Length && n < glyphs; i++)
            {
                char c = text[i];
                if (c == '\n')
                {
                    x = 0;
                    y -= height;
                    continue;
                }
                if (!font.GetCharacterInfo(c, out CharacterInfo glyph, fontSize))
                {
                    continue;
                }
                // Wrap a word that would exceed the width.
                bool begins = c != ' ' && (i == 0 || text[i - 1] == ' ');
                if (begins && x > 0 && x + WordWidth(text, i, scale) > width)
                {
                    x = 0;
                    y -= height;
                }
                int v = 4 * n++;
                float left = x + glyph.minX * scale, right = x + glyph.maxX * scale;
                float bottom = y + glyph.minY * scale, top = y + glyph.maxY * scale;
                positions[v] = new Vector3(left, bottom, 0);
                positions[v + 1] = new Vector3(left, top, 0);
                positions[v + 2] = new Vector3(right, bottom, 0);
                positions[v + 3] = new Vector3(right, top, 0);
                uvs[v] = glyph.uvBottomLeft;
                uvs[v + 1] = glyph.uvTopLeft;
                uvs[v + 2] = glyph.uvBottomRight;
                uvs[v + 3] = glyph.uvTopRight;
                x += glyph.advance * scale;
            }
            Mesh.SetVertices(positions);
            Mesh.SetUVs(0, uvs);
            Mesh.SetSubMesh(0, new SubMeshDescriptor(0, 6 * n, MeshTopology.Triangles)
            {
                vertexCount = 4 * n,
                bounds = Mesh.bounds,
            }, MeshUpdateFlags.DontRecalculateBounds | MeshUpdateFlags.DontValidateIndices);
        }

        float WordWidth(TextBuffer text, int from, float scale)
        {
            float w = 0;
            for (int i = from; i < text.Length && text[i] != ' ' && text[i] != '\n'; i++)
            {
                if (font.GetCharacterInfo(text[i], out CharacterInfo glyph, fontSize))
                {
                    w += glyph.advance * scale;
                }
            }
            return w;
        }

        void OnTextureRebuilt(Font rebuilt)
        {
            if (rebuilt == font)
            {
                stale = true;
            }
        }

        public void Dispose()
        {
            Font.textureRebuilt -= OnTextureRebuilt;
            UnityEngine.Object.Destroy(Mesh);
        }
    }
}
