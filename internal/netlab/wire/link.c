//go:build linux

#include "link_state.h"
#include "wifi.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_PACKETS = 4096 }; // initial capacity, a power of two

static const int64_t second = 1000000000;

// Minimum spacing of packets that catch up: 100 000 per second, about the forwarder's capacity.
static const int64_t closest = 10000;

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

// begin puts conditions in force.
static void begin(struct link *l, const struct link_conditions *conditions)
{
	bool was_varied = l->now.varied;
	l->now = *conditions;
	if (!l->now.varied)
		l->delay = l->now.delay;
	else if (!was_varied || l->delay < l->now.delay_min || l->delay > l->now.delay_max)
		l->draw_at = conditions->at; // otherwise the current draw stays valid
}

static int64_t change_at(const struct link *l)
{
	return l->next < l->count ? l->ahead[l->next].at : LINK_NEVER;
}

static void change_until(struct link *l, int64_t time)
{
	while (change_at(l) <= time)
		begin(l, &l->ahead[l->next++]);
}

// draw_until draws the varying delays due by time.
static void draw_until(struct link *l, int64_t time)
{
	if (!l->now.varied || time < l->draw_at)
		return;
	if (l->draw_at < time - 10 * second)
		l->draw_at = time; // after a long silence the missed draws do not matter
	while (l->draw_at <= time) {
		l->delay = random_between(&l->random, l->now.delay_min, l->now.delay_max);
		l->draw_at += later(1, random_between(&l->random, l->now.every_min, l->now.every_max));
	}
}

bool link_change(struct link *l, const struct link_conditions *conditions, size_t count)
{
	struct link_conditions *copy = malloc(count * sizeof *copy);
	if (!copy)
		return false;
	memcpy(copy, conditions, count * sizeof *copy);
	free(l->ahead);
	l->ahead = copy;
	l->next = 0;
	l->count = count;
	return true;
}

struct link *link_new(const struct link_conditions *conditions, size_t count, uint64_t seed)
{
	struct link *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	l->room = FIRST_PACKETS;
	l->packets = calloc(l->room, sizeof *l->packets);
	l->free_at = l->last_due = INT64_MIN;
	random_seed(&l->random, seed);
	if (!l->packets || !link_change(l, conditions, count)) {
		link_free(l);
		return NULL;
	}
	begin(l, &l->ahead[l->next++]);
	return l;
}

void link_free(struct link *l)
{
	if (!l)
		return;
	free(l->packets);
	free(l->ahead);
	free(l);
}

static bool make_room(struct link *l)
{
	if (l->tail - l->head < l->room)
		return true;
	if (l->room > UINT32_MAX / 4)
		return false;
	struct link_packet *packets = malloc(2 * (size_t)l->room * sizeof *packets);
	if (!packets)
		return false;
	for (uint32_t i = l->head; i != l->tail; i++)
		packets[i & (2 * l->room - 1)] = *packet_at(l, i);
	free(l->packets);
	l->packets = packets;
	l->room *= 2;
	return true;
}

void link_leave(struct link *l, int64_t time)
{
	draw_until(l, time);
	struct link_packet packet = *packet_at(l, l->sent);
	packet.due = time + l->delay;
	l->queued_bytes -= packet.length;
	uint32_t place = l->sent++;
	bool stray = l->now.stray_share > 0 && random_unit(&l->random) < l->now.stray_share;
	if (stray) {
		packet.due += l->now.stray_delay;
	} else if (!l->now.reorder) {
		// After packets with a longer delay, packets leave at 1.5 times the rate to catch up. The
		// minimum spacing keeps short packets from leaving faster than any sender could send them.
		int64_t apart = 0;
		if (l->now.rate > 0)
			apart = (int64_t)(8e9 / 1.5 * (double)(packet.length + l->now.overhead) / l->now.rate);
		if (packet.due < l->last_due)
			apart = later(apart, closest);
		if (l->last_due != INT64_MIN)
			packet.due = later(packet.due, l->last_due + apart);
	}
	// Strays may still be in the delay line after the conditions have changed.
	for (; place != l->head && packet_at(l, place - 1)->due > packet.due; place--)
		*packet_at(l, place) = *packet_at(l, place - 1);
	*packet_at(l, place) = packet;
	if (!stray)
		l->last_due = later(packet.due, l->last_due);
}

