// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * QUIC short-header packets with ChaCha20-Poly1305: packet protection (RFC 9001 section 5), packet
 * numbers (RFC 9000 section 17.1) and frames (section 19).
 */
#ifndef HOLOCAST_FASTPATH_QUIC_H
#define HOLOCAST_FASTPATH_QUIC_H

#include "maps.h"

#define LONG_HEADER 0x80
#define FIXED_BIT 0x40
#define KEY_PHASE 0x04
#define PROTECTED_BITS 0x1f /* in a short header's first byte */
#define NUMBER_LENGTH 4 /* maximum in packets built here */

#define FRAME_PADDING 0x00
#define FRAME_PING 0x01
#define FRAME_ACK 0x02
#define FRAME_ACK_ECN 0x03
#define FRAME_DATAGRAM 0x30
#define FRAME_DATAGRAM_LENGTH 0x31
#define MAX_STEPS 160 /* frames and ACK integers in one packet; allows for 64 ranges */

/* Packet number length that makes the short header's length even. */
static __always_inline __u32 number_length(__u32 cid)
{
	return cid & 1 ? NUMBER_LENGTH : NUMBER_LENGTH - 1;
}

/* Sets the nonce to the packet number, big-endian, XOR the IV. */
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

/* Returns the header protection mask for a 16-byte sample. Leaves the block in a->stream. */
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

/* Expands a truncated packet number, given the largest one so far (RFC 9000 appendix A.3). */
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

/*
 * Returns the number from which to expand truncated ones. When the fast path joins a running
 * connection, it is unknown. Packets then alternately try the last number known and guesses in steps
 * of 65536, until one is authentic.
 */
static __always_inline __u64 largest_number(const struct source *s)
{
	return s->found || !(s->guess & 1) ? s->largest : ((__u64)(s->guess >> 1) << 16) + 0x7ffe;
}

/*
 * Handles a packet that failed authentication. Returns true if the cause may be a wrong guess of the
 * packet number.
 */
static __always_inline bool search_on(struct source *s)
{
	if (s->found)
		return false;
	s->guess = (s->guess + 1) & 0x1ffff; /* numbers up to 2^32 */
	return true;
}

/* Records a packet number. Returns false for a duplicate or a number too old to check. */
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

/* Returns a byte of the opened text, or 0 after its end. */
static __always_inline __u8 text_byte(const struct work *w, __u32 at)
{
	__u64 offset = at;

	OPAQUE(offset);
	return offset < AEAD_TEXT ? ((const __u8 *)w->opened.text)[offset] : 0;
}

/*
 * Reads the QUIC integer (RFC 9000 section 16) at an offset of the text into w->integer. Returns
 * its length, or 0 if it is truncated.
 */
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

/* State of find_datagram. */
enum step {
	STEP_ON,
	STEP_DONE,
	STEP_UNCLEAR,
};

/*
 * Parses one frame, or one integer of an ACK frame. All state is in w and the function is global, so
 * that all steps look the same to the verifier.
 */
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
		/*
		 * largest, delay, range count, first range; a gap and a length per range; three ECN counts
		 */
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
		return STEP_UNCLEAR; /* second DATAGRAM */
	w->rest = at;
	w->at = w->end;
	return STEP_ON;
}

/*
 * Finds the DATAGRAM frame in the opened text and sets w->rest and w->end to its content. Returns
 * false unless there is exactly one, accompanied only by ACK, PING and PADDING.
 */
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
