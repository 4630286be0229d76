//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/chacha20poly1305"
)

// kernelAEAD runs the AEAD of chacha20poly1305.h in the kernel.
type kernelAEAD struct {
	programs map[string]*ebpf.Program
	work     *ebpf.Map
}

func newKernelAEAD(t testing.TB) *kernelAEAD {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: tests of eBPF programs need CAP_BPF and CAP_NET_ADMIN")
	}
	spec, err := loadAead()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &kernelAEAD{c.Programs, c.Maps["work"]}
}

// run runs a program on a packet and returns its result and the packet afterwards.
func (k *kernelAEAD) run(t testing.TB, program string, in aeadAead) (uint32, aeadAead) {
	t.Helper()
	if err := k.work.Put(uint32(0), &in); err != nil {
		t.Fatal(err)
	}
	result, err := k.programs[program].Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err != nil {
		t.Fatal(err)
	}
	var out aeadAead
	if err := k.work.Lookup(uint32(0), &out); err != nil {
		t.Fatal(err)
	}
	return result, out
}

// input returns a packet with its key, nonce, text and associated data, in a buffer that still holds
// the end of another packet.
func input(key, nonce, text, data []byte) (a aeadAead) {
	for i := range a.Cipher.Key {
		a.Cipher.Key[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	for i := range a.Cipher.Nonce {
		a.Cipher.Nonce[i] = binary.LittleEndian.Uint32(nonce[4*i:])
	}
	for i := range a.Text {
		a.Text[i] = ^uint64(0)
	}
	setBytes(a.Text[:], text)
	setBytes(a.Data[:], data)
	a.Length, a.DataLength = uint32(len(text)), uint32(len(data))
	return a
}

func setBytes(words []uint64, b []byte) {
	all := wordBytes(words)
	copy(all, b)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(all[8*i:])
	}
}

func wordBytes(words []uint64) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// TestAEAD compares the programs' AEAD with x/crypto's for lengths around block boundaries and for
// random lengths.
func TestAEAD(t *testing.T) {
	k := newKernelAEAD(t)
	lengths := []int{
		0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 63, 64, 65, 127, 128, 1200, 1434, 1450, 1471, 1472, 1519, 1520,
		1521, 1535, 1536,
	}
	for range 200 {
		lengths = append(lengths, rand.IntN(1537))
	}
	for _, length := range lengths {
		key, nonce, text, data := random(32), random(12), random(length), random(1+rand.IntN(32))
		a, err := chacha20poly1305.New(key)
		if err != nil {
			t.Fatal(err)
		}
		sealed := a.Seal(nil, nonce, text, data)
		where := fmt.Sprintf("%d bytes of text, %d of data", len(text), len(data))
		if result, out := k.run(t, "seal", input(key, nonce, text, data)); result != 0 ||
			!bytes.Equal(
				wordBytes(out.Text[:])[:length],
				sealed[:length],
			) || !bytes.Equal(wordBytes(out.Tag[:]), sealed[length:]) {
			t.Fatalf("sealed wrongly: %s", where)
		}
		in := input(key, nonce, sealed[:length], data)
		setBytes(in.Tag[:], sealed[length:])
		if result, out := k.run(t, "open", in); result != 0 || !bytes.Equal(wordBytes(out.Text[:])[:length], text) {
			t.Fatalf("opened incorrectly: result %d, %s", result, where)
		}
		// One wrong bit anywhere must prevent decryption.
		bit := rand.IntN(8 * (len(sealed) + len(data)))
		if n := bit / 8; n < len(sealed) {
			sealed[n] ^= 1 << (bit % 8)
		} else {
			data[n-len(sealed)] ^= 1 << (bit % 8)
		}
		in = input(key, nonce, sealed[:length], data)
		setBytes(in.Tag[:], sealed[length:])
		if result, out := k.run(t, "open", in); result != 1 ||
			!bytes.Equal(wordBytes(out.Text[:])[:length], sealed[:length]) {
			t.Fatalf("packet opens with a wrong bit %d: %s", bit, where)
		}
	}
}

// TestPoly1305Carries uses texts with sums near 2^130, where carries propagate through all limbs.
func TestPoly1305Carries(t *testing.T) {
	k := newKernelAEAD(t)
	for range 50 {
		key, nonce, data := random(32), random(12), random(16)
		a, _ := chacha20poly1305.New(key)
		for _, fill := range []byte{0, 0xff} {
			for _, length := range []int{16, 48, 1184} {
				cipher := bytes.Repeat([]byte{fill}, length)
				stream := make([]byte, 64+length)
				c, _ := chacha20.NewUnauthenticatedCipher(key, nonce)
				c.XORKeyStream(stream, stream)
				text := make([]byte, length)
				for i := range text {
					text[i] = cipher[i] ^ stream[64+i]
				}
				sealed := a.Seal(nil, nonce, text, data)
				if _, out := k.run(t, "seal", input(key, nonce, text, data)); !bytes.Equal(
					wordBytes(out.Tag[:]),
					sealed[length:],
				) {
					t.Fatalf("wrong tag for %d bytes of ciphertext %#x", length, fill)
				}
			}
		}
	}
}

// TestHeaderProtection compares header protection masks (RFC 9001 section 5.4.4) with x/crypto's.
func TestHeaderProtection(t *testing.T) {
	k := newKernelAEAD(t)
	for range 50 {
		key, sample := random(32), random(16)
		in := input(key, sample[4:], nil, nil)
		in.Cipher.Counter = binary.LittleEndian.Uint32(sample)
		_, out := k.run(t, "stream", in)
		c, _ := chacha20.NewUnauthenticatedCipher(key, sample[4:])
		c.SetCounter(binary.LittleEndian.Uint32(sample))
		want := make([]byte, 5)
		c.XORKeyStream(want, want)
		if got := wordBytes(out.Stream[:1])[:5]; !bytes.Equal(got, want) {
			t.Fatalf("mask %x, want %x", got, want)
		}
	}
}

// BenchmarkUserAEAD measures the time that user space takes for the same packet, with the cipher that
// TLS prefers otherwise and with that of the fast path.
func BenchmarkUserAEAD(b *testing.B) {
	block, err := aes.NewCipher(random(16))
	if err != nil {
		b.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		b.Fatal(err)
	}
	chacha, err := chacha20poly1305.New(random(32))
	if err != nil {
		b.Fatal(err)
	}
	for _, a := range []struct {
		name string
		cipher.AEAD
	}{{"AES-128-GCM", gcm}, {"ChaCha20-Poly1305", chacha}} {
		b.Run(a.name, func(b *testing.B) {
			const length = 1200
			text, nonce := make([]byte, length, length+a.Overhead()), random(a.NonceSize())
			b.SetBytes(length)
			for b.Loop() {
				a.Seal(text[:0], nonce, text[:length], nonce)
			}
		})
	}
}

// BenchmarkAEAD measures the kernel's time per packet.
func BenchmarkAEAD(b *testing.B) {
	k := newKernelAEAD(b)
	for _, length := range []int{200, 1200, 1450} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			k.run(b, "seal", input(random(32), random(12), random(length), random(9)))
			b.SetBytes(int64(length))
			_, each, err := k.programs["seal"].Benchmark(make([]byte, 64), b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "kernel-ns/op")
		})
	}
}
