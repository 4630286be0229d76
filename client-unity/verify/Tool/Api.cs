using System;
using System.Collections.Generic;
using System.Collections.Immutable;
using System.IO;
using System.Linq;
using System.Reflection.Metadata;
using System.Reflection.PortableExecutable;
using System.Text;
using System.Text.RegularExpressions;

namespace Holocast.Verify
{
    // Checks that every member of Unity and other packages that the package uses exists, since the
    // stub might contain invented ones. Uses Unity's signatures as published for TypeScript
    // (unity-types), and a manually reviewed list (Stub/reviewed.txt) for members missing there.
    sealed class Api
    {
        static readonly string[] Own =
            { "Holocast.Client", "Holocast.Client.Mrtk", "Holocast.Client.Editor", "Holocast.Client.Tests",
            "Holocast.Client.Editor.Tests", "Holocast.Samples.Viewer", "Holocast.Samples.Recorded",
            "Holocast.Samples.Panorama" };

        readonly Folders folders;
        readonly Dictionary<string, DeclaredType> types = new Dictionary<string, DeclaredType>();
        readonly HashSet<string> reviewed = new HashSet<string>();
        readonly HashSet<string> reviewedUsed = new HashSet<string>();
        readonly SortedSet<string> missing = new SortedSet<string>(StringComparer.Ordinal);
        readonly SortedSet<string> ofUnity = new SortedSet<string>(StringComparer.Ordinal);
        readonly SortedSet<string> found = new SortedSet<string>(StringComparer.Ordinal);

        public Api(Folders folders)
        {
            this.folders = folders;
        }

        public void Check()
        {
            foreach (string path in Directory.GetFiles(Path.Combine(folders.Tools, "unity-types"), "Unity*.d.ts"))
            {
                Declarations(File.ReadAllLines(path));
            }
            string list = Path.Combine(folders.Verify, "Stub/reviewed.txt");
            foreach (string line in File.ReadAllLines(list))
            {
                string entry = line.Split(" #")[0].Trim();
                if (entry.Length > 0 && !entry.StartsWith("#"))
                {
                    reviewed.Add(entry);
                }
            }
            foreach (string variant in new[] { "linux", "editor", "uwp-mrtk3-openxr", "android-arfoundation" })
            {
                foreach (string assembly in Own)
                {
                    string path = Path.Combine(folders.Output, variant, assembly + ".dll");
                    if (File.Exists(path))
                    {
                        Uses(path);
                    }
                }
            }
            Enums();
            foreach (string unused in reviewed.Except(reviewedUsed).OrderBy(r => r, StringComparer.Ordinal))
            {
                missing.Add("reviewed.txt lists " + unused + ", which the package does not use");
            }
            if (missing.Count > 0)
            {
                throw new Failure("neither in unity-types nor in reviewed.txt:\n" + string.Join("\n", missing));
            }
            Console.WriteLine(found.Count + " members of Unity match unity-types, " + reviewedUsed.Count
                + " are reviewed");
            Compare();
        }

        // Checks the used members of Unity itself against the sources of each fetched Unity version.
        void Compare()
        {
            string sources = Path.Combine(folders.Tools, "reference");
            if (!Directory.Exists(sources))
            {
                Console.WriteLine("not compared with Unity's C# reference: it is absent (see README.md)");
                return;
            }
            string[] types = ofUnity.Select(u => u.Split("::")[0].Split('$')[0]).Select(t =>
                t.Substring(t.LastIndexOf('.') + 1)).Distinct().ToArray();
            foreach (string version in Directory.GetDirectories(sources).OrderBy(v => v, StringComparer.Ordinal))
            {
                string unity = "Unity " + Path.GetFileName(version);
                var reference = new Reference(version, types);
                var wrong = new List<string>();
                int obsolete = 0;
                foreach (string used in ofUnity)
                {
                    if (!reference.Find(used, out string told))
                    {
                        wrong.Add(used + " does not exist");
                    }
                    else if (told != null && told.StartsWith(Reference.Error))
                    {
                        wrong.Add(used + " is obsolete: " + told.Substring(Reference.Error.Length));
                    }
                    else if (told != null)
                    {
                        obsolete++;
                        Console.WriteLine("warning: " + unity + ": " + used + " is obsolete: " + told);
                    }
                }
                if (wrong.Count > 0)
                {
                    throw new Failure(unity + ":\n" + string.Join("\n", wrong));
                }
                Console.WriteLine(unity + " has all " + ofUnity.Count + " types and members, " + obsolete
                    + " of them obsolete");
            }
        }

