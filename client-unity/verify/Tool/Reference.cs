using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text.RegularExpressions;
using Microsoft.CodeAnalysis;
using Microsoft.CodeAnalysis.CSharp;
using Microsoft.CodeAnalysis.CSharp.Syntax;

namespace Holocast.Verify
{
    // The public members of one Unity version, read from Unity's C# reference source. Signatures are
    // reduced to simple names, since sources do not qualify types.
    sealed class Reference
    {
        sealed class Declared
        {
            public readonly HashSet<string> Bases = new HashSet<string>();
            public readonly Dictionary<string, string> Members = new Dictionary<string, string>();
            public bool Constructors;
            public string Obsolete;
        }

        // Prefix of the [Obsolete] text of a member whose use is a compile error.
        public const string Error = "error: ";

        readonly Dictionary<string, Declared> types = new Dictionary<string, Declared>();

        // Reads the declarations of the types with these simple names, and of their base types.
        public Reference(string folder, IEnumerable<string> names)
        {
            string[] texts = new[] { "Runtime", "Editor", "Modules", "artifacts" }.Select(f => Path.Combine(folder, f))
                .Where(Directory.Exists).SelectMany(f => Directory.GetFiles(f, "*.cs", SearchOption.AllDirectories))
                .Select(File.ReadAllText).ToArray();
            var read = new HashSet<string>();
            var files = new HashSet<string>();
            for (var wanted = new HashSet<string>(names); wanted.Count > 0;)
            {
                var declares = new Regex(@"\b(?:class|struct|interface|enum|delegate\s+[\w<>\[\],. ]+)\s+(?:"
                    + string.Join("|", wanted) + @")\b");
                foreach (string text in texts.Where(t => !files.Contains(t) && declares.IsMatch(t)))
                {
                    files.Add(text);
                    // Keep both branches of #if, since the symbols depend on the platform.
                    string all = Regex.Replace(text, @"^\s*#.*$", "", RegexOptions.Multiline);
                    foreach (MemberDeclarationSyntax m in CSharpSyntaxTree.ParseText(all).GetCompilationUnitRoot()
                        .Members)
                    {
                        Read(m, "");
                    }
                }
                read.UnionWith(wanted);
                wanted = new HashSet<string>(types.Values.SelectMany(t => t.Bases).Select(Simple)
                    .Select(b => b.Split('<')[0]).Where(b => !read.Contains(b)));
            }
        }

        // Looks up Type, or Type::Member as in Api; returns false if it does not exist. obsolete: the text of
        // [Obsolete], or null.
        public bool Find(string written, out string obsolete)
        {
            int colons = written.IndexOf("::", StringComparison.Ordinal);
            string type = colons < 0 ? written : written.Substring(0, colons);
            if (!types.TryGetValue(type, out Declared declared))
            {
                obsolete = null;
                return false;
            }
            obsolete = declared.Obsolete;
            return colons < 0 || Find(declared, Reduce(written.Substring(colons + 2)), 0, ref obsolete);
        }

        bool Find(Declared type, string member, int depth, ref string obsolete)
        {
            if (type.Members.TryGetValue(member, out string told))
            {
                obsolete = obsolete ?? told;
                return true;
            }
            if (member == ".ctor()" && !type.Constructors)
            {
                return true;
            }
            foreach (string b in type.Bases)
            {
                foreach (Declared t in types.Where(t => Simple(t.Key.Split('$')[0]) == b).Select(t => t.Value))
                {
                    if (depth < 8 && member[0] != '.' && Find(t, member, depth + 1, ref obsolete))
                    {
                        return true;
                    }
                }
            }
            return false;
        }

        // Removes namespaces and the numbers of type parameters.
        static string Reduce(string signature)
        {
            return Regex.Replace(Regex.Replace(signature, @"\$\d+", ""), @"[\w]+\.(?=\w)", "");
        }

        static string Simple(string type)
        {
            return type.Substring(type.LastIndexOf('.') + 1);
        }

