/** Measures the CPU time of processes from Linux's /proc. */
import { existsSync, readdirSync, readFileSync } from "node:fs";

/** Duration of a clock tick in /proc, ms. */
const TICK = 10;

/** Uses of the CPU. */
export const uses = {
  drawing: "Chromium's GPU process, which renders in software here",
  page: "the page's main thread, the compositor and the browser process",
  workers: "the viewer's network and decode workers",
  network: "Chromium's network service, and the thread that receives its data",
  relay: "the relay",
  others: "publishers, and the second subscriber",
} as const;

export type Use = keyof typeof uses;
/** CPU time, ms. */
export type CpuTime = Readonly<Record<Use, number>> & {
  /** The whole machine, including other programs. */
  readonly machine: number;
};

interface Stat {
  readonly name: string;
  readonly parent: number;
  readonly time: number;
}

function stat(path: string): Stat {
  const text = readFileSync(path, "utf8");
  const end = text.lastIndexOf(")");
  const fields = text.slice(end + 2).split(" ");
  return {
    name: text.slice(text.indexOf("(") + 1, end),
    parent: Number(fields[1]),
    time: (Number(fields[11]) + Number(fields[12])) * TICK,
  };
}

function processes(): Map<number, Stat> {
  const found = new Map<number, Stat>();
  for (const d of readdirSync("/proc")) {
    if (!/^\d+$/.test(d)) continue;
    try {
      found.set(Number(d), stat(`/proc/${d}/stat`));
    } catch {
      // The process has exited.
    }
  }
  return found;
}

/** Divides the CPU time of a Chromium process by use. */
function chromium(pid: number, line: string, total: number): Partial<Record<Use, number>> {
  if (line.includes("--type=gpu-process")) return { drawing: total };
  if (line.includes("--utility-sub-type=network")) return { network: total };
  if (!line.includes("--type=renderer")) return { page: total };
  const t = { page: total, workers: 0, network: 0 };
  for (const tid of readdirSync(`/proc/${pid}/task`)) {
    const { name, time } = stat(`/proc/${pid}/task/${tid}/stat`);
    const use = name.startsWith("DedicatedWorker") ? "workers" : name === "Chrome_ChildIOT" ? "network" : undefined;
    if (!use) continue;
    t[use] += time;
    t.page -= time;
  }
  return t;
}

/** CPU time so far of the programs started by this process; undefined without /proc. */
export function cpuTime(): CpuTime | undefined {
  if (!existsSync("/proc/stat")) return undefined;
  const total: Record<Use, number> = { drawing: 0, page: 0, workers: 0, network: 0, relay: 0, others: 0 };
  const all = processes();
  const ours = (pid: number): boolean => pid === process.pid || (pid > 1 && ours(all.get(pid)?.parent ?? 0));
  for (const [pid, { name, time }] of all) {
    if (pid === process.pid || !ours(pid)) continue;
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      const parts = /chrom/.test(line.split("\0")[0]!)
        ? chromium(pid, line, time)
        : { [name === "relay" ? "relay" : "others"]: time };
      for (const [use, t] of Object.entries(parts)) total[use as Use] += t;
    } catch {
      // The process has exited.
    }
  }
  // user, nice, system, idle, iowait, irq, softirq, steal
  const [user, nice, system, , , irq, softirq, steal] = readFileSync("/proc/stat", "utf8")
    .split("\n")[0]!
    .trim()
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return { ...total, machine: (user! + nice! + system! + irq! + softirq! + steal!) * TICK };
}

/** CPU time between two readings, ms per second. */
export function used(before: CpuTime | undefined, after: CpuTime | undefined, seconds: number): CpuTime | undefined {
  if (!before || !after) return undefined;
  return Object.fromEntries(
    Object.entries(after).map(([use, t]) => [use, (t - before[use as Use]) / seconds]),
  ) as unknown as CpuTime;
}

/** CPU time of other programs, ms per second. */
export function elsewhere(c: CpuTime): number {
  return c.machine - (Object.keys(uses) as Use[]).reduce((n, use) => n + c[use], 0);
}
