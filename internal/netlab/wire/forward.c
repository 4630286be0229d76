//go:build linux

#define _GNU_SOURCE
#include "forward.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

enum {
	BATCH = 16,         // packets per sendmmsg
	CHUNK_SLOTS = 256,  // slots allocated at a time, because touching new memory delays packets
	FIRST_CHUNKS = 128, // 64 MiB, enough for a second at 500 Mbit/s
	MAX_CHUNKS = 1 << 14,
};

static const int64_t microsecond = 1000, millisecond = 1000000, second = 1000000000;

// Packets due within this time leave immediately, because even a short sleep would make them late.
static const int64_t early = 5 * microsecond;

// Minimum sleep. At high rates it halves the cost per packet because receivers wake less often too;
// packets leave 15 µs later on average.
static const int64_t nap = 40 * microsecond;

// Bounds of the polling interval while packets are in flight. Within them, the interval is the
// shortest delay of any link. With no packets in flight the thread sleeps in poll, for at most
// idle.
static const int64_t shortest_glance = 50 * microsecond, longest_glance = millisecond;
static const int64_t idle = 10 * millisecond;

// Future conditions of a link.
struct forward_change {
	size_t count;
	struct link_conditions conditions[];
};

struct ring {
	int fd;
	uint8_t *frames;
	unsigned next;
};

struct batch {
	struct mmsghdr messages[BATCH];
	struct iovec parts[BATCH];
	struct link_packet packets[BATCH];
};

struct run {
	struct forwarder *f;
	struct ring rings[FORWARD_LINKS];
	struct batch batch;
	uint8_t *chunks[MAX_CHUNKS];
	size_t chunk_count;
	uint32_t *free_slots;
	size_t free_count;
	struct forward_counts counts[FORWARD_LINKS]; // current interval
	int64_t next_row;
	int64_t mono_minus_real; // offset between the clocks, as last measured
	int64_t compared_at;
};

static int64_t read_clock(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * second + t.tv_nsec;
}

// compare_clocks measures the offset from the kernel's timestamps (CLOCK_REALTIME) to
// CLOCK_MONOTONIC. Preemption between the readings would skew the result, so a slow measurement is discarded
// unless the stored one is old.
static void compare_clocks(struct run *r)
{
	int64_t shortest = INT64_MAX, difference = 0, now = 0;
	for (int i = 0; i < 3 && shortest > microsecond; i++) {
		int64_t before = read_clock(CLOCK_MONOTONIC);
		int64_t real = read_clock(CLOCK_REALTIME);
		now = read_clock(CLOCK_MONOTONIC);
		if (now - before < shortest) {
			shortest = now - before;
			difference = before + (now - before) / 2 - real;
		}
	}
	if (shortest <= 5 * microsecond || now - r->compared_at > 100 * millisecond) {
		r->mono_minus_real = difference;
		r->compared_at = now;
	}
}

struct forwarder *forward_new(void)
{
	struct forwarder *f = calloc(1, sizeof *f);
	if (f)
		f->started = read_clock(CLOCK_MONOTONIC);
	return f;
}

void forward_free(struct forwarder *f)
{
	if (!f)
		return;
	for (int i = 0; i < FORWARD_LINKS; i++)
		free(atomic_exchange(&f->changes[i], NULL));
	free(f);
}

bool forward_running(const struct forwarder *f)
{
	return atomic_load(&f->running);
}

void forward_stop(struct forwarder *f)
{
	atomic_store(&f->stop, 1);
}

void forward_mark(struct forwarder *f)
{
	atomic_store(&f->mark, 1);
}

bool forward_set(struct forwarder *f, int link, const struct link_conditions *conditions, size_t count)
{
	struct forward_change *change = malloc(sizeof *change + count * sizeof *conditions);
	if (!change)
		return false;
	change->count = count;
	memcpy(change->conditions, conditions, count * sizeof *conditions);
	free(atomic_exchange(&f->changes[link], change));
	return true;
}

