// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * OBJECT_DATAGRAM (draft-ietf-moq-transport-18 section 11.3.1). Unlike in QUIC, the number of leading
 * 1 bits in an integer's first byte is the number of bytes that follow (section 1.4.1).
 */
#ifndef HOLOCAST_FASTPATH_OBJECT_H
#define HOLOCAST_FASTPATH_OBJECT_H

#include "quic.h"

#define OBJECT_PROPERTIES 0x01
#define OBJECT_FIRST 0x04 /* the object ID is 0 and omitted */
#define OBJECT_DEFAULT_PRIORITY 0x08
#define OBJECT_PLAIN_TYPES 0x0e /* types handled here: end of group, and the two flags above */

/*
 * Reads an integer at an offset of the text into w->integer. Returns its length, or 0 if it extends
 * beyond w->end.
 */
__noinline __u32 take_moq_integer(struct work *w, __u32 at)
{
	if (!w || at >= AEAD_TEXT)
		return 0;
	__u32 first = text_byte(w, at), length = 1;
	__u64 value;

	for (__u32 i = 0; i < 8; i++) {
		if (!(first << i & 0x80))
			break;
		length++;
	}
	if (at + length > w->end)
		return 0;
	value = length < 8 ? first & (0x7f >> (length - 1)) : 0;
	for (__u32 i = 1; i < 9; i++) {
		if (i >= length)
			break;
		value = value << 8 | text_byte(w, at + i);
	}
	w->integer = value;
	return length;
}

/*
 * Parses the type, alias and location of the object in the DATAGRAM frame. Returns false if the
 * object must be left to user space.
 */
static __always_inline bool parse_object(struct work *w, const struct source *s)
{
	__u32 at = w->rest, n;

	if (s->prefix_length) { /* check the WebTransport session */
		for (__u32 i = 0; i < 8; i++) {
			if (i >= s->prefix_length)
				break;
			if (at >= w->end || text_byte(w, at) != (__u8)(s->prefix >> (8 * i)))
				return false;
			at++;
		}
	}
	if (at >= w->end)
		return false;
	w->type = text_byte(w, at++);
	if (w->type & ~OBJECT_PLAIN_TYPES)
		return false;
	n = take_moq_integer(w, at);
	if (!n)
		return false;
	w->key.alias = w->integer;
	at += n;
	w->rest = at;
	n = take_moq_integer(w, at);
	if (!n)
		return false;
	w->group = w->integer;
	at += n;
	w->object = 0;
	if (!(w->type & OBJECT_FIRST)) {
		n = take_moq_integer(w, at);
		if (!n)
			return false;
		w->object = w->integer;
		at += n;
	}
	if (!(w->type & OBJECT_DEFAULT_PRIORITY))
		at++;
	return at <= w->end;
}

#endif
