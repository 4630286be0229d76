using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("Holocast.Client.Mrtk")]
[assembly: InternalsVisibleTo("Holocast.Client.Editor")]
[assembly: InternalsVisibleTo("Holocast.Client.Tests")]
[assembly: InternalsVisibleTo("Holocast.Client.Editor.Tests")]
[assembly: InternalsVisibleTo("Holocast.Verify")]
