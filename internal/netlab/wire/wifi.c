//go:build linux

#include "wifi.h"

#include <stdlib.h>
#include <string.h>

#include "link_state.h"

// Minstrel's constants, after Linux (net/mac80211/rc80211_minstrel_ht.c): statistics are updated
// every 50 ms with a weight of 25 %. In this model, every tenth exchange samples another rate with a
// single frame, and seldom a rate that failed before.
static const int64_t update_every = 50000000;
static const double new_weight = 0.25;
enum { SAMPLE_EVERY = 10, HOPELESS_EVERY = 160 };
static const double hopeless = 0.1; // share of frames that a rate delivered

enum { MAX_FRAMES = 256, DELIMITER = 4, ETHERNET = 14, QUEUED_LOAD = 4096 };

struct rate_state {
	double success; // smoothed
	bool known;
	uint32_t tried, succeeded; // since the last update
};

struct station {
	struct link *link;
	bool loads;      // generates its packets
	double load;     // bit/s; 0 = without pause
	uint32_t length; // of generated packets
	int64_t next;    // generated packet

	int64_t backoff; // remaining slots
	int window;
	int64_t wants;   // when the queue got its first packet
	int failures;    // consecutive exchanges without a delivered frame

	double fade; // dB
	int64_t faded_at;

	struct rate_state rates[WIFI_RATES];
	int best;
	int64_t update_at;
	uint32_t turns;

	// Of the exchange.
	uint32_t picked[MAX_FRAMES];
	int count, rate;
	bool samples; // the rate
	int64_t air;

	struct wifi_stats stats;
};

struct wifi {
	struct wifi_config c;
	struct station *stations[WIFI_STATIONS];
	int count;
	int64_t now;       // events up to this time have happened
	bool running;      // in wifi_run
	int64_t idle_from; // end of the last exchange
	bool burst;
	int64_t burst_until; // or until the next one
	struct random random;
};

struct wifi *wifi_new(const struct wifi_config *c, uint64_t seed)
{
	struct wifi *w = calloc(1, sizeof *w);
	if (!w)
		return NULL;
	w->c = *c;
	w->now = INT64_MIN;
	random_seed(&w->random, seed);
	return w;
}

void wifi_free(struct wifi *w)
{
	if (!w)
		return;
	for (int i = 0; i < w->count; i++) {
		if (w->stations[i]->loads)
			link_free(w->stations[i]->link);
		free(w->stations[i]);
	}
	free(w);
}

static struct station *add(struct wifi *w, struct link *l)
{
	if (w->count == WIFI_STATIONS)
		return NULL;
	struct station *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->link = l;
	s->window = w->c.cw_min;
	s->next = LINK_NEVER;
	s->best = w->c.rates - 1;
	s->faded_at = INT64_MIN;
	l->wifi = w;
	l->station = w->count;
	w->stations[w->count++] = s;
	return s;
}

bool wifi_attach(struct wifi *w, struct link *l)
{
	return add(w, l) != NULL;
}

bool wifi_load(struct wifi *w, double rate, uint32_t length, uint64_t seed)
{
	struct link_conditions c = {.at = INT64_MIN, .queue_packets = QUEUED_LOAD};
	struct link *l = link_new(&c, 1, seed);
	if (!l)
		return false;
	struct station *s = add(w, l);
	if (!s) {
		link_free(l);
		return false;
	}
	s->loads = true;
	s->load = rate;
	s->length = length;
	s->next = 0;
	return true;
}

const struct wifi_stats *wifi_statistics(const struct wifi *w, int station)
{
	return &w->stations[station]->stats;
}

const struct wifi_stats *wifi_link_statistics(const struct link *l)
{
	return l->wifi ? wifi_statistics(l->wifi, l->station) : NULL;
}

static uint32_t queued(const struct station *s)
{
	return s->link->tail - s->link->sent;
}

static void draw_backoff(struct wifi *w, struct station *s)
{
	s->backoff = random_between(&w->random, 0, s->window);
}

