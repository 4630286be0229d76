//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "object.h"
#include "packet.h"
#include "quic.h"
#include "verdict.h"

/* A UDP packet to or from the relay, with its remote endpoint. */
struct datagram {
	struct endpoint remote;
	__u32 v6;
	__u32 payload; /* UDP payload length */
};

/* Reads the headers of a packet. Returns false unless it is UDP to or from the relay's port. */
static __always_inline bool read_datagram(struct __sk_buff *skb, struct headers *h, struct datagram *d, bool incoming)
{
	const struct udp *udp;

	__builtin_memset(d, 0, sizeof(*d));
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, 0, &h->ethernet, HEADERS(false)))
			return false;
		if (h->v4.ip.version != 4 || h->v4.ip.ihl != 5 || h->v4.ip.protocol != IPPROTO_UDP ||
		    h->v4.ip.frag_off & bpf_htons(IPV4_MF | IPV4_OFFSET))
			return false;
		map_address(&d->remote.address, incoming ? h->v4.ip.saddr : h->v4.ip.daddr);
		udp = &h->v4.udp;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, 0, &h->ethernet, HEADERS(true)))
			return false;
		if (h->v6.ip.next != IPPROTO_UDP)
			return false;
		d->remote.address = incoming ? h->v6.ip.source : h->v6.ip.destination;
		d->v6 = true;
		udp = &h->v6.udp;
	} else {
		return false;
	}
	d->remote.port = incoming ? udp->source : udp->destination;
	d->payload = bpf_ntohs(udp->length) - sizeof(*udp);
	return (incoming ? udp->destination : udp->source) == port && h->ethernet.type == skb->protocol &&
	       !skb->vlan_present && d->payload <= AEAD_TEXT;
}