const struct forward_row *forward_read(const struct forwarder *f)
{
	uint64_t read = atomic_load(&f->rows_read);
	return read < atomic_load(&f->rows_written) ? &f->rows[read % FORWARD_ROWS] : NULL;
}

void forward_read_done(struct forwarder *f)
{
	atomic_fetch_add(&f->rows_read, 1);
}

static bool fail(struct run *r, const char *call)
{
	r->f->error = errno;
	r->f->failed = call;
	return false;
}

// open_ring requests a TPACKET_V2 ring. Version 3 shows a packet only when its block is full or
// times out, a millisecond or more later; version 2 shows it immediately.
static bool open_ring(struct run *r, struct ring *ring, int fd)
{
	int version = TPACKET_V2;
	if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version))
		return fail(r, "PACKET_VERSION");
	struct tpacket_req request = {
		.tp_block_size = 64 * FORWARD_FRAME,
		.tp_block_nr = FORWARD_RING_FRAMES / 64,
		.tp_frame_size = FORWARD_FRAME,
		.tp_frame_nr = FORWARD_RING_FRAMES,
	};
	if (setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request))
		return fail(r, "PACKET_RX_RING");
	ring->frames = mmap(NULL, (size_t)FORWARD_FRAME * FORWARD_RING_FRAMES, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_POPULATE, fd, 0);
	if (ring->frames == MAP_FAILED) {
		ring->frames = NULL;
		return fail(r, "mmap of a packet ring");
	}
	ring->fd = fd;
	return true;
}

