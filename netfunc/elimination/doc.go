// Package elimination finds the paths that duplication can do without. It implements Algorithm 1 of Qian
// et al., "Enabling eBPF-based packet duplication for robust volumetric video streaming", section III.C.
// Its input is the arrivals of replicas, its output decisions. It has no clock and no goroutines; the
// caller passes the time of any monotonic clock, such as the kernel's, which stamps the arrivals.
//
// # The algorithm as printed
//
// Packet n is settled once its replicas have arrived. T_i(n) is the arrival on path i, and T_min(n) the
// earliest of them. Path i earns R_i(n) = 1 if T_i(n) − T_min(n) < α. N_i is the sum of R_i over the last
// W packets. Once n > W, a path with N_i = 0 is removed from P. A path with N_i = W suffices alone: it is
// returned and the algorithm stops. It also stops when one path is left (section III.A, step 6).
//
// [Printed] configures exactly that, with W = 100 packets and α = 5 ms.
//
// # Cases the paper leaves open
//
//   - Lost replicas. A replica earns nothing after T_min(n) + α, so a packet is settled at the latest
//     after [Config].Timeout, in the order of first arrivals. Packets are remembered for
//     [Config].Memory, so that a late replica does not count as the first one of another packet.
//     Replicas still missing then count as lost.
//   - Bounded memory. At most [Config].Capacity packets are remembered; further ones, possibly hostile,
//     evict the oldest, which is counted. The hash of the keys is seeded.
//   - Path changes with packets in flight: see [Flow.SetPaths]. Replicas on removed paths do not count.
//   - Restarts. If the first replica arrived before the start, a later one looks like the first.
//     Packets within [Config].Guard therefore do not count.
//   - Silence. After [Config].Silence without arrivals the windows restart, since their content no
//     longer describes the network.
//   - Latent errors. Duplication hides that a path loses replicas. As in IEEE Std 802.1CB-2017 section
//     7.4.4, arrivals are compared with the expected number; see [Stats].Latent.
//
// # Window length
//
// Both rules need all W packets to agree, so W determines how much of the network's behaviour they
// cover. At 7500 packets/s (NFOV), 100 packets pass in 13 ms. If packets' delays vary independently, that
// is 100 observations. If delays persist for 50 to 200 ms, as with background traffic, it is a single
// one: a good path that is momentarily slower by α is immediately removed, and a path that is momentarily
// fastest is immediately returned.
//
// [Config].Span therefore adapts W to the rate: the window covers a time, and at least W packets. The
// two rules need different times because their mistakes differ in cost. Before removing a path, the
// window must outlast a bad spell of a path worth keeping, but each further second costs the bytes of
// useless paths. Stopping gives up all protection, so CompleteSpan must be long enough to observe
// failures of the remaining path. By then waiting costs little, since the useless paths are gone.
//
// The first rule also stops the algorithm when it goes from two paths to one, which is as serious as
// stopping by the second rule. That step therefore requires [Config].LastSpan. For example, a path whose
// delay varies between 20 and 70 ms, next to a steady one of 30 ms, occasionally earns nothing for 2 s,
// and losses on the steady path then stall frames. Until LastSpan has passed, the best of the useless
// paths stays. After a mistake, the trigger starts a new generation. If that happens within
// [Config].Regret of a stop, CompleteSpan replaces LastSpan the next time.
//
// In such long windows N_i is rarely exactly 0 or W. If the best path loses one packet in 2000, as in
// Table I, the second best is rewarded for it. [Config].Slack is the tolerated fraction. A window of 100
// packets resolves 1 %.
//
// Table I, simulated with 7500 packets/s of 1300 bytes (TestTable1). Duplication starts over all paths;
// the background traffic ends 40 s later.
//
//	              delay drawn per packet             delay persists for 50–200 ms
//	[Printed]     keeps 1+2; 3 and 4 are removed     one path is returned within 50 ms,
//	              after 44 ms, 5 after 63 ms; stops  2 in nine of ten runs, else 1
//	              47 ms after the traffic ends
//	[Default]     keeps 1+2; 3, 4 and 5 are removed  the same, in 300 of 300 runs
//	              after 2.3 s; stops 4.0 s after
//	              the traffic ends
//
// The paper keeps paths 1 and 2. Without LastSpan, they were kept in 130 of 150 runs with Span = 2 s and
// in 295 of 300 runs with 2.5 s; otherwise only path 2 was left.
package elimination
