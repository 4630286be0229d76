// Package secureobjects encrypts the objects of a session end to end
// (draft-ietf-moq-secure-objects-01), so that relays, recorders and caches see only ciphertext.
//
// A [Publisher] seals objects under the newest of its [Keys]; a [Viewer] opens them. Both use cipher
// suite AES_128_GCM_SHA256_128, the one that the draft requires. Payload and properties are encrypted;
// group, object ID, priority and Key ID are authenticated.
// docs/spec/encryption.md describes the choices that the draft leaves to applications.
package secureobjects