static __always_inline bool same_endpoint(const struct endpoint *a, const struct endpoint *b)
{
	return !((a->address.word[0] ^ b->address.word[0]) | (a->address.word[1] ^ b->address.word[1]) |
		 (a->address.word[2] ^ b->address.word[2]) | (a->address.word[3] ^ b->address.word[3]) |
		 (a->port ^ b->port));
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/*
 * Sums UDP's pseudo-header. With checksum offload, the checksum field holds this sum, folded but
 * not complemented.
 */
static __always_inline __u64 pseudo_header(const __u32 *addresses, __u32 words, __u32 length)
{
	__u64 sum = bpf_htonl(IPPROTO_UDP) + (__u64)bpf_htonl(length);

#pragma unroll
	for (__u32 i = 0; i < 8; i++)
		if (i < words)
			sum += addresses[i];
	return sum;
}

/*
 * Opens a source's packet into w->opened. Returns 0 if it is authentic and new, otherwise the counter
 * to increment; only user space then handles the packet.
 */
__noinline int open_packet(struct __sk_buff *skb, __u32 index, __u32 at, __u32 payload)
{
	struct source *s = bpf_map_lookup_elem(&sources, &index);
	struct work *w = get_work();
	__u32 sample[4], header = 1 + cid_length, bytes, truncated;
	__u64 number, tag[2], length;
	union {
		__u8 bytes[32];
		__u64 words[4];
	} data = {};

	if (!s || !w || header > 1 + MAX_CID || payload < header + 4 + 16)
		return COUNT_USER_FORGED;
	if (bpf_skb_load_bytes(skb, at + header + 4, sample, sizeof(sample)) ||
	    bpf_skb_load_bytes(skb, at, data.bytes, 1 + MAX_CID + 4))
		return COUNT_USER_FORGED;
	__u64 mask = unprotected ? 0 : header_mask(&w->opened, s->header_key, sample);
	data.bytes[0] ^= mask & PROTECTED_BITS;
	bytes = (data.bytes[0] & 3) + 1;
	if (bpf_skb_load_bytes(skb, at + header, &truncated, sizeof(truncated)))
		return COUNT_USER_FORGED;
	truncated ^= mask >> 8;
	truncated = bpf_ntohl(truncated) >> (8 * (4 - bytes));
	number = expand_number(largest_number(s), truncated, bytes);

	/* The unprotected header, zero-padded, is the associated data. */
	truncated = bpf_htonl(truncated << (8 * (4 - bytes)));
	if (header > 1 + MAX_CID)
		return COUNT_USER_FORGED;
	for (__u32 i = 0; i < sizeof(data.bytes); i++) {
		if (i < header)
			continue;
		data.bytes[i] = i < header + 4 ? truncated >> (8 * (i - header)) : 0;
	}
	header += bytes;
	w->opened.data_length = header;
#pragma unroll
	for (int i = 0; i < 4; i++)
		w->opened.data[i] = data.words[i];

	/*
	 * Two comparisons are needed, as the verifier tracks neither differences nor comparisons
	 * with 0 before Linux 6.12.
	 */
	length = payload - header - AEAD_TAG;
	OPAQUE(length);
	if (length > AEAD_TEXT)
		return COUNT_USER_FORGED;
	OPAQUE(length);
	if ((__s64)length < 1)
		return COUNT_USER_FORGED;
	if (bpf_skb_load_bytes(skb, at + header, w->opened.text, length) ||
	    bpf_skb_load_bytes(skb, at + header + length, tag, sizeof(tag)))
		return COUNT_USER_FORGED;
	w->opened.length = length;

	struct packet_key *key = &s->keys[data.bytes[0] & KEY_PHASE ? 1 : 0];
	if (!key->valid)
		return COUNT_USER_KEY;
	set_key(&w->opened.cipher, key);
	set_nonce(&w->opened.cipher, key, number);
	if (!unprotected && !aead_open(&w->opened, tag[0], tag[1]))
		return search_on(s) ? COUNT_USER_SEARCH : COUNT_USER_FORGED;
	if (data.bytes[0] & 0x18) /* reserved bits are set, so user space closes the connection */
		return COUNT_USER_FRAMES;
	return first_arrival(s, number) ? 0 : COUNT_USER_REPLAYED;
}

/* Copies length bytes of the opened text, starting at from, into the text to seal, starting at to. */
__noinline int copy_text(struct work *w, __u32 from, __u32 to, __u32 length)
{
	if (!w)
		return 0;
	const __u8 *source = (const __u8 *)w->opened.text;
	__u8 *target = (__u8 *)w->sealed.text;

	for (__u32 i = 0; i < AEAD_TEXT / 8; i++) {
		if (8 * i >= length)
			break;
		__u64 f = from + 8 * i, t = to + 8 * i;
		OPAQUE(f);
		OPAQUE(t);
		if (f > AEAD_TEXT || t > AEAD_TEXT) /* the buffer has room for a word after the text */
			break;
		*(__u64 *)(target + t) = *(const __u64 *)(source + f);
	}
	return 0;
}

/* Builds the DATAGRAM frame with the viewer's alias in w->sealed.text and returns its length. */
static __always_inline __u32 build_frame(struct work *w, const struct viewer *v, const struct subscription *sub)
{
	__u8 *text = (__u8 *)w->sealed.text;
	__u32 prefix = v->prefix_length & 15, alias = sub->alias_length & 15, rest = w->end - w->rest, head;

	text[0] = FRAME_DATAGRAM; /* extends to the end of the packet */
	*(__u64 *)(text + 1) = v->prefix;
	text[1 + prefix] = w->type;
	*(__u64 *)(text + 2 + prefix) = sub->alias[0];
	*(__u64 *)(text + 10 + prefix) = sub->alias[1];
	head = 2 + prefix + alias;
	copy_text(w, w->rest, head, rest);
	return head + rest;
}

/* Copies an endpoint's route to w->copy. Returns its interface, or 0 if the route is unknown. */
static __always_inline __u32 take_route(struct work *w, const struct endpoint *remote)
{
	struct endpoint key = *remote;
	struct route *r = bpf_map_lookup_elem(&routes, &key);
	__u32 ifindex;

	if (!r)
		return 0;
	bpf_spin_lock(&r->lock);
	ifindex = r->ifindex;
	w->copy.headers = r->length;
	__builtin_memcpy(w->copy.start, r->headers, sizeof(r->headers));
	bpf_spin_unlock(&r->lock);
	return ifindex;
}

/* Returns the unfolded checksum of at most AEAD_TEXT bytes, zero-padded to a multiple of 4. */
static __always_inline __u64 sum_of(void *bytes, __u32 length)
{
	__u64 sum = 0;

#pragma unroll
	for (__u32 i = 0; i < AEAD_TEXT / 512; i++) { /* before Linux 6.14 the helper takes at most 512 bytes */
		if (length <= 512 * i)
			break;
		__u32 part = length - 512 * i;
		part = part > 512 ? 512 : (part + 3) & ~3U;
		OPAQUE(part);
		if (part > 512)
			break;
		sum += (__u32)bpf_csum_diff(NULL, 0, bytes + 512 * i, part, 0);
	}
	return sum;
}

/*
 * Completes the IP and UDP headers in w->copy. The payload is the short header followed by the
 * sealed text.
 */
static __always_inline void finish_headers(struct work *w, __u32 ecn, __u32 payload)
{
	struct headers *h = (struct headers *)w->copy.start;
	__u32 udp_length = sizeof(struct udp) + payload, quic = w->copy.quic;
	__u64 sum;
	struct udp *udp;

	if (w->copy.v6) {
		h->v6.ip.word |= bpf_htonl(ecn << 20);
		h->v6.ip.payload = bpf_htons(udp_length);
		sum = pseudo_header((__u32 *)&h->v6.ip.source, 8, udp_length);
		udp = &h->v6.udp;
	} else {
		__u16 *words = (__u16 *)&h->v4.ip;
		__u64 ip = 0;

		h->v4.ip.tos |= ecn;
		h->v4.ip.tot_len = bpf_htons(sizeof(h->v4.ip) + udp_length);
#pragma unroll
		for (int i = 0; i < 10; i++)
			ip += words[i];
		h->v4.ip.check = ~fold(ip);
		sum = pseudo_header((__u32 *)&h->v4.ip.saddr, 2, udp_length);
		udp = &h->v4.udp;
	}
	udp->length = bpf_htons(udp_length);
	if (w->partial) {
		udp->checksum = fold(sum);
		return;
	}
	const __u16 *words = (const __u16 *)udp;
	for (__u32 i = 0; i < (sizeof(*udp) + 1 + MAX_CID + NUMBER_LENGTH + 1) / 2; i++) {
		if (2 * i >= sizeof(*udp) + quic)
			break;
		sum += words[i];
	}
	sum += sum_of(w->sealed.text, payload - quic);
	udp->checksum = ~fold(sum);
	if (!udp->checksum)
		udp->checksum = 0xffff;
}

/*
 * Builds the short header after the headers in w->copy. Its length is even, so that the text is
 * aligned to checksum words.
 */
static __always_inline __u8 *build_short_header(struct work *w, const struct viewer *v, __u64 number, __u32 phase)
{
	__u8 *start = w->copy.start + HEADERS_PAD + (w->copy.v6 ? HEADERS(true) : HEADERS(false));
	__u32 cid = v->cid_length, bytes = number_length(cid);
	__be32 big = bpf_htonl((__u32)number << (8 * (4 - bytes)));

	if (cid > MAX_CID)
		return NULL;
	start[0] = FIXED_BIT | (phase ? KEY_PHASE : 0) | (bytes - 1);
	__builtin_memcpy(start + 1, v->cid.bytes, MAX_CID);
	__builtin_memcpy(start + 1 + cid, &big, 4);
	w->copy.quic = 1 + cid + bytes;
	return start;
}

/*
 * Encrypts the packet of w->record with its precomputed key stream. If there is none, leaves the text
 * unchanged and returns 0. Checking the number again after the copy detects whether user space has
 * overwritten the key stream, so each is used only once.
 */
__noinline int crypt_precomputed(struct work *w, const struct key_stream *s)
{
	if (!w || !s)
		return 0;
	__u64 number = w->record.number + 1;
	__u32 length = w->sealed.length;

	if (*(volatile __u64 *)&s->number != number || s->length < length)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < PRECOMPUTED_TEXT / 8; i++) {
		if (8 * i >= length)
			break;
		w->stream[i] = *(volatile __u64 *)&s->words[i];
	}
	if (*(volatile __u64 *)&s->number != number)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < PRECOMPUTED_TEXT / 8; i++) {
		if (8 * i >= length)
			break;
		w->sealed.text[i] ^= w->stream[i];
	}
	return 1;
}