        void Read(MemberDeclarationSyntax m, string scope)
        {
            switch (m)
            {
                case NamespaceDeclarationSyntax n:
                    foreach (MemberDeclarationSyntax inner in n.Members)
                    {
                        Read(inner, scope + n.Name + ".");
                    }
                    break;
                case EnumDeclarationSyntax e:
                    Declared values = Type(scope + e.Identifier.Text, e.AttributeLists);
                    foreach (EnumMemberDeclarationSyntax v in e.Members)
                    {
                        values.Members[v.Identifier.Text] = Obsolete(v.AttributeLists);
                    }
                    break;
                case DelegateDeclarationSyntax d:
                    Declared type = Type(scope + d.Identifier.Text + Arity(d.TypeParameterList), d.AttributeLists);
                    type.Members[".ctor(object, number)"] = null;
                    type.Members["Invoke(" + Parameters(d.ParameterList, Generics(d)) + ")"] = null;
                    break;
                case TypeDeclarationSyntax t:
                    Read(t, scope + t.Identifier.Text + Arity(t.TypeParameterList));
                    break;
            }
        }

        void Read(TypeDeclarationSyntax t, string name)
        {
            Declared type = Type(name, t.AttributeLists);
            foreach (BaseTypeSyntax b in t.BaseList?.Types ?? default)
            {
                type.Bases.Add(Simple(b.Type.ToString().Split('<')[0]));
            }
            bool everything = t is InterfaceDeclarationSyntax;
            foreach (MemberDeclarationSyntax m in t.Members)
            {
                if (m is BaseTypeDeclarationSyntax || m is DelegateDeclarationSyntax)
                {
                    Read(m, name + ".");
                    continue;
                }
                bool constructor = m is ConstructorDeclarationSyntax c && !Has(c.Modifiers, "static");
                type.Constructors |= constructor && !(t is StructDeclarationSyntax);
                if (everything || Has(Modifiers(m), "public", "protected"))
                {
                    foreach (string key in Keys(m))
                    {
                        type.Members[key] = Obsolete(Attributes(m));
                    }
                }
            }
        }

        static IEnumerable<string> Keys(MemberDeclarationSyntax m)
        {
            HashSet<string> g = Generics(m);
            switch (m)
            {
                case FieldDeclarationSyntax f:
                    return f.Declaration.Variables.Select(v => v.Identifier.Text);
                case EventFieldDeclarationSyntax e:
                    return e.Declaration.Variables.SelectMany(v => new[] { "add_", "remove_" }
                        .Select(p => p + v.Identifier.Text + "(" + Name(e.Declaration.Type, g) + ")"));
                case EventDeclarationSyntax e:
                    return new[] { "add_", "remove_" }.Select(p => p + e.Identifier.Text + "(" + Name(e.Type, g) + ")");
                case PropertyDeclarationSyntax p:
                    return Accessors(p, p.Identifier.Text, "", Name(p.Type, g), p.ExpressionBody != null);
                case IndexerDeclarationSyntax i:
                    return Accessors(i, "Item", Parameters(i.ParameterList, g), Name(i.Type, g),
                        i.ExpressionBody != null);
                case MethodDeclarationSyntax f:
                    return new[] { f.Identifier.Text + "(" + Parameters(f.ParameterList, g) + ")" };
                case ConstructorDeclarationSyntax c:
                    return new[] { ".ctor(" + Parameters(c.ParameterList, g) + ")" };
                case OperatorDeclarationSyntax o:
                    return new[] { Operator(o) + "(" + Parameters(o.ParameterList, g) + ")" };
                case ConversionOperatorDeclarationSyntax o:
                    return new[] { (o.ImplicitOrExplicitKeyword.Text == "implicit" ? "op_Implicit(" : "op_Explicit(")
                        + Parameters(o.ParameterList, g) + ")" };
                default: return new string[0];
            }
        }

        static IEnumerable<string> Accessors(BasePropertyDeclarationSyntax p, string name, string index, string type,
            bool expression)
        {
            if (expression)
            {
                return new[] { "get_" + name + "(" + index + ")" };
            }
            return p.AccessorList.Accessors.Where(a => !Has(a.Modifiers, "private", "internal"))
                .Select(a => a.Keyword.Text == "get" ? "get_" + name + "(" + index + ")"
                    : "set_" + name + "(" + index + (index.Length > 0 ? ", " : "") + type + ")");
        }

        static string Operator(OperatorDeclarationSyntax o)
        {
            bool unary = o.ParameterList.Parameters.Count == 1;
            switch (o.OperatorToken.Text)
            {
                case "==": return "op_Equality";
                case "!=": return "op_Inequality";
                case "+": return unary ? "op_UnaryPlus" : "op_Addition";
                case "-": return unary ? "op_UnaryNegation" : "op_Subtraction";
                case "*": return "op_Multiply";
                case "/": return "op_Division";
                default: return "op_" + o.OperatorToken.Text;
            }
        }

