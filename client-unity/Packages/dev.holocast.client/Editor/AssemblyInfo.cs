using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("Holocast.Client.Editor.Tests")]
[assembly: InternalsVisibleTo("Holocast.Verify")]