        sealed class DeclaredType
        {
            public string Base;
            public readonly HashSet<string> Members = new HashSet<string>();
            public readonly Dictionary<string, long> Values = new Dictionary<string, long>();
        }

        // Parses declarations, one per line, within namespaces and types that end with a brace.
        void Declarations(string[] lines)
        {
            var scope = new List<string>();
            DeclaredType type = null;
            foreach (string raw in lines)
            {
                string line = raw.Trim();
                Match m;
                if ((m = Regex.Match(line, @"^(?:declare )?namespace (\S+) \{")).Success)
                {
                    scope.Add(m.Groups[1].Value == "CS" ? "" : m.Groups[1].Value);
                }
                else if ((m = Regex.Match(line,
                    @"^(?:abstract )?(?:class|interface|enum) ([\w$]+)(<[^{]*?>)?(?: extends ([\w.$]+))?.*\{")).Success)
                {
                    string name = string.Join(".", scope.Where(s => s.Length > 0).Append(m.Groups[1].Value));
                    if (!types.TryGetValue(name, out type))
                    {
                        types[name] = type = new DeclaredType();
                    }
                    type.Base = m.Groups[3].Success ? m.Groups[3].Value : type.Base;
                    scope.Add(null);
                    if (line.EndsWith("}"))
                    {
                        scope.RemoveAt(scope.Count - 1);
                        type = null;
                    }
                }
                else if (line.StartsWith("}"))
                {
                    if (scope.Count > 0)
                    {
                        scope.RemoveAt(scope.Count - 1);
                    }
                    type = null;
                }
                else if (type != null)
                {
                    Member(type, line);
                }
                else if ((m = Regex.Match(line, @"^type ([\w$]+)(?:<.*?>)? = \((.*)\) => ")).Success)
                {
                    types[string.Join(".", scope.Where(s => s.Length > 0).Append(m.Groups[1].Value))] =
                        new DeclaredType();
                }
            }
        }

        static void Member(DeclaredType type, string line)
        {
            Match m;
            line = Regex.Replace(line, @"^public ", "");
            if ((m = Regex.Match(line, @"^(\w+) = (-?\d+),?$")).Success)
            {
                type.Values[m.Groups[1].Value] = long.Parse(m.Groups[2].Value);
                return;
            }
            line = Regex.Replace(line, @"^(static |readonly |abstract )+", "");
            if ((m = Regex.Match(line, @"^get (\w+)\(\): (.+);$")).Success)
            {
                type.Members.Add("get_" + m.Groups[1].Value + "()");
            }
            else if ((m = Regex.Match(line, @"^set (\w+)\(value: (.+)\);$")).Success)
            {
                type.Members.Add("set_" + m.Groups[1].Value + "(" + Script(m.Groups[2].Value) + ")");
            }
            else if ((m = Regex.Match(line, @"^(\w+)\??: ([^()]+);$")).Success)
            {
                // A field, or a property with getter and setter.
                string t = Script(m.Groups[2].Value);
                type.Members.Add(m.Groups[1].Value);
                type.Members.Add("get_" + m.Groups[1].Value + "()");
                type.Members.Add("set_" + m.Groups[1].Value + "(" + t + ")");
            }
            else if ((m = Regex.Match(line, @"^(\w+)(?:<.*?>)?\((.*)\)(?:: .+)?;$")).Success)
            {
                var parameters = new List<string>();
                string name = m.Groups[1].Value == "constructor" ? ".ctor" : m.Groups[1].Value;
                foreach (string p in Split(m.Groups[2].Value))
                {
                    Match q = Regex.Match(p.Trim(), @"^(\.\.\.)?\$?(\w+)(\??): (.+)$");
                    // Optional parameters too: compiled calls pass them.
                    parameters.Add(q.Success ? Script(q.Groups[4].Value) : "?");
                }
                type.Members.Add(name + "(" + string.Join(", ", parameters) + ")");
            }
        }

