// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * AEAD_CHACHA20_POLY1305 (RFC 8439) for texts of up to AEAD_TEXT bytes.
 *
 * Expensive functions are global, so that the verifier checks each once for all lengths and callers.
 * Words on the wire are little-endian, as on the supported processors.
 */
#ifndef HOLOCAST_CHACHA20POLY1305_H
#define HOLOCAST_CHACHA20POLY1305_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define AEAD_TEXT 1536 /* bytes; a multiple of CHACHA20_BLOCK, large enough for an Ethernet MTU */
#define AEAD_DATA 32 /* bytes of associated data; short headers have at most 25 */
#define AEAD_TAG 16
#define CHACHA20_BLOCK 64
#define POLY1305_BLOCK 16

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ChaCha20-Poly1305 is written for little-endian processors"
#endif

/* Input of the block function, without its constants. */
struct chacha20 {
	__u32 key[8];
	__u32 counter;
	__u32 nonce[3];
};

/*
 * A packet being opened or sealed. When the tag is computed, text and data are zero-padded to the
 * next 16 bytes.
 */
struct aead {
	struct chacha20 cipher;
	__u64 stream[CHACHA20_BLOCK / 8]; /* key stream of one block */
	__u64 tag[2];
	__u32 length; /* length of text */
	__u32 data_length;
	__u64 data[AEAD_DATA / 8];
	__u64 text[AEAD_TEXT / 8 + 3]; /* with room for a tag and a word after the text */
};

#define ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define QUARTER_ROUND(a, b, c, d) \
	do {                      \
		a += b;           \
		d ^= a;           \
		d = ROTATE(d, 16); \
		c += d;           \
		b ^= c;           \
		b = ROTATE(b, 12); \
		a += b;           \
		d ^= a;           \
		d = ROTATE(d, 8); \
		c += d;           \
		b ^= c;           \
		b = ROTATE(b, 7); \
	} while (0)

/* Computes the key stream of one block (RFC 8439 section 2.3). */
__noinline int chacha20_block(const struct chacha20 *in, __u64 (*stream)[CHACHA20_BLOCK / 8])
{
	if (!in || !stream)
		return -1;
	__u32 x0 = 0x61707865, x1 = 0x3320646e, x2 = 0x79622d32, x3 = 0x6b206574;
	__u32 x4 = in->key[0], x5 = in->key[1], x6 = in->key[2], x7 = in->key[3];
	__u32 x8 = in->key[4], x9 = in->key[5], x10 = in->key[6], x11 = in->key[7];
	__u32 x12 = in->counter, x13 = in->nonce[0], x14 = in->nonce[1], x15 = in->nonce[2];
	__u32 *out = (__u32 *)stream;

#pragma clang loop unroll(disable)
	for (int i = 0; i < 10; i++) {
		QUARTER_ROUND(x0, x4, x8, x12);
		QUARTER_ROUND(x1, x5, x9, x13);
		QUARTER_ROUND(x2, x6, x10, x14);
		QUARTER_ROUND(x3, x7, x11, x15);
		QUARTER_ROUND(x0, x5, x10, x15);
		QUARTER_ROUND(x1, x6, x11, x12);
		QUARTER_ROUND(x2, x7, x8, x13);
		QUARTER_ROUND(x3, x4, x9, x14);
	}
	out[0] = x0 + 0x61707865;
	out[1] = x1 + 0x3320646e;
	out[2] = x2 + 0x79622d32;
	out[3] = x3 + 0x6b206574;
	out[4] = x4 + in->key[0];
	out[5] = x5 + in->key[1];
	out[6] = x6 + in->key[2];
	out[7] = x7 + in->key[3];
	out[8] = x8 + in->key[4];
	out[9] = x9 + in->key[5];
	out[10] = x10 + in->key[6];
	out[11] = x11 + in->key[7];
	out[12] = x12 + in->counter;
	out[13] = x13 + in->nonce[0];
	out[14] = x14 + in->nonce[1];
	out[15] = x15 + in->nonce[2];
	return 0;
}

/* Encrypts or decrypts the text in whole blocks, which also changes bytes after its end. */
__noinline int aead_crypt(struct aead *a)
{
	if (!a)
		return -1;
	__u32 length = a->length;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < AEAD_TEXT / CHACHA20_BLOCK; i++) {
		if (i * CHACHA20_BLOCK >= length)
			break;
		a->cipher.counter = i + 1;
		chacha20_block(&a->cipher, &a->stream);
		__u64 *text = &a->text[i * (CHACHA20_BLOCK / 8)];
#pragma unroll
		for (int j = 0; j < CHACHA20_BLOCK / 8; j++)
			text[j] ^= a->stream[j];
	}
	return 0;
}

/* Poly1305 (RFC 8439 section 2.5) in five limbs of 26 bits. */
struct poly1305 {
	__u64 h0, h1, h2, h3, h4;
	__u64 r0, r1, r2, r3, r4;
	__u64 s1, s2, s3, s4; /* 5 r: 2^130 is congruent to 5 */
};

#define LIMB 0x3ffffffULL

static __always_inline void poly1305_begin(struct poly1305 *p, __u64 low, __u64 high)
{
	low &= 0x0ffffffc0fffffffULL;
	high &= 0x0ffffffc0ffffffcULL;
	p->h0 = p->h1 = p->h2 = p->h3 = p->h4 = 0;
	p->r0 = low & LIMB;
	p->r1 = low >> 26 & LIMB;
	p->r2 = (low >> 52 | high << 12) & LIMB;
	p->r3 = high >> 14 & LIMB;
	p->r4 = high >> 40;
	p->s1 = p->r1 * 5;
	p->s2 = p->r2 * 5;
	p->s3 = p->r3 * 5;
	p->s4 = p->r4 * 5;
}