// serve transmits packets up to time, at the rates in force until then.
static void serve(struct link *l, int64_t time)
{
	if (l->wifi) {
		wifi_run(l->wifi, time);
		return;
	}
	while (l->sent != l->tail) {
		const struct link_packet *first = packet_at(l, l->sent);
		int64_t from = later(l->free_at, first->arrival);
		if (from > time)
			return;
		change_until(l, from);
		if (l->bits == 0) {
			histogram_add(&l->stats.wait, from - first->arrival);
			l->bits = 8.0 * (double)(first->length + l->now.overhead);
		}
		int64_t done = from, change = change_at(l);
		if (l->now.rate > 0)
			done += (int64_t)ceil(l->bits * 1e9 / l->now.rate);
		if (done > change && change <= time) { // the remaining bits are sent at another rate
			l->bits -= (double)(change - from) * l->now.rate * 1e-9;
			if (l->bits < 1e-6)
				l->bits = 1e-6; // started, nearly finished
			l->free_at = change;
			continue;
		}
		if (done > time)
			return;
		l->bits = 0;
		l->free_at = done;
		link_leave(l, done);
	}
}

// lost advances the loss model by one packet.
static enum link_verdict lost(struct link *l)
{
	const struct link_conditions *c = &l->now;
	l->stats.asked += c->loss;
	if (c->to_bad > 0)
		l->bad = random_unit(&l->random) < (l->bad ? 1 - c->to_good : c->to_bad);
	else
		l->bad = false;
	double loss = l->bad ? c->loss_bad : c->loss_good;
	if (loss <= 0 || random_unit(&l->random) >= loss)
		return LINK_QUEUED;
	return l->bad ? LINK_LOST_BURST : LINK_LOST;
}

static bool queue_full(const struct link *l, uint32_t length)
{
	const struct link_conditions *c = &l->now;
	return (c->queue_bytes > 0 && l->queued_bytes + length > (uint64_t)c->queue_bytes) ||
	       (c->queue_packets > 0 && l->tail - l->sent >= (uint64_t)c->queue_packets);
}

enum link_verdict link_push(struct link *l, int64_t arrival, uint32_t length, uint32_t slot)
{
	serve(l, arrival);
	if (l->sent == l->tail || l->wifi)
		change_until(l, arrival);
	histogram_add(&l->stats.occupied, (int64_t)l->queued_bytes);
	enum link_verdict verdict = lost(l);
	if (verdict == LINK_QUEUED && queue_full(l, length))
		verdict = LINK_QUEUE_FULL;
	if (verdict == LINK_QUEUED && !make_room(l))
		verdict = LINK_NO_MEMORY;
	l->stats.packets[verdict]++;
	l->stats.bytes[verdict] += length;
	if (verdict == LINK_QUEUED) {
		if (l->wifi && l->sent == l->tail)
			wifi_wants(l->wifi, l->station, arrival);
		*packet_at(l, l->tail++) = (struct link_packet){.arrival = arrival, .length = length, .slot = slot};
		l->queued_bytes += length;
	}
	return verdict;
}

bool link_pop(struct link *l, int64_t now, struct link_packet *packet)
{
	serve(l, now);
	if (l->head == l->sent || packet_at(l, l->head)->due > now)
		return false;
	*packet = *packet_at(l, l->head++);
	return true;
}

int64_t link_next(const struct link *l)
{
	if (l->wifi) {
		int64_t due = l->head != l->sent ? packet_at(l, l->head)->due : LINK_NEVER, access = wifi_next(l->wifi);
		return due < access ? due : access;
	}
	if (l->head != l->sent && !l->now.reorder && l->now.stray_share == 0)
		return packet_at(l, l->head)->due;
	int64_t next = l->head != l->sent ? packet_at(l, l->head)->due : LINK_NEVER;
	if (l->sent == l->tail)
		return next;
	const struct link_packet *first = packet_at(l, l->sent);
	int64_t done = later(l->free_at, first->arrival);
	if (l->now.rate > 0) {
		double bits = l->bits > 0 ? l->bits : 8.0 * (double)(first->length + l->now.overhead);
		done += (int64_t)(bits * 1e9 / l->now.rate);
	}
	int64_t due = done + link_shortest_delay(l);
	if (due > change_at(l))
		due = later(done, change_at(l)); // the next conditions may be faster
	return due < next ? due : next;
}

int64_t link_shortest_delay(const struct link *l)
{
	return l->now.varied ? l->now.delay_min : l->now.delay;
}

void link_mark(struct link *l)
{
	memset(&l->stats.wait, 0, sizeof l->stats.wait);
	memset(&l->stats.occupied, 0, sizeof l->stats.occupied);
}

uint64_t link_queued_bytes(const struct link *l)
{
	return l->queued_bytes;
}

const struct link_stats *link_statistics(const struct link *l)
{
	return &l->stats;
}
