//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* The members in use of the kernel's structs; offsets are resolved when the programs load. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock;

struct inet_connection_sock {
	__u64 icsk_ca_priv[13];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_nxt;
	__u32 snd_cwnd; /* packets */
	__u32 snd_cwnd_cnt;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 prior_cwnd;
	__u32 max_packets_out;
	__u8 is_cwnd_limited : 1;
};

struct ack_sample {
	__s32 rtt_us;
};

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	void (*init)(struct sock *sk);
	char name[16];
};

#pragma clang attribute pop

#define MIN_WINDOW 2
#define MIN_SAMPLES 3 /* RTTs of a round; delayed ACKs distort fewer */

/* State of one connection, in tcp_sock. A round is the time until the data sent at its start is acknowledged. */
struct state {
	__u32 end; /* sequence number */
	__u32 base_rtt; /* least RTT of the connection, µs */
	__u32 min_rtt; /* of the round */
	__u32 samples;
	/* YeAH */
	__u32 reno_window; /* of an equivalent Reno flow */
	__u32 queued; /* estimated queue of the latest round, packets */
	__u32 slow_rounds; /* consecutive rounds in Slow mode */
	__u32 fast_rounds;
	__u32 slow;
};

static __always_inline struct tcp_sock *tcp(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct state *state(struct sock *sk)
{
	return (struct state *)tcp(sk)->inet_conn.icsk_ca_priv;
}

static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* Reports whether the window limits the sender, as windows grow only then. */
static __always_inline bool limited(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) ||
	       (in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out);
}

static __always_inline void set_window(struct tcp_sock *tp, __u32 window)
{
	if (window < MIN_WINDOW)
		window = MIN_WINDOW;
	if (window > tp->snd_cwnd_clamp)
		window = tp->snd_cwnd_clamp;
	tp->snd_cwnd = window;
}

/* Grows the window by one packet for each `every` acknowledged packets. */
static __always_inline void grow(struct tcp_sock *tp, __u32 every, __u32 acked)
{
	__u32 count = tp->snd_cwnd_cnt + acked;

	if (!every)
		every = 1;
	tp->snd_cwnd_cnt = count % every;
	set_window(tp, tp->snd_cwnd + count / every);
}

static __always_inline void begin(struct sock *sk)
{
	struct state *s = state(sk);

	*s = (struct state){};
	s->end = tcp(sk)->snd_nxt;
	s->reno_window = MIN_WINDOW;
}

static __always_inline void sample(struct sock *sk, const struct ack_sample *a)
{
	struct state *s = state(sk);
	__s32 rtt = a->rtt_us;

	if (rtt <= 0)
		return;
	if (!s->base_rtt || (__u32)rtt < s->base_rtt)
		s->base_rtt = rtt;
	if (!s->samples || (__u32)rtt < s->min_rtt)
		s->min_rtt = rtt;
	s->samples++;
}

/* The result of an ACK for the round. */
enum round {
	CONTINUES,
	UNKNOWN, /* ended, with too few samples */
	MEASURED,
};

/* Estimates the flow's queue in the path at the end of a round: the window beyond base_rtt's. */
static __always_inline enum round advance(struct sock *sk, __u32 ack, __u32 *queued)
{
	struct tcp_sock *tp = tcp(sk);
	struct state *s = state(sk);
	__u32 samples = s->samples, rtt = s->min_rtt;

	if ((__s32)(ack - s->end) <= 0)
		return CONTINUES;
	s->end = tp->snd_nxt;
	s->samples = 0;
	if (samples < MIN_SAMPLES || !rtt)
		return UNKNOWN;
	*queued = (__u64)tp->snd_cwnd * (rtt - s->base_rtt) / rtt;
	return MEASURED;
}

/*
 * TCP Vegas: L. S. Brakmo and L. L. Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global
 * Internet", IEEE JSAC 13(8), 1995, sections III-C and III-D.
 */
#define VEGAS_ALPHA 2 /* least number of packets queued in the path */
#define VEGAS_BETA 4 /* and most */
#define VEGAS_GAMMA 1 /* in slow start */

SEC("struct_ops/vegas_init")
void BPF_PROG(vegas_init, struct sock *sk)
{
	begin(sk);
}

SEC("struct_ops/vegas_pkts_acked")
void BPF_PROG(vegas_pkts_acked, struct sock *sk, const struct ack_sample *a)
{
	sample(sk, a);
}

SEC("struct_ops/vegas_cong_avoid")
void BPF_PROG(vegas_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp(sk);
	__u32 queued = 0, window;
	enum round round = advance(sk, ack, &queued);

	if (in_slow_start(tp)) {
		if (round == MEASURED && queued > VEGAS_GAMMA) {
			window = tp->snd_cwnd - queued + 1;
			set_window(tp, window);
			tp->snd_ssthresh = tp->snd_cwnd;
		} else if (limited(tp)) {
			grow(tp, 2, acked); /* half as fast as Reno, so that the RTT can react */
		}
		return;
	}
	if (round == MEASURED && queued > VEGAS_BETA) {
		set_window(tp, tp->snd_cwnd - 1);
		if (tp->snd_ssthresh > tp->snd_cwnd)
			tp->snd_ssthresh = tp->snd_cwnd;
	} else if (limited(tp) && (round == UNKNOWN || (round == MEASURED && queued < VEGAS_ALPHA))) {
		set_window(tp, tp->snd_cwnd + 1);
	}
}

