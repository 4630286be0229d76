// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Packet parser: Ethernet, VLAN tags, IPv4 or IPv6, up to the transport header. */
#ifndef HOLOCAST_PACKET_H
#define HOLOCAST_PACKET_H

#include "headers.h"

/* A parsed packet. Lengths are in bytes. */
struct packet {
	struct ethernet *ethernet;
	void *ip; /* the IP header */
	void *transport; /* set by find_transport */
	__u32 tags; /* number of VLAN tags in the frame */
	__u32 offset; /* offset of the IP header in the frame */
	__u32 headers; /* IP header length, including extensions after find_transport */
	__u32 length; /* IP packet length */
	__u32 number; /* packet ID, flow label or fragment ID */
	__u32 fragment; /* fragment offset and flags, network byte order */
	__u8 protocol; /* protocol after the headers */
	__u8 class; /* DSCP and ECN */
	__u8 lifetime; /* TTL or hop limit */
	bool v6;
	bool valid; /* correct version and, for IPv4, header length */
	bool later; /* fragment without a transport header */
};

enum parse_result {
	PARSE_IP,
	PARSE_OTHER, /* neither IPv4 nor IPv6 */
	PARSE_TRUNCATED,
};

static __always_inline bool is_vlan(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/*
 * Skips up to MAX_VLAN_TAGS tags and sets type to the inner EtherType. Returns the number of tags,
 * or -1 if the packet is too short.
 */
static __always_inline int skip_tags(struct cursor *c, __be16 *type)
{
	int tags = 0;

#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		if (!is_vlan(*type))
			break;
		struct vlan_tag *tag = TAKE(c, struct vlan_tag);
		if (!tag)
			return -1;
		*type = tag->type;
		tags++;
	}
	return tags;
}

/* Parses the headers up to and including the fixed IP header, and leaves the cursor after it. */
static __always_inline enum parse_result parse_packet(struct cursor *c, struct packet *p)
{
	struct ethernet *ethernet = TAKE(c, struct ethernet);

	if (!ethernet)
		return PARSE_TRUNCATED;
	__be16 type = ethernet->type;
	int tags = skip_tags(c, &type);
	if (tags < 0)
		return PARSE_TRUNCATED;
	p->ethernet = ethernet;
	p->tags = tags;
	p->offset = sizeof(struct ethernet) + tags * sizeof(struct vlan_tag);
	p->ip = c->at;
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = TAKE(c, struct iphdr);
		if (!ip)
			return PARSE_TRUNCATED;
		p->v6 = false;
		p->valid = ip->version == 4 && ip->ihl >= sizeof(*ip) / 4;
		p->headers = ip->ihl * 4;
		p->length = bpf_ntohs(ip->tot_len);
		p->number = bpf_ntohs(ip->id);
		p->fragment = ip->frag_off;
		p->later = ip->frag_off & bpf_htons(IPV4_OFFSET);
		p->protocol = ip->protocol;
		p->class = ip->tos;
		p->lifetime = ip->ttl;
		return PARSE_IP;
	}
	if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6 *ip = TAKE(c, struct ipv6);
		if (!ip)
			return PARSE_TRUNCATED;
		__u32 word = bpf_ntohl(ip->word);
		p->v6 = true;
		p->valid = word >> 28 == 6;
		p->headers = sizeof(*ip);
		p->length = sizeof(*ip) + bpf_ntohs(ip->payload);
		p->number = word & IPV6_LABEL_MASK;
		p->fragment = 0;
		p->later = false;
		p->protocol = ip->next;
		p->class = word >> 20;
		p->lifetime = ip->hop_limit;
		return PARSE_IP;
	}
	return PARSE_OTHER;
}

/*
 * Skips IPv4 options or IPv6 extension headers. Returns false if the headers are truncated or
 * longer than the packet.
 */
static __always_inline bool find_transport(struct cursor *c, struct packet *p)
{
	if (!p->v6) {
		p->transport = p->ip + p->headers;
		return p->headers <= p->length;
	}
#pragma unroll
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		if (p->protocol != IPPROTO_HOPOPTS && p->protocol != IPPROTO_ROUTING &&
		    p->protocol != IPPROTO_DSTOPTS && p->protocol != IPPROTO_FRAGMENT)
			break;
		struct ipv6_extension *extension = TAKE(c, struct ipv6_extension);
		if (!extension)
			return false;
		__u32 bytes = sizeof(*extension);
		if (p->protocol == IPPROTO_FRAGMENT) {
			p->number = bpf_ntohl(extension->id);
			p->fragment = extension->fragment;
			p->later = extension->fragment & bpf_htons(IPV6_OFFSET);
		} else {
			bytes += extension->words * 8;
			c->at += extension->words * 8;
		}
		p->headers += bytes;
		p->protocol = extension->next;
		if (p->later)
			break;
	}
	p->transport = c->at;
	return p->headers <= p->length;
}

/* Maps an IPv4 address to IPv6, the form used in map keys. */
static __always_inline void map_address(struct address *to, __be32 from)
{
	*to = (struct address){ { 0, 0, bpf_htonl(0xffff), from } };
}

static __always_inline void source_of(const struct packet *p, struct address *source)
{
	if (p->v6)
		*source = ((struct ipv6 *)p->ip)->source;
	else
		map_address(source, ((struct iphdr *)p->ip)->saddr);
}

static __always_inline void destination_of(const struct packet *p, struct address *destination)
{
	if (p->v6)
		*destination = ((struct ipv6 *)p->ip)->destination;
	else
		map_address(destination, ((struct iphdr *)p->ip)->daddr);
}

#endif