/* Returns the slot for the precomputed key stream of w->record, or NULL. */
static __always_inline const struct key_stream *find_stream(const struct work *w)
{
	__u32 index = w->record.viewer;
	struct key_streams *s = bpf_map_lookup_elem(&precomputed, &index);

	return s ? &s->of[w->record.number % PRECOMPUTED_PACKETS] : NULL;
}

/* Builds a viewer's packet from the opened packet in w. The frame is already in place. */
static __always_inline bool build_packet(struct work *w, struct viewer *v, __u64 number, __u32 phase, __u32 frame)
{
	__u8 *start = build_short_header(w, v, number, phase);
	const struct packet_key *key = &v->keys[phase & 1];

	if (!start || frame > AEAD_TEXT || frame < 4)
		return false;
	w->sealed.length = frame;
	w->sealed.data_length = w->copy.quic;
	__builtin_memset(w->sealed.data, 0, sizeof(w->sealed.data));
	__u8 *data = (__u8 *)w->sealed.data;
	for (__u32 i = 0; i < 1 + MAX_CID + NUMBER_LENGTH; i++) {
		if (i >= w->copy.quic)
			break;
		data[i] = start[i];
	}
	if (!unprotected) {
		set_key(&w->sealed.cipher, key);
		set_nonce(&w->sealed.cipher, key, number);
		const struct key_stream *s = find_stream(w);
		if (s && crypt_precomputed(w, s)) {
			count(COUNT_PRECOMPUTED);
			aead_finish(&w->sealed);
		} else {
			aead_seal(&w->sealed);
		}
	} else {
		w->sealed.tag[0] = w->sealed.tag[1] = 0;
	}
	OPAQUE(frame);
	if (frame > AEAD_TEXT) /* must be here, as the verifier loses the bound before Linux 6.18 */
		return false;
	__u8 *end = (__u8 *)w->sealed.text + frame;
	*(__u64 *)end = w->sealed.tag[0];
	*(__u64 *)(end + 8) = w->sealed.tag[1];
	*(__u64 *)(end + 16) = 0;
	if (unprotected)
		return true;

	__u32 cid = v->cid_length, sample[4];
	if (cid > MAX_CID)
		return false;
	/* The sample starts 4 bytes after the start of the packet number. */
	__u8 *from = (__u8 *)w->sealed.text + (4 - number_length(cid));
	__builtin_memcpy(sample, from, sizeof(sample));
	__u64 mask = header_mask(&w->sealed, v->header_key, sample);
	start[0] ^= mask & PROTECTED_BITS;
	__be32 big;
	__builtin_memcpy(&big, start + 1 + cid, 4);
	big ^= (__u32)(mask >> 8);
	if (number_length(cid) == 3)
		big &= bpf_htonl(0xffffff00);
	__builtin_memcpy(start + 1 + cid, &big, 4);
	return true;
}

