// Stub of the Windows Runtime members that the package uses.
namespace Windows.Security.Credentials
{
    public sealed class PasswordCredential
    {
        public PasswordCredential(string resource, string userName, string password)
        {
            Password = password;
        }

        public string Password { get; }
    }

    public sealed class PasswordVault
    {
        public void Add(PasswordCredential credential)
        {
        }

        public void Remove(PasswordCredential credential)
        {
        }

        public PasswordCredential Retrieve(string resource, string userName) => null;
    }
}