void wifi_wants(struct wifi *w, int station, int64_t arrival)
{
	struct station *s = w->stations[station];
	s->wants = arrival > w->now ? arrival : w->now;
	if (s->wants < w->idle_from && s->backoff == 0)
		draw_backoff(w, s); // the medium is busy
}

// access_at returns when a station with packets sends, if no other does so before. Stations start
// at the slots that follow the arbitration space.
static int64_t access_at(const struct wifi *w, const struct station *s)
{
	int64_t start = w->idle_from + w->c.aifs, slots = s->backoff;
	if (s->wants > start) {
		int64_t late = (s->wants - start + w->c.slot - 1) / w->c.slot;
		if (late > slots)
			slots = late;
	}
	return start + slots * w->c.slot;
}

// generate queues a loading station's packets.
static void generate(struct wifi *w, struct station *s)
{
	int64_t at = s->next;
	if (s->load == 0) {
		while (queued(s) < 2 * (uint32_t)w->c.frames) // the queue must not run empty
			link_push(s->link, at, s->length, 0);
		s->next = LINK_NEVER; // refilled after each exchange
		return;
	}
	link_push(s->link, at, s->length, 0);
	s->next = at + random_exponential(&w->random, 8e9 * s->length / s->load);
}

// fade advances a station's fading, a first-order autoregressive process, and returns its
// signal-to-noise ratio.
static double fade(struct wifi *w, struct station *s, int64_t time)
{
	if (w->c.fading > 0 && (s->faded_at == INT64_MIN || time > s->faded_at)) {
		double keep = s->faded_at == INT64_MIN ? 0 : exp(-(double)(time - s->faded_at) / (double)w->c.coherence);
		// Box and Muller's transform
		double normal = sqrt(-2 * log(1 - random_unit(&w->random))) *
				cos(6.283185307179586 * random_unit(&w->random));
		s->fade = keep * s->fade + sqrt(1 - keep * keep) * w->c.fading * normal;
		s->faded_at = time;
	}
	return w->c.snr + s->fade;
}

// error_rate returns the probability that a frame fails outside of bursts.
static double error_rate(const struct wifi *w, double snr, int rate, int64_t bytes)
{
	static const double tenth = 0.10536; // -ln 0.9
	double errors = tenth * pow(10, (w->c.rate[rate].snr - snr) * w->c.slope) * (double)bytes / 4096;
	return 1 - exp(-errors);
}

// in_burst advances the two-state process of bursts.
static bool in_burst(struct wifi *w, int64_t time)
{
	if (w->c.burst_share <= 0)
		return false;
	while (w->burst_until <= time) {
		double bad = (double)w->c.burst_length, good = bad * (1 - w->c.burst_share) / w->c.burst_share;
		if (w->burst_until < time - (int64_t)(100 * (bad + good)))
			w->burst_until = time - (int64_t)(100 * (bad + good)); // older states do not matter
		w->burst = !w->burst;
		w->burst_until += random_exponential(&w->random, w->burst ? bad : good);
	}
	return w->burst;
}

// update_rates computes Minstrel's best rate.
static void update_rates(struct wifi *w, struct station *s, int64_t time)
{
	if (time < s->update_at)
		return;
	s->update_at = time + update_every;
	double most = -1;
	for (int i = 0; i < w->c.rates; i++) {
		struct rate_state *r = &s->rates[i];
		if (r->tried > 0) {
			double success = (double)r->succeeded / r->tried;
			r->success = r->known ? r->success + new_weight * (success - r->success) : success;
			r->known = true;
			r->tried = r->succeeded = 0;
		}
		double throughput = r->success * w->c.rate[i].bits;
		if (r->known && throughput > most) {
			most = throughput;
			s->best = i;
		}
	}
}