/* Leaves a viewer's object to user space. Returns reason. */
static __always_inline int fall_back(const struct work *w, struct viewer *v, int reason)
{
	v->last_fallback.track = w->track;
	v->last_fallback.group = w->group;
	v->last_fallback.object = w->object;
	__sync_fetch_and_add(&v->fallbacks, 1);
	return reason;
}

/* True if an object would overtake one that was left to user space. */
static __always_inline bool would_overtake(const struct work *w, const struct viewer *v)
{
	__u64 fallbacks = *(volatile __u64 *)&v->fallbacks;

	return fallbacks && ((v->last_fallback.object && fallbacks != *(volatile __u64 *)&v->caught_up) ||
			(v->last_fallback.track == w->track && v->last_fallback.group == w->group));
}

/*
 * Sends a copy of the opened object to a subscription's viewer. Returns the counter to increment.
 */
__noinline int forward(struct __sk_buff *skb, struct subscription *sub)
{
	struct work *w = get_work();

	if (!w || !sub)
		return COUNT_FAILED;
	__u32 index = sub->viewer;
	struct viewer *v = bpf_map_lookup_elem(&viewers, &index);
	if (!v)
		return COUNT_FAILED;
	if (w->group < sub->start_group || w->group > sub->last_group ||
	    (w->group == sub->start_group && w->object < sub->start_object))
		return COUNT_FALLBACK_FILTER;
	if (!*(volatile __u32 *)&v->on)
		return COUNT_FALLBACK_SUSPENDED;
	if (would_overtake(w, v))
		return fall_back(w, v, COUNT_FALLBACK_ORDER);
	__u32 ifindex = take_route(w, &v->remote);
	if (!ifindex)
		return COUNT_FALLBACK_ROUTE;
	w->copy.v6 = w->copy.headers == HEADERS(true);
	__u32 frame = build_frame(w, v, sub);
	__u32 payload = 1 + v->cid_length + number_length(v->cid_length) + frame + AEAD_TAG;
	if (frame > v->max_frame || payload > v->max_size || payload > AEAD_TEXT)
		return fall_back(w, v, COUNT_FALLBACK_SIZE);

	__u64 sent = __sync_fetch_and_add(&v->sent, payload);
	if (sent + payload > *(volatile __u64 *)&v->allowed) {
		__sync_fetch_and_add(&v->sent, -(__u64)payload);
		return fall_back(w, v, COUNT_FALLBACK_BUDGET);
	}
	__u64 number = __sync_fetch_and_add(&v->block.next, 1);
	__u64 limit = *(volatile __u64 *)&v->block.limit;
	if (number < *(volatile __u64 *)&v->block.first || number >= limit >> 1) {
		__sync_fetch_and_add(&v->sent, -(__u64)payload);
		return fall_back(w, v, COUNT_FALLBACK_NUMBERS);
	}
	/* Register before sending, since user space must know the packet when its ACK arrives. */
	w->record = (struct sent_record){
		.time = bpf_ktime_get_ns(),
		.number = number,
		.group = w->group,
		.object = w->object,
		.viewer = index,
		.track = w->track,
		.size = payload,
		.ecn = v->ecn & 3,
	};
	if (bpf_ringbuf_output(&records, &w->record, sizeof(w->record), BPF_RB_NO_WAKEUP)) {
		__sync_fetch_and_add(&v->sent, -(__u64)payload);
		return fall_back(w, v, COUNT_FALLBACK_RING);
	}
	if (!build_packet(w, v, number, limit & 1, frame))
		return COUNT_FAILED;
	finish_headers(w, w->record.ecn, payload);
	w->copy.size = frame + AEAD_TAG;
	w->copy.ready = true;
	int error = bpf_clone_redirect(skb, ifindex, 0);
	if (w->copy.ready) { /* viewer_egress is not attached to that interface, so the clone left unchanged */
		w->copy.ready = false;
		v->on = 0; /* suspended until user space resumes it, as after an address change */
		return COUNT_FAILED;
	}
	if (error)
		return COUNT_FAILED;
	add(COUNT_BYTES, payload);
	return COUNT_FORWARDED;
}