/* Adds a whole 16-byte block and multiplies. */
static __always_inline void poly1305_block(struct poly1305 *p, __u64 low, __u64 high)
{
	__u64 h0 = p->h0 + (low & LIMB);
	__u64 h1 = p->h1 + (low >> 26 & LIMB);
	__u64 h2 = p->h2 + ((low >> 52 | high << 12) & LIMB);
	__u64 h3 = p->h3 + (high >> 14 & LIMB);
	__u64 h4 = p->h4 + (high >> 40 | 1 << 24);

	__u64 d0 = h0 * p->r0 + h1 * p->s4 + h2 * p->s3 + h3 * p->s2 + h4 * p->s1;
	__u64 d1 = h0 * p->r1 + h1 * p->r0 + h2 * p->s4 + h3 * p->s3 + h4 * p->s2;
	__u64 d2 = h0 * p->r2 + h1 * p->r1 + h2 * p->r0 + h3 * p->s4 + h4 * p->s3;
	__u64 d3 = h0 * p->r3 + h1 * p->r2 + h2 * p->r1 + h3 * p->r0 + h4 * p->s4;
	__u64 d4 = h0 * p->r4 + h1 * p->r3 + h2 * p->r2 + h3 * p->r1 + h4 * p->r0;

	d1 += d0 >> 26;
	d2 += d1 >> 26;
	d3 += d2 >> 26;
	d4 += d3 >> 26;
	h0 = (d0 & LIMB) + (d4 >> 26) * 5;
	p->h0 = h0 & LIMB;
	p->h1 = (d1 & LIMB) + (h0 >> 26);
	p->h2 = d2 & LIMB;
	p->h3 = d3 & LIMB;
	p->h4 = d4 & LIMB;
}

/* Computes the tag by reducing modulo 2^130 - 5 and adding the second half of the key. */
static __always_inline void poly1305_end(const struct poly1305 *p, const __u64 *key, __u64 *tag)
{
	__u64 h0 = p->h0, h1 = p->h1, h2 = p->h2, h3 = p->h3, h4 = p->h4;

	h2 += h1 >> 26;
	h1 &= LIMB;
	h3 += h2 >> 26;
	h2 &= LIMB;
	h4 += h3 >> 26;
	h3 &= LIMB;
	h0 += (h4 >> 26) * 5;
	h4 &= LIMB;
	h1 += h0 >> 26;
	h0 &= LIMB;

	/* g = h - p; use has all bits set if g >= 0 */
	__u64 g0 = h0 + 5;
	__u64 g1 = h1 + (g0 >> 26);
	__u64 g2 = h2 + (g1 >> 26);
	__u64 g3 = h3 + (g2 >> 26);
	__u64 g4 = h4 + (g3 >> 26) - (1 << 26);
	__u64 use = (g4 >> 63) - 1;
	h0 = (h0 & ~use) | (g0 & LIMB & use);
	h1 = (h1 & ~use) | (g1 & LIMB & use);
	h2 = (h2 & ~use) | (g2 & LIMB & use);
	h3 = (h3 & ~use) | (g3 & LIMB & use);
	h4 = (h4 & ~use) | (g4 & use);

	__u64 low = h0 | h1 << 26 | h2 << 52;
	__u64 high = h2 >> 12 | h3 << 14 | h4 << 40;
	tag[0] = low + key[0];
	tag[1] = high + key[1] + (tag[0] < low);
}

/*
 * Computes the tag of data and encrypted text into a->tag. a->stream must hold the key stream block
 * with counter 0.
 */
__noinline int poly1305_tag(struct aead *a)
{
	struct poly1305 p;

	if (!a)
		return -1;
	__u32 length = a->length;
	poly1305_begin(&p, a->stream[0], a->stream[1]);
	if (a->data_length)
		poly1305_block(&p, a->data[0], a->data[1]);
	if (a->data_length > POLY1305_BLOCK)
		poly1305_block(&p, a->data[2], a->data[3]);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < AEAD_TEXT / POLY1305_BLOCK; i++) {
		if (i * POLY1305_BLOCK >= length)
			break;
		poly1305_block(&p, a->text[2 * i], a->text[2 * i + 1]);
	}
	poly1305_block(&p, a->data_length, length);
	poly1305_end(&p, &a->stream[2], a->tag);
	return 0;
}

static __always_inline void aead_authenticate(struct aead *a)
{
	a->cipher.counter = 0;
	chacha20_block(&a->cipher, &a->stream);
	poly1305_tag(a);
}

/* Zero-pads the text to whole Poly1305 blocks. */
static __always_inline void aead_pad(struct aead *a)
{
	__u32 length = a->length, word = length / 8;

	if (length >= AEAD_TEXT || !(length % POLY1305_BLOCK))
		return;
	a->text[word] &= (1ULL << (length % 8 * 8)) - 1;
	if (!(word & 1))
		a->text[word + 1] = 0;
}

/* Finishes sealing an encrypted text and sets a->tag. */
static __always_inline void aead_finish(struct aead *a)
{
	aead_pad(a);
	aead_authenticate(a);
}

/* Encrypts the text and sets a->tag. Key, nonce, lengths and data must be set. */
static __always_inline void aead_seal(struct aead *a)
{
	aead_crypt(a);
	aead_finish(a);
}

/* Decrypts the text if low and high are its tag, and otherwise leaves it unchanged. */
static __always_inline bool aead_open(struct aead *a, __u64 low, __u64 high)
{
	aead_pad(a);
	aead_authenticate(a);
	if ((a->tag[0] ^ low) | (a->tag[1] ^ high))
		return false;
	aead_crypt(a);
	return true;
}

#endif
