// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* QUIC short-header packets under ChaCha20-Poly1305: packet protection (RFC 9001 section
 * 5), packet numbers (RFC 9000 section 17.1), frames (section 19). */
#ifndef HOLOCAST_FASTPATH_QUIC_H
#define HOLOCAST_FASTPATH_QUIC_H

#include "maps.h"

#define LONG_HEADER 0x80
#define FIXED_BIT 0x40
#define KEY_PHASE 0x04
#define PROTECTED_BITS 0x1f /* of a short header's first byte */
#define NUMBER_LENGTH 4 /* at most, of packets that are made here */

#define FRAME_PADDING 0x00
#define FRAME_PING 0x01
#define FRAME_ACK 0x02
#define FRAME_ACK_ECN 0x03
#define FRAME_DATAGRAM 0x30
#define FRAME_DATAGRAM_LENGTH 0x31
#define MAX_STEPS 160 /* frames and ranges of ACKs in one packet: 64 ranges and some */

/* Bytes of the packet number that make a short header's length even. */
static __always_inline __u32 number_length(__u32 cid)
{
	return cid & 1 ? NUMBER_LENGTH : NUMBER_LENGTH - 1;
}

/* The nonce of a packet: its number, big-endian, exclusive-or the IV. */
static __always_inline void set_nonce(struct chacha20 *cipher, const struct packet_key *key, __u64 number)
{
	cipher->nonce[0] = key->iv[0];
	cipher->nonce[1] = key->iv[1] ^ bpf_htonl(number >> 32);
	cipher->nonce[2] = key->iv[2] ^ bpf_htonl(number);
}

static __always_inline void set_key(struct chacha20 *cipher, const struct packet_key *key)
{
#pragma unroll
	for (int i = 0; i < 8; i++)
		cipher->key[i] = key->key[i];
}

/* The mask of the header of the packet whose sample is in 16 bytes of words; it stays in
 * a->stream. */
static __always_inline __u64 header_mask(struct aead *a, const __u32 *key, const __u32 *sample)
{
#pragma unroll
	for (int i = 0; i < 8; i++)
		a->cipher.key[i] = key[i];
	a->cipher.counter = sample[0];
#pragma unroll
	for (int i = 0; i < 3; i++)
		a->cipher.nonce[i] = sample[1 + i];
	chacha20_block(&a->cipher, &a->stream);
	return a->stream[0];
}

/* The packet number whose lowest bytes are truncated (RFC 9000 appendix A.3), with the
 * largest one so far. */
static __always_inline __u64 expand_number(__u64 largest, __u64 truncated, __u32 bytes)
{
	__u64 expected = largest + 1, window = 1ULL << (8 * bytes), half = window / 2;
	__u64 number = (expected & ~(window - 1)) | truncated;

	if (number + half <= expected && number < (1ULL << 62) - window)
		return number + window;
	if (number > expected + half && number >= window)
		return number - window;
	return number;
}

/* The number that a truncated one is expanded by. Nobody tells it of a connection that is
 * joined under way: there packets try the last one known and, by turns, 65536 numbers
 * more, until one is authentic. */
static __always_inline __u64 largest_number(const struct source *s)
{
	return s->found || !(s->guess & 1) ? s->largest : ((__u64)(s->guess >> 1) << 16) + 0x7ffe;
}

/* A packet was not authentic: true if that may be the number's fault. */
static __always_inline bool search_on(struct source *s)
{
	if (s->found)
		return false;
	s->guess = (s->guess + 1) & 0x1ffff; /* up to 2^32 */
	return true;
}

/* Notes that a packet arrived. False: it did before, or it is too old to tell. */
static __always_inline bool first_arrival(struct source *s, __u64 number)
{
	__u64 *seen = &s->seen[number % SEEN_PACKETS];
	__u64 old = *(volatile __u64 *)seen;

	if (old > number || __sync_val_compare_and_swap(seen, old, number + 1) != old)
		return false;
	if (number > s->largest)
		s->largest = number;
	s->found = true;
	return true;
}

/* A byte of the opened text; 0 behind its end. */
static __always_inline __u8 text_byte(const struct work *w, __u32 at)
{
	__u64 offset = at;

	OPAQUE(offset);
	return offset < AEAD_TEXT ? ((const __u8 *)w->opened.text)[offset] : 0;
}

/* The QUIC integer (RFC 9000 section 16) at an offset of the text: its value in
 * w->integer, its length returned, 0 if it is cut off. */
__noinline __u32 take_quic_integer(struct work *w, __u32 at)
{
	if (!w)
		return 0;
	__u32 first = text_byte(w, at), length = 1 << (first >> 6);
	__u64 value = first & 0x3f;

	if (at >= AEAD_TEXT || at + length > w->opened.length)
		return 0;
	for (__u32 i = 1; i < 8; i++) {
		if (i >= length)
			break;
		value = value << 8 | text_byte(w, at + i);
	}
	w->integer = value;
	return length;
}

/* Where find_datagram is. */
enum step {
	STEP_ON,
	STEP_DONE,
	STEP_UNCLEAR,
};

/* Passes one frame, or one integer of an ACK frame. What it knows is in w, and it is
 * global, so that to the verifier all steps are alike. */
__noinline int next_frame(struct work *w)
{
	if (!w)
		return STEP_UNCLEAR;
	__u32 at = w->at, length = w->opened.length;

	if (at >= length || at >= AEAD_TEXT)
		return at == length && !w->skip ? STEP_DONE : STEP_UNCLEAR;
	if (w->skip) {
		w->at = at + (1 << (text_byte(w, at) >> 6));
		w->skip--;
		return STEP_ON;
	}
	__u8 type = text_byte(w, at++);
	__u32 n;

	w->at = at;
	switch (type) {
	case FRAME_PADDING:
	case FRAME_PING:
		return STEP_ON;
	case FRAME_ACK:
	case FRAME_ACK_ECN:
		/* largest, delay, count of ranges, first range; a gap and a length a range; three counts */
		at += 1 << (text_byte(w, at) >> 6);
		at += 1 << (text_byte(w, at) >> 6);
		n = take_quic_integer(w, at);
		if (!n || w->integer > MAX_STEPS)
			return STEP_UNCLEAR;
		w->at = at + n;
		w->skip = 1 + 2 * w->integer + (type == FRAME_ACK_ECN ? 3 : 0);
		return STEP_ON;
	case FRAME_DATAGRAM:
		w->end = length;
		break;
	case FRAME_DATAGRAM_LENGTH:
		n = take_quic_integer(w, at);
		if (!n || w->integer > length - at - n)
			return STEP_UNCLEAR;
		at += n;
		w->end = at + w->integer;
		break;
	default:
		return STEP_UNCLEAR;
	}
	if (w->rest)
		return STEP_UNCLEAR; /* a second one */
	w->rest = at;
	w->at = w->end;
	return STEP_ON;
}

/* Finds the DATAGRAM frame of the opened text: its content is from w->rest to w->end.
 * False if there is not exactly one, or a frame is neither DATAGRAM nor ACK nor PING nor
 * PADDING. */
static __always_inline bool find_datagram(struct work *w)
{
	w->at = w->skip = w->rest = w->end = 0;
	for (__u32 i = 0; i < MAX_STEPS; i++) {
		int step = next_frame(w);
		if (step != STEP_ON)
			return step == STEP_DONE && w->rest;
	}
	return false;
}

#endif