// choose_rate returns the rate of an exchange. A sample sends a single frame.
static int choose_rate(struct wifi *w, struct station *s, int64_t time, double snr, bool *sample)
{
	const struct wifi_config *c = &w->c;
	*sample = false;
	if (c->adaptation == WIFI_FIXED)
		return c->fixed;
	if (c->adaptation == WIFI_SNR) {
		int best = 0;
		double most = -1;
		for (int i = 0; i < c->rates; i++) {
			double throughput = c->rate[i].bits * (1 - error_rate(w, snr, i, 1500));
			if (throughput > most) {
				most = throughput;
				best = i;
			}
		}
		return best;
	}
	update_rates(w, s, time);
	if (s->failures > 0) // the retry chain
		return s->best > 2 * (s->failures - 1) + 1 ? s->best - 2 * (s->failures - 1) - 1 : 0;
	if (++s->turns % SAMPLE_EVERY == 0) {
		int i = (int)random_between(&w->random, 0, c->rates - 1);
		struct rate_state *best = &s->rates[s->best];
		// Only rates that may be better are worth a sample.
		const struct rate_state *r = &s->rates[i];
		bool better = !r->known || c->rate[i].bits > best->success * c->rate[s->best].bits;
		if (r->known && r->success < hopeless && s->turns % HOPELESS_EVERY != 0)
			better = false;
		if (i != s->best && better) {
			*sample = true;
			return i;
		}
	}
	return s->best;
}

// mpdu_bytes returns a frame's length in the PSDU.
static int64_t mpdu_bytes(const struct wifi *w, const struct link_packet *p)
{
	int64_t bytes = w->c.header + (p->length > ETHERNET ? p->length - ETHERNET : 0);
	return w->c.frames > 1 ? (bytes + DELIMITER + 3) / 4 * 4 : bytes;
}

// air_time returns the duration of a PPDU: service field, PSDU and tail in whole symbols.
static int64_t air_time(const struct wifi *w, int rate, int64_t bytes)
{
	return w->c.preamble + (int64_t)(ceil((16 + 6 + 8.0 * (double)bytes) / w->c.rate[rate].bits) * w->c.symbol);
}

// compose picks the frames of a station's exchange.
static void compose(struct wifi *w, struct station *s, int64_t time, double snr)
{
	struct link *l = s->link;
	bool sample;
	s->rate = choose_rate(w, s, time, snr, &sample);
	s->samples = sample;
	int most = sample ? 1 : w->c.frames;
	int64_t bytes = 0;
	s->count = 0;
	for (uint32_t k = l->sent; k != l->tail && k - l->sent < (uint32_t)w->c.frames && s->count < most; k++) {
		struct link_packet *p = packet_at(l, k);
		if (p->done)
			continue;
		int64_t more = bytes + mpdu_bytes(w, p);
		if (s->count > 0 && (more > w->c.bytes || air_time(w, s->rate, more) > w->c.longest))
			break;
		bytes = more;
		s->picked[s->count++] = k;
	}
	s->air = air_time(w, s->rate, bytes);
}

// conclude takes the outcome of a station's exchange. It returns whether the receiver answers.
static bool conclude(struct wifi *w, struct station *s, int64_t time, double snr, bool collided)
{
	struct link *l = s->link;
	struct rate_state *rate = &s->rates[s->rate];
	double per_byte = 8 / w->c.rate[s->rate].bits * w->c.symbol;
	int64_t end = time + s->air;
	double at = (double)(time + w->c.preamble);
	bool any = false, dropped = false;
	for (int i = 0; i < s->count; i++) {
		struct link_packet *p = packet_at(l, s->picked[i]);
		int64_t bytes = mpdu_bytes(w, p);
		at += per_byte * (double)bytes;
		if (p->tries == 0)
			histogram_add(&l->stats.wait, time - p->arrival);
		else
			s->stats.retried++;
		p->tries++;
		s->stats.frames++;
		s->stats.sent += (uint64_t)bytes;
		bool fails = collided;
		if (!fails) {
			double errors = error_rate(w, snr, s->rate, bytes);
			if (in_burst(w, (int64_t)at))
				errors = 1 - (1 - errors) * (1 - w->c.burst_loss);
			fails = random_unit(&w->random) < errors;
		}
		rate->tried++;
		if (!fails) {
			rate->succeeded++;
			p->done = any = true;
			s->stats.delivered += p->length;
		} else if (p->tries >= w->c.attempts) {
			p->done = p->lost = dropped = true;
			s->stats.dropped++;
		}
	}
	while (l->sent != l->tail && packet_at(l, l->sent)->done)
		link_leave(l, end);
	s->stats.exchanges++;
	s->stats.air += (uint64_t)s->air;
	if (collided)
		s->stats.collisions++;
	if (any || dropped) {
		s->window = w->c.cw_min;
		s->failures = 0;
	} else {
		s->window = 2 * s->window + 1 < w->c.cw_max ? 2 * s->window + 1 : w->c.cw_max;
		s->failures += !s->samples;
	}
	draw_backoff(w, s);
	s->wants = time;
	return any;
}