/*
 * publisher_ingress sends viewers copies of the objects that publishers send as datagrams.
 * Hook:     TC ingress (TCX or clsact), on interfaces that receive publishers' packets.
 * Input:    Ethernet, IPv4 or IPv6 without options, UDP to the relay's port. Other packets pass.
 * Reads:    connections, sources, tracks, routes, leases, precomputed.
 * Writes:   works, viewers, sources, records, counts.
 * Verdicts: UNSPEC, always: user space gets every packet unchanged.
 */
SEC("tc")
int publisher_ingress(struct __sk_buff *skb)
{
	struct datagram d;
	struct connection_id id = {};
	struct work *w = get_work();

	if (!w || !read_datagram(skb, &w->headers, &d, true))
		return PASS;
	__u32 at = (d.v6 ? HEADERS(true) : HEADERS(false));
	__u8 first;
	if (bpf_skb_load_bytes(skb, at, &first, 1) || (first & (LONG_HEADER | FIXED_BIT)) != FIXED_BIT)
		return PASS;
	__u32 length = cid_length;
	if (!length || length > MAX_CID || bpf_skb_load_bytes(skb, at + 1, id.bytes, length))
		return PASS;
	struct connection *c = bpf_map_lookup_elem(&connections, &id);
	if (!c || !c->source)
		return PASS;
	__u32 index = c->source - 1;
	struct source *s = bpf_map_lookup_elem(&sources, &index);
	if (!s || !*(volatile __u32 *)&s->on || !alive(bpf_ktime_get_ns()))
		return PASS;
	if (!same_endpoint(&s->remote, &d.remote)) {
		count(COUNT_USER_UNKNOWN_ADDRESS);
		return PASS;
	}
	if (skb->gso_segs > 1) {
		count(COUNT_USER_GSO);
		return PASS;
	}
	int reason = open_packet(skb, index, at, d.payload);
	if (reason) {
		count(reason);
		return PASS;
	}
	count(COUNT_OPENED);
	if (!find_datagram(w)) {
		count(COUNT_USER_FRAMES);
		return PASS;
	}
	if (!parse_object(w, s)) {
		count(COUNT_USER_OBJECT);
		return PASS;
	}
	w->key.source = index;
	struct track *t = bpf_map_lookup_elem(&tracks, &w->key);
	if (!t) {
		count(COUNT_USER_ALIAS);
		return PASS;
	}
	w->track = t->id;
	const struct headers *h = &w->headers;
	__u16 pseudo = fold(d.v6 ? pseudo_header((__u32 *)&h->v6.ip.source, 8, d.payload + sizeof(struct udp))
				 : pseudo_header((__u32 *)&h->v4.ip.saddr, 2, d.payload + sizeof(struct udp)));
	w->partial = pseudo == (d.v6 ? h->v6.udp.checksum : h->v4.udp.checksum);
	for (__u32 i = 0; i < MAX_TRACK_VIEWERS; i++) {
		if (i >= t->count)
			break;
		count(forward(skb, &t->viewers[i]));
	}
	return PASS;
}