        // Splits at commas outside brackets.
        static IEnumerable<string> Split(string list)
        {
            int depth = 0, from = 0;
            for (int i = 0; i < list.Length; i++)
            {
                char c = list[i];
                depth += "<({[".IndexOf(c) >= 0 ? 1 : ">)}]".IndexOf(c) >= 0 && (c != '>' || list[i - 1] != '=') ? -1
                    : 0;
                if (c == ',' && depth == 0)
                {
                    yield return list.Substring(from, i - from);
                    from = i + 1;
                }
            }
            if (list.Trim().Length > 0)
            {
                yield return list.Substring(from);
            }
        }

        // Converts a TypeScript type to the notation of Simple below.
        static string Script(string t)
        {
            t = t.Trim();
            Match m = Regex.Match(t, @"^(?:System\.Array\$1|\$Ref|\$Out)<(.+)>$");
            if (m.Success)
            {
                return t.StartsWith("System.Array") ? Script(m.Groups[1].Value) + "[]" : "&"
                    + Script(m.Groups[1].Value);
            }
            if (t == "any")
            {
                return "object";
            }
            if (t == "System.TypeLike")
            {
                return "System.Type";
            }
            if ((m = Regex.Match(t, @"^([\w.$]+)<(.+)>$")).Success)
            {
                return m.Groups[1].Value + "<" + string.Join(", ", Split(m.Groups[2].Value).Select(Script)) + ">";
            }
            return Regex.IsMatch(t, @"^T\d*$") ? "T" : t;
        }

        // Collects an assembly's references to the stub.
        void Uses(string path)
        {
            using (var file = new PEReader(File.OpenRead(path)))
            {
                MetadataReader r = file.GetMetadataReader();
                var names = new Names(r);
                foreach (MemberReferenceHandle h in r.MemberReferences)
                {
                    MemberReference m = r.GetMemberReference(h);
                    string type = names.Of(m.Parent);
                    if (type == null || !IsForeign(names.Assembly(m.Parent)))
                    {
                        continue;
                    }
                    string name = r.GetString(m.Name);
                    string member = m.GetKind() == MemberReferenceKind.Field
                        ? name
                        : name + "(" + string.Join(", ", m.DecodeMethodSignature(names, null).ParameterTypes) + ")";
                    Look(type, member, path);
                    if (IsUnity(names.Assembly(m.Parent)))
                    {
                        ofUnity.Add(type + "::" + member);
                    }
                }
                foreach (TypeReferenceHandle h in r.TypeReferences)
                {
                    if (IsForeign(names.Assembly(h)))
                    {
                        LookType(names.Of(h));
                    }
                    if (IsUnity(names.Assembly(h)))
                    {
                        ofUnity.Add(names.Of(h));
                    }
                }
            }
        }

        static bool IsForeign(string assembly)
        {
            return assembly != null && !assembly.StartsWith("System") && !assembly.StartsWith("Holocast")
                && assembly != "netstandard" && assembly != "mscorlib" && assembly != "nunit.framework"
                && assembly != "Newtonsoft.Json";
        }

        static bool IsUnity(string assembly)
        {
            return assembly == "UnityEngine" || assembly == "UnityEditor";
        }

        void LookType(string type)
        {
            if (type == null || types.ContainsKey(type))
            {
                return;
            }
            Review(type);
        }