// exchange lets the stations send whose backoff ends at time.
static void exchange(struct wifi *w, int64_t time)
{
	struct station *sending[WIFI_STATIONS];
	int count = 0;
	int64_t passed = (time - w->idle_from - w->c.aifs) / w->c.slot, air = 0;
	for (int i = 0; i < w->count; i++) {
		struct station *s = w->stations[i];
		if (queued(s) > 0 && access_at(w, s) == time)
			sending[count++] = s;
		else
			s->backoff = s->backoff > passed ? s->backoff - passed : 0;
	}
	double snr[WIFI_STATIONS];
	for (int i = 0; i < count; i++) {
		snr[i] = fade(w, sending[i], time);
		compose(w, sending[i], time, snr[i]);
		if (sending[i]->air > air)
			air = sending[i]->air;
	}
	bool answered = false;
	for (int i = 0; i < count; i++)
		answered |= conclude(w, sending[i], time, snr[i], count > 1);
	// Without an answer, all wait for as long as an acknowledgment would take (EIFS).
	int64_t answer = answered && sending[0]->count > 1 ? w->c.block_ack : w->c.ack;
	w->idle_from = time + air + w->c.sifs + answer;
	for (int i = 0; i < count; i++) {
		struct station *s = sending[i];
		if (!s->loads)
			continue;
		s->link->head = s->link->sent; // the load has no receiver
		if (s->load == 0)
			s->next = time;
	}
}

static void start(struct wifi *w, int64_t time)
{
	w->idle_from = w->burst_until = time;
	w->burst = true; // which ends now
	for (int i = 0; i < w->count; i++)
		if (w->stations[i]->loads)
			w->stations[i]->next = time;
}

void wifi_run(struct wifi *w, int64_t until)
{
	if (w->running || until <= w->now)
		return;
	if (w->now == INT64_MIN)
		start(w, until);
	w->running = true;
	for (;;) {
		int64_t access = LINK_NEVER, load = LINK_NEVER;
		struct station *loader = NULL;
		for (int i = 0; i < w->count; i++) {
			struct station *s = w->stations[i];
			if (queued(s) > 0) {
				int64_t at = access_at(w, s);
				if (at < access)
					access = at;
			}
			if (s->next < load) {
				load = s->next;
				loader = s;
			}
		}
		int64_t at = load < access ? load : access;
		if (at > until)
			break;
		if (at > w->now)
			w->now = at;
		if (load <= access)
			generate(w, loader);
		else
			exchange(w, access);
	}
	w->now = until;
	w->running = false;
}

int64_t wifi_next(const struct wifi *w)
{
	int64_t next = LINK_NEVER;
	bool waiting = false;
	for (int i = 0; i < w->count; i++) {
		const struct station *s = w->stations[i];
		if (queued(s) == 0)
			continue;
		int64_t at = access_at(w, s);
		if (at < next)
			next = at;
		waiting |= !s->loads;
	}
	return waiting ? next : LINK_NEVER;
}