static bool add_chunk(struct run *r)
{
	size_t total = (r->chunk_count + 1) * CHUNK_SLOTS;
	if (r->chunk_count == MAX_CHUNKS || total > r->f->slots)
		return false;
	uint32_t *slots = realloc(r->free_slots, total * sizeof *slots);
	if (!slots)
		return false;
	r->free_slots = slots;
	uint8_t *chunk = mmap(NULL, (size_t)CHUNK_SLOTS * FORWARD_FRAME, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (chunk == MAP_FAILED)
		return false;
	for (size_t i = 0; i < CHUNK_SLOTS; i++)
		slots[r->free_count++] = (uint32_t)(r->chunk_count * CHUNK_SLOTS + i);
	r->chunks[r->chunk_count++] = chunk;
	return true;
}

static uint8_t *slot_at(struct run *r, uint32_t slot)
{
	return r->chunks[slot / CHUNK_SLOTS] + (size_t)(slot % CHUNK_SLOTS) * FORWARD_FRAME;
}

// arrive puts a frame from a ring on link i.
static void arrive(struct run *r, int i, const struct tpacket2_hdr *frame)
{
	struct forward_counts *counts = &r->counts[i];
	counts->packets_in++;
	counts->bytes_in += frame->tp_len;
	if (frame->tp_snaplen < frame->tp_len || frame->tp_snaplen > FORWARD_FRAME) {
		r->f->faults[i].oversize++;
		counts->failed++;
		return;
	}
	if (r->free_count == 0 && !add_chunk(r)) {
		r->f->faults[i].memory++;
		counts->failed++;
		return;
	}
	int64_t arrival = frame->tp_sec * second + frame->tp_nsec + r->mono_minus_real;
	uint32_t slot = r->free_slots[r->free_count - 1];
	struct link *link = r->f->ports[i].link;
	switch (link_push(link, arrival, frame->tp_len, slot)) {
	case LINK_QUEUED:
		memcpy(slot_at(r, slot), (const uint8_t *)frame + frame->tp_mac, frame->tp_snaplen);
		r->free_count--;
		break;
	case LINK_LOST:
		counts->lost++;
		break;
	case LINK_LOST_BURST:
		counts->lost_burst++;
		break;
	case LINK_QUEUE_FULL:
		counts->queue_full++;
		break;
	default:
		r->f->faults[i].memory++;
		counts->failed++;
	}
	uint64_t queued = link_queued_bytes(link);
	if (queued > counts->queue_max)
		counts->queue_max = queued;
}

static void receive(struct run *r, int i)
{
	struct ring *ring = &r->rings[i];
	for (int n = 0; n < FORWARD_RING_FRAMES; n++) {
		struct tpacket2_hdr *frame = (struct tpacket2_hdr *)(ring->frames + (size_t)ring->next * FORWARD_FRAME);
		if (!(__atomic_load_n(&frame->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
			break;
		arrive(r, i, frame);
		__atomic_store_n(&frame->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
		ring->next = (ring->next + 1) % FORWARD_RING_FRAMES;
	}
}

// send_batch sends the first n packets of the batch on link i.
static void send_batch(struct run *r, int i, int n)
{
	struct forward_counts *counts = &r->counts[i];
	for (int done = 0; done < n;) {
		int sent = sendmmsg(r->f->ports[i].out, r->batch.messages + done, (unsigned)(n - done), MSG_DONTWAIT);
		if (sent < 0 && errno == EINTR)
			continue;
		int64_t now = read_clock(CLOCK_MONOTONIC);
		if (sent < 0) { // the first packet was refused
			r->f->faults[i].send++;
			counts->failed++;
			done++;
			continue;
		}
		for (int k = done; k < done + sent; k++) {
			const struct link_packet *packet = &r->batch.packets[k];
			int64_t off = now - packet->due;
			histogram_add(&r->f->late[i], off < 0 ? -off : off);
			uint64_t delay = (uint64_t)(now - packet->arrival);
			histogram_add(&r->f->delay[i], (int64_t)delay);
			counts->delay_sum += delay;
			uint64_t last = r->f->last_delay[i];
			if (last > 0)
				counts->jitter_sum += delay > last ? delay - last : last - delay;
			r->f->last_delay[i] = delay;
			if (counts->packets_out == 0 || delay < counts->delay_min)
				counts->delay_min = delay;
			if (delay > counts->delay_max)
				counts->delay_max = delay;
			counts->packets_out++;
			counts->bytes_out += packet->length;
		}
		done += sent;
	}
	for (int k = 0; k < n; k++)
		r->free_slots[r->free_count++] = r->batch.packets[k].slot;
}

// depart sends the packets due on link i, at most one batch because the links take turns.
static void depart(struct run *r, int i)
{
	struct batch *b = &r->batch;
	int64_t now = read_clock(CLOCK_MONOTONIC) + early;
	int n = 0;
	while (n < BATCH && link_pop(r->f->ports[i].link, now, &b->packets[n])) {
		if (b->packets[n].lost) {
			r->free_slots[r->free_count++] = b->packets[n].slot;
			r->counts[i].lost++;
			continue;
		}
		b->parts[n] = (struct iovec){slot_at(r, b->packets[n].slot), b->packets[n].length};
		n++;
	}
	if (n > 0)
		send_batch(r, i, n);
}

static void take_change(struct run *r, int i)
{
	struct forward_change *change = atomic_exchange(&r->f->changes[i], NULL);
	if (!change)
		return;
	if (!link_change(r->f->ports[i].link, change->conditions, change->count)) {
		errno = ENOMEM;
		fail(r, "change of conditions");
	}
	free(change);
}

static void write_row(struct run *r, int64_t now)
{
	struct forwarder *f = r->f;
	for (int i = 0; i < f->count; i++) {
		struct tpacket_stats stats;
		socklen_t size = sizeof stats;
		if (!getsockopt(r->rings[i].fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size)) {
			f->faults[i].ring += stats.tp_drops;
			r->counts[i].failed += stats.tp_drops;
			r->counts[i].packets_in += stats.tp_drops;
		}
	}
	uint64_t written = atomic_load(&f->rows_written);
	if (written - atomic_load(&f->rows_read) < FORWARD_ROWS) {
		struct forward_row *row = &f->rows[written % FORWARD_ROWS];
		row->time = now;
		memcpy(row->links, r->counts, sizeof row->links);
		atomic_store(&f->rows_written, written + 1);
	} else {
		f->rows_lost++;
	}
	memset(r->counts, 0, sizeof r->counts);
}

// forward does all work due now and returns the time of the next.
static int64_t forward(struct run *r)
{
	struct forwarder *f = r->f;
	int64_t now = read_clock(CLOCK_MONOTONIC);
	compare_clocks(r);
	for (int i = 0; i < f->count; i++)
		take_change(r, i);
	if (atomic_load(&f->mark) && atomic_exchange(&f->mark, 0)) {
		memset(f->delay, 0, sizeof f->delay);
		for (int i = 0; i < f->count; i++)
			link_mark(f->ports[i].link);
	}
	for (int i = 0; i < f->count; i++)
		receive(r, i);
	int64_t next = LINK_NEVER;
	for (int i = 0; i < f->count; i++) {
		depart(r, i);
		int64_t due = link_next(f->ports[i].link);
		if (due < next)
			next = due;
	}
	if (now >= r->next_row) {
		write_row(r, now);
		while (r->next_row <= now)
			r->next_row += f->interval;
	}
	return next;
}

static void sleep_until(struct run *r, int64_t next)
{
	struct forwarder *f = r->f;
	int64_t now = read_clock(CLOCK_MONOTONIC);
	if (next <= now + early)
		return;
	f->wakes++;
	if (next == LINK_NEVER) {
		struct pollfd fds[FORWARD_LINKS];
		for (int i = 0; i < f->count; i++)
			fds[i] = (struct pollfd){.fd = r->rings[i].fd, .events = POLLIN};
		struct timespec most = {.tv_nsec = idle};
		ppoll(fds, (nfds_t)f->count, &most, NULL);
		return;
	}
	int64_t glance = longest_glance;
	for (int i = 0; i < f->count; i++)
		if (link_shortest_delay(f->ports[i].link) < glance)
			glance = link_shortest_delay(f->ports[i].link);
	if (glance < shortest_glance)
		glance = shortest_glance;
	if (next > now + glance)
		next = now + glance;
	if (next < now + nap)
		next = now + nap;
	struct timespec until = {next / second, next % second};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static bool prepare(struct run *r)
{
	for (int i = 0; i < r->f->count; i++)
		if (!open_ring(r, &r->rings[i], r->f->ports[i].in))
			return false;
	for (int i = 0; i < FIRST_CHUNKS && (i == 0 || (size_t)i * CHUNK_SLOTS < r->f->slots); i++)
		if (!add_chunk(r)) {
			errno = ENOMEM;
			return fail(r, "packet allocation");
		}
	for (int i = 0; i < BATCH; i++)
		r->batch.messages[i].msg_hdr = (struct msghdr){.msg_iov = &r->batch.parts[i], .msg_iovlen = 1};
	return true;
}

static void release(struct run *r)
{
	for (int i = 0; i < r->f->count; i++)
		if (r->rings[i].frames)
			munmap(r->rings[i].frames, (size_t)FORWARD_FRAME * FORWARD_RING_FRAMES);
	for (size_t i = 0; i < r->chunk_count; i++)
		munmap(r->chunks[i], (size_t)CHUNK_SLOTS * FORWARD_FRAME);
	free(r->free_slots);
	free(r);
}

void forward_run(struct forwarder *f)
{
	struct run *r = calloc(1, sizeof *r);
	if (!r) {
		f->error = ENOMEM;
		f->failed = "allocation";
		return;
	}
	r->f = f;
	if (f->priority > 0) {
		struct sched_param parameters = {.sched_priority = f->priority};
		if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &parameters))
			f->scheduling_error = errno;
	}
	if (f->processor > 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(f->processor, &set);
		sched_setaffinity(0, sizeof set, &set); // runs on any CPU if this fails
	}
	if (prepare(r)) {
		int64_t now = read_clock(CLOCK_MONOTONIC);
		r->next_row = now - (now - f->started) % f->interval + f->interval;
		atomic_store(&f->running, 1);
		while (!atomic_load(&f->stop) && !f->error)
			sleep_until(r, forward(r));
		write_row(r, read_clock(CLOCK_MONOTONIC));
	}
	f->cpu = (uint64_t)read_clock(CLOCK_THREAD_CPUTIME_ID);
	release(r);
}