        void Look(string type, string member, string path)
        {
            string written = type + "::" + member;
            if (type == "UnityEngine.Input" && path.Contains("/uwp"))
            {
                missing.Add(Path.GetFileNameWithoutExtension(path) + " calls " + written
                    + ", which throws where only the Input System is on");
            }
            for (string t = type; t != null && types.TryGetValue(t, out DeclaredType declared); t = declared.Base)
            {
                if (declared.Members.Contains(member) || member == ".ctor()")
                {
                    found.Add(written);
                    return;
                }
            }
            Review(written);
        }

        void Review(string entry)
        {
            if (reviewed.Contains(entry))
            {
                reviewedUsed.Add(entry);
            }
            else
            {
                missing.Add(entry);
            }
        }

        // Compiled code contains enum values, not names, so compare all values of the stub's enums
        // with Unity's.
        void Enums()
        {
            foreach (string stub in Directory.GetFiles(Path.Combine(folders.Output, "stub"), "*.dll"))
            {
                using (var file = new PEReader(File.OpenRead(stub)))
                {
                    MetadataReader r = file.GetMetadataReader();
                    var names = new Names(r);
                    foreach (TypeDefinitionHandle h in r.TypeDefinitions)
                    {
                        TypeDefinition t = r.GetTypeDefinition(h);
                        if (t.BaseType.IsNil || names.Of(t.BaseType) != "System.Enum")
                        {
                            continue;
                        }
                        string type = names.Of(h);
                        types.TryGetValue(type, out DeclaredType declared);
                        foreach (FieldDefinition f in t.GetFields().Select(r.GetFieldDefinition)
                            .Where(f => !f.GetDefaultValue().IsNil))
                        {
                            string name = r.GetString(f.Name);
                            if (IsUnity(Path.GetFileNameWithoutExtension(stub)))
                            {
                                ofUnity.Add(type + "::" + name);
                            }
                            Constant c = r.GetConstant(f.GetDefaultValue());
                            long value = Convert.ToInt64(r.GetBlobReader(c.Value).ReadConstant(c.TypeCode));
                            if (declared != null && declared.Values.TryGetValue(name, out long real) && real == value)
                            {
                                found.Add(type + "." + name);
                            }
                            else
                            {
                                Review(type + "." + name + " = " + value);
                            }
                        }
                    }
                }
            }
        }

        // Types in a notation common to both sides: all numbers are one type.
        sealed class Names : ISignatureTypeProvider<string, object>
        {
            readonly MetadataReader r;

            public Names(MetadataReader r)
            {
                this.r = r;
            }

            public string Of(EntityHandle h)
            {
                switch (h.Kind)
                {
                    case HandleKind.TypeReference: return GetTypeFromReference(r, (TypeReferenceHandle)h, 0);
                    case HandleKind.TypeDefinition: return GetTypeFromDefinition(r, (TypeDefinitionHandle)h, 0);
                    case HandleKind.TypeSpecification:
                        string full = r.GetTypeSpecification((TypeSpecificationHandle)h).DecodeSignature(this, null);
                        int generic = full.IndexOf('<');
                        return generic < 0 ? full : full.Substring(0, generic);
                    default: return null;
                }
            }

            public string Assembly(EntityHandle h)
            {
                switch (h.Kind)
                {
                    case HandleKind.TypeReference:
                        EntityHandle scope = r.GetTypeReference((TypeReferenceHandle)h).ResolutionScope;
                        return scope.Kind == HandleKind.AssemblyReference
                            ? r.GetString(r.GetAssemblyReference((AssemblyReferenceHandle)scope).Name)
                            : Assembly(scope);
                    case HandleKind.TypeSpecification:
                        // Name of the generic type itself.
                        var finder = new Generic(r);
                        r.GetTypeSpecification((TypeSpecificationHandle)h).DecodeSignature(finder, null);
                        return finder.Type.IsNil ? null : Assembly(finder.Type);
                    default: return null;
                }
            }