SEC("struct_ops/vegas_ssthresh")
__u32 BPF_PROG(vegas_ssthresh, struct sock *sk)
{
	__u32 half = tcp(sk)->snd_cwnd / 2;

	return half < MIN_WINDOW ? MIN_WINDOW : half;
}

SEC("struct_ops/vegas_undo_cwnd")
__u32 BPF_PROG(vegas_undo_cwnd, struct sock *sk)
{
	const struct tcp_sock *tp = tcp(sk);

	return tp->snd_cwnd > tp->prior_cwnd ? tp->snd_cwnd : tp->prior_cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops vegas = {
	.init = (void *)vegas_init,
	.pkts_acked = (void *)vegas_pkts_acked,
	.cong_avoid = (void *)vegas_cong_avoid,
	.ssthresh = (void *)vegas_ssthresh,
	.undo_cwnd = (void *)vegas_undo_cwnd,
	.name = "vegas_bpf",
};

/*
 * YeAH-TCP: A. Baiocchi, A. P. Castellani and F. Vacirca, "YeAH-TCP: Yet Another Highspeed TCP", PFLDnet 2007,
 * section III. While its queue is short it grows like Scalable TCP (Fast mode), otherwise like Reno (Slow mode), and
 * then it also drains its queue.
 */
#define YEAH_MAX_QUEUE 80 /* packets */
#define YEAH_PHI 8 /* the round's queueing delay is at most base_rtt / YEAH_PHI */
#define YEAH_EPSILON 2 /* at most the window / YEAH_EPSILON is drained */
#define YEAH_DELTA 8 /* a loss reduces the window by at least the window / YEAH_DELTA */
#define YEAH_RHO 16 /* rounds in Slow mode after which competing flows count as greedy */
#define YEAH_ZETA 50 /* rounds in Fast mode after which competing flows are forgotten */
#define YEAH_FAST 100 /* packets acknowledged per packet of growth in Fast mode */

SEC("struct_ops/yeah_init")
void BPF_PROG(yeah_init, struct sock *sk)
{
	begin(sk);
}

SEC("struct_ops/yeah_pkts_acked")
void BPF_PROG(yeah_pkts_acked, struct sock *sk, const struct ack_sample *a)
{
	sample(sk, a);
}

static __always_inline void end_round(struct sock *sk, __u32 queued, __u32 rtt)
{
	struct tcp_sock *tp = tcp(sk);
	struct state *s = state(sk);
	__u32 drained, window;

	s->queued = queued;
	s->slow = queued > YEAH_MAX_QUEUE || rtt - s->base_rtt > s->base_rtt / YEAH_PHI;
	if (!s->slow) {
		if (++s->fast_rounds > YEAH_ZETA) {
			s->reno_window = MIN_WINDOW;
			s->fast_rounds = 0;
		}
		s->slow_rounds = 0;
		return;
	}
	if (queued > YEAH_MAX_QUEUE && tp->snd_cwnd > s->reno_window) {
		drained = tp->snd_cwnd / YEAH_EPSILON;
		if (drained > queued)
			drained = queued;
		window = tp->snd_cwnd - drained;
		set_window(tp, window < s->reno_window ? s->reno_window : window);
		tp->snd_ssthresh = tp->snd_cwnd;
	}
	if (s->reno_window <= MIN_WINDOW)
		s->reno_window = tp->snd_cwnd / 2 < MIN_WINDOW ? MIN_WINDOW : tp->snd_cwnd / 2;
	else
		s->reno_window++;
	s->slow_rounds++;
	s->fast_rounds = 0;
}

SEC("struct_ops/yeah_cong_avoid")
void BPF_PROG(yeah_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp(sk);
	struct state *s = state(sk);
	__u32 queued = 0, rtt = s->min_rtt;

	if (advance(sk, ack, &queued) == MEASURED)
		end_round(sk, queued, rtt);
	if (!limited(tp))
		return;
	if (in_slow_start(tp))
		set_window(tp, tp->snd_cwnd + acked);
	else
		grow(tp, s->slow ? tp->snd_cwnd : YEAH_FAST, acked);
}

SEC("struct_ops/yeah_ssthresh")
__u32 BPF_PROG(yeah_ssthresh, struct sock *sk)
{
	__u32 window = tcp(sk)->snd_cwnd, reduction = window / 2;
	struct state *s = state(sk);

	if (s->slow_rounds < YEAH_RHO) {
		__u32 held = s->queued > window / YEAH_DELTA ? s->queued : window / YEAH_DELTA;

		if (held < reduction)
			reduction = held;
	}
	s->reno_window = s->reno_window / 2 < MIN_WINDOW ? MIN_WINDOW : s->reno_window / 2;
	s->slow_rounds = 0;
	s->fast_rounds = 0;
	return window - reduction < MIN_WINDOW ? MIN_WINDOW : window - reduction;
}

SEC("struct_ops/yeah_undo_cwnd")
__u32 BPF_PROG(yeah_undo_cwnd, struct sock *sk)
{
	const struct tcp_sock *tp = tcp(sk);

	return tp->snd_cwnd > tp->prior_cwnd ? tp->snd_cwnd : tp->prior_cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops yeah = {
	.init = (void *)yeah_init,
	.pkts_acked = (void *)yeah_pkts_acked,
	.cong_avoid = (void *)yeah_cong_avoid,
	.ssthresh = (void *)yeah_ssthresh,
	.undo_cwnd = (void *)yeah_undo_cwnd,
	.name = "yeah_bpf",
};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
