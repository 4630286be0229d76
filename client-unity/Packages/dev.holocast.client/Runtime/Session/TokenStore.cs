#if ENABLE_WINMD_SUPPORT
using System;
using Windows.Security.Credentials;
#endif

namespace Holocast
{
    // Keeps viewers' tokens across runs where the platform encrypts them for this user and app: in the
    // Windows Credential Locker on HoloLens. Elsewhere it keeps none.
    static class TokenStore
    {
#if ENABLE_WINMD_SUPPORT
        const string Resource = "Holocast";

        // address: without a token.
        public static void Save(HolocastAddress address, string token)
        {
            Delete(address);
            if (token.Length > 0)
            {
                new PasswordVault().Add(new PasswordCredential(Resource, address.ToString(), token));
            }
        }

        // Returns an empty string for an unknown address.
        public static string Load(HolocastAddress address)
        {
            return Find(address)?.Password ?? "";
        }

        public static void Delete(HolocastAddress address)
        {
            PasswordCredential found = Find(address);
            if (found != null)
            {
                new PasswordVault().Remove(found);
            }
        }

        static PasswordCredential Find(HolocastAddress address)
        {
            try
            {
                return new PasswordVault().Retrieve(Resource, address.ToString());
            }
            catch (Exception) // "element not found", as an HRESULT
            {
                return null;
            }
        }
#else
        public static void Save(HolocastAddress address, string token)
        {
        }

        public static string Load(HolocastAddress address)
        {
            return "";
        }

        public static void Delete(HolocastAddress address)
        {
        }
#endif
    }
}
