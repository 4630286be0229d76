// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * SHA-256 (FIPS 180-4) of single blocks, and HMAC (RFC 2104) of a 32-byte message with precomputed
 * key states.
 */
#ifndef HOLOCAST_SHA256_H
#define HOLOCAST_SHA256_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SHA256_ROUNDS 64

static const __u32 sha256_k[SHA256_ROUNDS] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* The block, which becomes the message schedule during hashing. */
struct sha256_work {
	__u32 state[8];
	__u32 block[16];
};

static __always_inline __u32 ror(__u32 x, int n)
{
	return x >> n | x << (32 - n);
}

/*
 * Hashes one block into the state. It is neither inlined nor unrolled, because the compiler would
 * then precompute the schedule, which overflows the stack.
 */
static __noinline int sha256_block(struct sha256_work *work)
{
	if (!work)
		return 0;
	__u32 a = work->state[0], b = work->state[1], c = work->state[2], d = work->state[3];
	__u32 e = work->state[4], f = work->state[5], g = work->state[6], h = work->state[7];
	__u32 *w = work->block;

#pragma clang loop unroll(disable)
	for (int i = 0; i < SHA256_ROUNDS; i++) {
		if (i >= 16) {
			__u32 early = w[(i + 1) & 15], late = w[(i + 14) & 15];
			w[i & 15] += (ror(early, 7) ^ ror(early, 18) ^ early >> 3) + w[(i + 9) & 15] +
				     (ror(late, 17) ^ ror(late, 19) ^ late >> 10);
		}
		__u32 t1 = h + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & f) ^ (~e & g)) + sha256_k[i] + w[i & 15];
		__u32 t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
		h = g;
		g = f;
		f = e;
		e = d + t1;
		d = c;
		c = b;
		b = a;
		a = t1 + t2;
	}
	work->state[0] += a;
	work->state[1] += b;
	work->state[2] += c;
	work->state[3] += d;
	work->state[4] += e;
	work->state[5] += f;
	work->state[6] += g;
	work->state[7] += h;
	return 0;
}

/* Pads a half-full second block. */
static __always_inline void sha256_pad_half(struct sha256_work *work)
{
	work->block[8] = 0x80000000;
#pragma unroll
	for (int i = 9; i < 15; i++)
		work->block[i] = 0;
	work->block[15] = (64 + 32) * 8; /* bits */
}

/* HMAC of 32 bytes. inner and outer are the states after the two key blocks. */
static __always_inline void hmac_sha256(struct sha256_work *work, const volatile __u32 *inner,
					const volatile __u32 *outer, const __be32 *message)
{
#pragma unroll
	for (int i = 0; i < 8; i++) {
		work->state[i] = inner[i];
		work->block[i] = bpf_ntohl(message[i]);
	}
	sha256_pad_half(work);
	sha256_block(work);
#pragma unroll
	for (int i = 0; i < 8; i++) {
		work->block[i] = work->state[i];
		work->state[i] = outer[i];
	}
	sha256_pad_half(work);
	sha256_block(work);
}

#endif
