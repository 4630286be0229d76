// Package elimination finds the paths that duplication can do without: Algorithm 1 of
// Qian et al., "Enabling eBPF-based packet duplication for robust volumetric video
// streaming", section III.C. Arrivals of replicas go in, decisions come out. There are no
// clocks and no goroutines inside: time is what the caller says, on any clock that does
// not go back, such as the kernel's monotonic one that stamps the arrivals.
//
// # The algorithm as printed
//
// Packet n is settled once its replicas have come. T_i(n) is when the one on path i came
// and T_min(n) the earliest of them. Path i earns R_i(n) = 1 if T_i(n) − T_min(n) < α, and
// N_i is the sum of its R_i over the last W packets. Once n > W, a path with N_i = 0 is
// removed from P, and a path with N_i = W suffices alone: it is returned and the algorithm
// stops. It also stops when removals have left one path (section III.A, step 6).
//
// [Printed] configures just that, W = 100 packets and α = 5 ms.
//
// # What the paper leaves open
//
//   - A replica that never comes. It can earn nothing from T_min(n) + α on, so a packet is
//     settled then at the latest ([Config].Timeout). Packets are settled in the order of
//     their first arrivals. They are remembered for [Config].Memory, so that a replica that
//     is merely late is not taken for the first one of another packet, and what has not come
//     by then is counted as lost.
//   - Bounded memory: at most [Config].Capacity packets are remembered. More of them, be they
//     hostile, push out the oldest, which is counted. The hash of the keys is seeded.
//   - The path set changes with packets in flight: see [Flow.SetPaths]. Replicas on removed
//     paths do not count.
//   - Restarts: replicas of packets whose first one came before the algorithm was listening
//     look like first ones; packets of the first [Config].Guard are therefore not counted.
//   - Silence: after [Config].Silence without arrivals the windows start over; what
//     they held says nothing of the network now.
//   - Latent errors: duplication hides that a path loses its replicas. As in IEEE Std
//     802.1CB-2017 section 7.4.4, what came is compared with what should have come;
//     see [Stats].Latent.
//
// # How long a window must be
//
// The two rules ask for what happened to all of W packets, so W decides how much of the
// network's behaviour they see. 100 packets of a stream of 7500 packets/s (NFOV) pass in
// 13 ms. Where each packet's delay varies on its own, that is 100 observations. Where
// delays hold for 50 to 200 ms, as with background traffic, it is one: a good path that is
// slower than another by α right now is removed at once, and a path that is the better one
// right now is returned at once.
//
// [Config].Span therefore lets W follow the observed rate: the window is what passed in a
// time, and where that is less than W packets, the last W. The two rules need different times, because
// they err differently. Removing must outlast a bad spell of a path worth keeping, but every
// further second costs the bytes of paths that are worth nothing. Stopping gives up all
// protection: CompleteSpan must be long enough to see the path fail that is to be relied on,
// and waiting costs little, since useless paths are gone by then.
//
// The first rule stops the algorithm too, where it removes the last path but one. That is as
// grave as the second rule, so it asks for [Config].LastSpan: a path that varies between 20 and
// 70 ms beside a steady one of 30 ms has earned nothing for 2 s now and then, and what the steady
// one loses then holds up frames. Until LastSpan has passed the best of the useless paths stays.
// A mistake is noticed by the trigger, which brings a new generation: where that comes within
// [Config].Regret of a stop, CompleteSpan stands in for LastSpan the next time.
//
// In so long a window N_i is hardly ever 0 or W: one packet lost in 2000 on the best path, as
// in Table I, is a reward for the second best. [Config].Slack is the part of the window by
// which N_i may miss either. 1 % is what a window of 100 packets can resolve.
//
// Table I was simulated with 7500 packets/s of 1300 bytes (TestTable1). Duplication
// begins over all paths; 40 s later the background traffic ends.
//
//	              delays drawn per packet            delays held for 50–200 ms
//	[Printed]     keeps 1+2; 3 and 4 are removed     one path is returned within 50 ms,
//	              after 44 ms, 5 after 63 ms; stops  2 in nine of ten runs, else 1
//	              47 ms after the traffic ends
//	[Default]     keeps 1+2; 3, 4 and 5 are removed  the same, in 300 of 300 runs
//	              after 2.3 s; stops 4.0 s after
//	              the traffic ends
//
// The paper keeps paths 1 and 2. Without LastSpan, Span = 2 s kept them in 130 of 150 runs and
// 2.5 s in 295 of 300; in the others 2 was left alone.
package elimination