        static string Parameters(BaseParameterListSyntax list, HashSet<string> generics)
        {
            return string.Join(", ", list.Parameters.Select(p => (Has(p.Modifiers, "ref", "out", "in") ? "&" : "")
                + (p.Type == null ? "?" : Name(p.Type, generics))));
        }

        // The notation of Api, without namespaces.
        static string Name(TypeSyntax type, HashSet<string> generics)
        {
            switch (type)
            {
                case PredefinedTypeSyntax p:
                    switch (p.Keyword.Text)
                    {
                        case "bool": return "boolean";
                        case "string": case "object": case "void": return p.Keyword.Text;
                        default: return "number";
                    }
                case QualifiedNameSyntax q: return Name(q.Right, generics);
                case AliasQualifiedNameSyntax a: return Name(a.Name, generics);
                case GenericNameSyntax g:
                    return g.Identifier.Text + "<" + string.Join(", ",
                        g.TypeArgumentList.Arguments.Select(a => Name(a, generics))) + ">";
                case IdentifierNameSyntax i:
                    switch (i.Identifier.Text)
                    {
                        case "String": return "string";
                        case "Boolean": return "boolean";
                        case "IntPtr": case "UIntPtr": case "Int32": case "UInt32": case "Single": return "number";
                        default: return generics.Contains(i.Identifier.Text) ? "T" : i.Identifier.Text;
                    }
                case ArrayTypeSyntax a:
                    return Name(a.ElementType, generics) + string.Concat(a.RankSpecifiers.Select(_ => "[]"));
                case PointerTypeSyntax p: return Name(p.ElementType, generics) + "*";
                case RefTypeSyntax r: return Name(r.Type, generics);
                case NullableTypeSyntax n: return "Nullable<" + Name(n.ElementType, generics) + ">";
                default: return type.ToString();
            }
        }

        // Names of the type parameters in scope.
        static HashSet<string> Generics(SyntaxNode node)
        {
            return new HashSet<string>(node.AncestorsAndSelf().SelectMany(n => n.ChildNodes()
                .OfType<TypeParameterListSyntax>()).SelectMany(l => l.Parameters).Select(p => p.Identifier.Text));
        }

        static string Arity(TypeParameterListSyntax list)
        {
            return list == null ? "" : "$" + list.Parameters.Count;
        }

        static bool Has(SyntaxTokenList modifiers, params string[] any)
        {
            return modifiers.Any(m => any.Contains(m.Text));
        }

        static SyntaxTokenList Modifiers(MemberDeclarationSyntax m)
        {
            switch (m)
            {
                case BaseFieldDeclarationSyntax f: return f.Modifiers;
                case BasePropertyDeclarationSyntax p: return p.Modifiers;
                case BaseMethodDeclarationSyntax f: return f.Modifiers;
                default: return default;
            }
        }

        static SyntaxList<AttributeListSyntax> Attributes(MemberDeclarationSyntax m)
        {
            switch (m)
            {
                case BaseFieldDeclarationSyntax f: return f.AttributeLists;
                case BasePropertyDeclarationSyntax p: return p.AttributeLists;
                case BaseMethodDeclarationSyntax f: return f.AttributeLists;
                default: return default;
            }
        }

        Declared Type(string name, SyntaxList<AttributeListSyntax> attributes)
        {
            if (!types.TryGetValue(name, out Declared type))
            {
                types[name] = type = new Declared();
            }
            type.Obsolete = type.Obsolete ?? Obsolete(attributes);
            return type;
        }

        static string Obsolete(SyntaxList<AttributeListSyntax> attributes)
        {
            foreach (AttributeSyntax a in attributes.SelectMany(l => l.Attributes))
            {
                if (Regex.IsMatch(a.Name.ToString(), @"(^|\.)Obsolete(Attribute)?$"))
                {
                    string[] values = a.ArgumentList?.Arguments.Select(v => v.Expression.ToString()).ToArray()
                        ?? new string[0];
                    return (values.Length > 1 && values[1] == "true" ? Error : "")
                        + (values.Length > 0 ? values[0].Trim('@', '$', '"') : "");
                }
            }
            return null;
        }
    }
}