            public string GetTypeFromReference(MetadataReader _, TypeReferenceHandle h, byte raw)
            {
                TypeReference t = r.GetTypeReference(h);
                string name = r.GetString(t.Name).Replace('`', '$');
                if (t.ResolutionScope.Kind == HandleKind.TypeReference)
                {
                    return GetTypeFromReference(r, (TypeReferenceHandle)t.ResolutionScope, 0) + "." + name;
                }
                string space = r.GetString(t.Namespace);
                return space.Length == 0 ? name : space + "." + name;
            }

            public string GetTypeFromDefinition(MetadataReader _, TypeDefinitionHandle h, byte raw)
            {
                TypeDefinition t = r.GetTypeDefinition(h);
                string name = r.GetString(t.Name).Replace('`', '$');
                if (!t.GetDeclaringType().IsNil)
                {
                    return GetTypeFromDefinition(r, t.GetDeclaringType(), 0) + "." + name;
                }
                string space = r.GetString(t.Namespace);
                return space.Length == 0 ? name : space + "." + name;
            }

            public string GetPrimitiveType(PrimitiveTypeCode c)
            {
                switch (c)
                {
                    case PrimitiveTypeCode.Boolean: return "boolean";
                    case PrimitiveTypeCode.String: return "string";
                    case PrimitiveTypeCode.Object: return "object";
                    case PrimitiveTypeCode.Void: return "void";
                    default: return "number"; // including characters
                }
            }

            public string GetSZArrayType(string of) => of + "[]";
            public string GetArrayType(string of, ArrayShape shape) => of + "[]";
            public string GetByReferenceType(string of) => "&" + of;
            public string GetPointerType(string of) => of + "*";
            public string GetPinnedType(string of) => of;
            public string GetGenericInstantiation(string of, ImmutableArray<string> a) => of + "<"
                + string.Join(", ", a) + ">";
            public string GetGenericMethodParameter(object _, int i) => "T";
            public string GetGenericTypeParameter(object _, int i) => "T";
            public string GetModifiedType(string modifier, string of, bool required) => of;
            public string GetFunctionPointerType(MethodSignature<string> s) => "function";
            public string GetTypeFromSpecification(MetadataReader _, object c, TypeSpecificationHandle h, byte raw) =>
                Of(h);
        }

        // Resolves the generic type of an instantiation.
        sealed class Generic : ISignatureTypeProvider<EntityHandle, object>
        {
            public EntityHandle Type;

            public Generic(MetadataReader _)
            {
            }

            public EntityHandle GetTypeFromReference(MetadataReader _, TypeReferenceHandle h, byte raw) => h;
            public EntityHandle GetTypeFromDefinition(MetadataReader _, TypeDefinitionHandle h, byte raw) => h;
            public EntityHandle GetPrimitiveType(PrimitiveTypeCode c) => default;
            public EntityHandle GetSZArrayType(EntityHandle of) => of;
            public EntityHandle GetArrayType(EntityHandle of, ArrayShape shape) => of;
            public EntityHandle GetByReferenceType(EntityHandle of) => of;
            public EntityHandle GetPointerType(EntityHandle of) => of;
            public EntityHandle GetPinnedType(EntityHandle of) => of;
            public EntityHandle GetGenericInstantiation(EntityHandle of, ImmutableArray<EntityHandle> a) => Type = of;
            public EntityHandle GetGenericMethodParameter(object _, int i) => default;
            public EntityHandle GetGenericTypeParameter(object _, int i) => default;
            public EntityHandle GetModifiedType(EntityHandle modifier, EntityHandle of, bool required) => of;
            public EntityHandle GetFunctionPointerType(MethodSignature<EntityHandle> s) => default;
            public EntityHandle GetTypeFromSpecification(MetadataReader _, object c, TypeSpecificationHandle h,
                byte raw) => default;
        }
    }
}