/* Turns the outgoing clone into the viewer's packet. */
static __always_inline int put_copy(struct __sk_buff *skb, struct work *w)
{
	__u32 start = w->copy.headers + w->copy.quic, size = w->copy.size;
	__be16 protocol = w->copy.v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);

	if (skb->protocol != protocol && bpf_skb_change_proto(skb, protocol, 0))
		return DROP;
	if (bpf_skb_change_tail(skb, start + size, 0))
		return DROP;
	/* Separate comparisons, as in open_packet. */
	OPAQUE(start);
	if (start > sizeof(w->copy.start) - HEADERS_PAD)
		return DROP;
	OPAQUE(start);
	if (start < sizeof(struct ethernet) || bpf_skb_store_bytes(skb, 0, w->copy.start + HEADERS_PAD, start, 0))
		return DROP;
	OPAQUE(size);
	if (size > AEAD_TEXT + AEAD_TAG)
		return DROP;
	OPAQUE(size);
	if (size < AEAD_TAG || bpf_skb_store_bytes(skb, start, w->sealed.text, size, 0))
		return DROP;
	return PASS;
}

/* Records the headers with which the stack reaches a viewer. */
static __always_inline void learn_route(struct __sk_buff *skb)
{
	struct headers h = {};
	struct datagram d;

	if (!read_datagram(skb, &h, &d, false))
		return;
	struct route *r = bpf_map_lookup_elem(&routes, &d.remote);
	if (!r)
		return;
	__u32 length = d.v6 ? HEADERS(true) : HEADERS(false);
	if (d.v6) {
		h.v6.ip.word &= ~bpf_htonl(3 << 20);
		h.v6.ip.payload = 0;
		h.v6.udp.length = h.v6.udp.checksum = 0;
	} else {
		h.v4.ip.tos &= ~3;
		h.v4.ip.tot_len = h.v4.ip.id = h.v4.ip.check = 0;
		h.v4.udp.length = h.v4.udp.checksum = 0;
	}
	bpf_spin_lock(&r->lock);
	r->ifindex = skb->ifindex;
	r->length = length;
	__builtin_memcpy(r->headers, &h, sizeof(h));
	bpf_spin_unlock(&r->lock);
}

