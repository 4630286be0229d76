namespace Holocast.Verify
{
    static class Program
    {
        static int Main(string[] args)
        {
            return 0;
        }
    }
}
