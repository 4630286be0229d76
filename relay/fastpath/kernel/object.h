// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* OBJECT_DATAGRAM (draft-ietf-moq-transport-18 section 11.3.1), whose integers are not
 * QUIC's: the leading ones of the first byte are the number of bytes after it (section
 * 1.4.1). */
#ifndef HOLOCAST_FASTPATH_OBJECT_H
#define HOLOCAST_FASTPATH_OBJECT_H

#include "quic.h"

#define OBJECT_PROPERTIES 0x01
#define OBJECT_FIRST 0x04 /* the object ID is 0 and left out */
#define OBJECT_DEFAULT_PRIORITY 0x08
#define OBJECT_PLAIN_TYPES 0x0e /* bits that are left: end of group, and the two above */

/* The integer at an offset of the text: its value in w->integer, its length returned, 0 if
 * it does not end before w->end. */
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

/* Parses the object that the DATAGRAM frame holds, up to its alias and location. False:
 * only user space can tell what it is. */
static __always_inline bool parse_object(struct work *w, const struct source *s)
{
	__u32 at = w->rest, n;

	if (s->prefix_length) { /* of another WebTransport session, or none */
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