/*
 * viewer_egress turns clones into viewers' packets and records the headers of the relay's own packets.
 * Hook:     TC egress (TCX or clsact), before other programs, on interfaces that lead to viewers.
 * Input:    clones from publisher_ingress; Ethernet, IPv4 or IPv6 without options, UDP from the relay's port.
 * Reads:    works.
 * Writes:   works, routes.
 * Verdicts: SHOT a clone that could not be converted; UNSPEC other packets.
 */
SEC("tc")
int viewer_egress(struct __sk_buff *skb)
{
	struct work *w = get_work();

	if (!w)
		return PASS;
	if (w->copy.ready) {
		w->copy.ready = false;
		return put_copy(skb, w);
	}
	learn_route(skb);
	return PASS;
}

/*
 * viewer_ingress suspends a viewer whose address changes, until user space has validated the new path.
 * Hook:     TC ingress (TCX or clsact), on interfaces that receive viewers' packets.
 * Input:    as for publisher_ingress.
 * Reads:    connections.
 * Writes:   viewers, counts.
 * Verdicts: UNSPEC, always.
 */
SEC("tc")
int viewer_ingress(struct __sk_buff *skb)
{
	struct headers h;
	struct datagram d;
	struct connection_id id = {};

	if (!read_datagram(skb, &h, &d, true))
		return PASS;
	__u32 at = (d.v6 ? HEADERS(true) : HEADERS(false)), length = cid_length;
	__u8 first;
	if (bpf_skb_load_bytes(skb, at, &first, 1) || (first & (LONG_HEADER | FIXED_BIT)) != FIXED_BIT)
		return PASS;
	if (!length || length > MAX_CID || bpf_skb_load_bytes(skb, at + 1, id.bytes, length))
		return PASS;
	struct connection *c = bpf_map_lookup_elem(&connections, &id);
	if (!c || !c->viewer)
		return PASS;
	__u32 index = c->viewer - 1;
	struct viewer *v = bpf_map_lookup_elem(&viewers, &index);
	if (!v || !*(volatile __u32 *)&v->on || same_endpoint(&v->remote, &d.remote))
		return PASS;
	v->on = 0;
	count(COUNT_MIGRATED);
	return PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
