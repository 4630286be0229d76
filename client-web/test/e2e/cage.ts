/** A browser that gets as much of the processor as a test says: cgroups, version 1 or 2. Needs root. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";

const V1 = "/sys/fs/cgroup/cpu";
const V2 = "/sys/fs/cgroup";
const PERIOD = 100_000; // µs, as containers have it

/** A control group, empty at first. */
class Group {
  readonly #v2 = !existsSync(join(V1, "cpu.cfs_quota_us"));
  readonly dir: string;

  constructor(name: string, parent?: Group) {
    this.dir = join(parent?.dir ?? (this.#v2 ? V2 : V1), name);
    if (this.#v2 && !readFileSync(join(V2, "cgroup.controllers"), "utf8").includes("cpu")) throw new Error("this kernel has no cpu controller");
    if (this.#v2) writeFileSync(join(V2, "cgroup.subtree_control"), "+cpu");
    mkdirSync(this.dir);
    // What else the machine does counts little: the limit is to decide, and a group weighs no more than one thread.
    if (this.#v2) writeFileSync(join(this.dir, "cpu.weight"), "10000");
    else writeFileSync(join(this.dir, "cpu.shares"), "100000");
  }

  /** cores: how many the group may use together. */
  limit(cores: number): void {
    const quota = cores === Infinity ? undefined : Math.max(1000, Math.round(cores * PERIOD));
    if (this.#v2) {
      writeFileSync(join(this.dir, "cpu.max"), `${quota ?? "max"} ${PERIOD}`);
    } else {
      writeFileSync(join(this.dir, "cpu.cfs_period_us"), `${PERIOD}`);
      writeFileSync(join(this.dir, "cpu.cfs_quota_us"), `${quota ?? -1}`);
    }
  }

  get procs(): string {
    return join(this.dir, "cgroup.procs");
  }

  get pids(): number[] {
    return readFileSync(this.procs, "utf8").split("\n").filter(Boolean).map(Number);
  }

  /** Takes one thread; only in version 1. */
  addThread(tid: number): void {
    writeFileSync(join(this.dir, "tasks"), `${tid}`);
  }

  close(): void {
    rmdirSync(this.dir);
  }
}

/** A thread's name and the time that it has run, s. */
interface Thread {
  readonly pid: number;
  readonly tid: number;
  readonly name: string;
  readonly ran: number;
}

/** A stage of the viewer that can be short of time on its own. */
export type Stage = "network worker" | "decode workers" | "page" | "GPU process";

export class Cage {
  readonly #group: Group;
  readonly #inner: Group;
  readonly #folder = mkdtempSync(join(tmpdir(), "holocast-cage-"));
  /** The browser's executable: starts it in the cage. */
  readonly executable = join(this.#folder, "chromium");

  constructor(browser: string) {
    this.#group = new Group(basename(this.#folder));
    this.#inner = new Group(`${basename(this.#folder)}-stage`);
    writeFileSync(this.executable, `#!/bin/sh\necho $$ > ${this.#group.procs}\nexec ${browser} "$@"\n`, { mode: 0o755 });
  }

  static readonly threads = existsSync(join(V1, "tasks"));

  /** How many cores the browser may use together. */
  limit(cores: number): void {
    this.#group.limit(cores);
  }

  /** Limits one stage of the viewer, and no other. */
  limitStage(stage: Stage, cores: number): void {
    for (const t of this.stage(stage)) this.#inner.addThread(t.tid);
    this.#inner.limit(cores);
  }

  /** The threads of a stage. A page starts its network worker before those that decode. */
  stage(stage: Stage): Thread[] {
    const threads = this.threads();
    const workers = threads.filter((t) => t.name.startsWith("DedicatedWorker")).sort((a, b) => a.tid - b.tid);
    switch (stage) {
      case "network worker":
        return workers.slice(0, 1);
      case "decode workers":
        return workers.slice(1);
      case "page":
        return threads.filter((t) => t.pid === t.tid && t.pid === workers[0]?.pid);
      case "GPU process":
        return threads.filter((t) => commandLine(t.pid).includes("--type=gpu-process"));
    }
  }

  threads(): Thread[] {
    return [...this.#group.pids, ...this.#inner.pids].flatMap((pid) => {
      try {
        return readdirSync(`/proc/${pid}/task`).map((tid) => {
          const stat = readFileSync(`/proc/${pid}/task/${tid}/stat`, "utf8");
          const rest = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
          return { pid, tid: Number(tid), name: stat.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")")), ran: (Number(rest[11]) + Number(rest[12])) / 100 };
        });
      } catch {
        return []; // it has ended
      }
    });
  }

  /** Cores that a stage, or the whole browser, uses; over some seconds. */
  async uses(stage: Stage | undefined, seconds: number): Promise<number> {
    const sum = () => (stage ? this.stage(stage) : this.threads()).reduce((n, t) => n + t.ran, 0);
    const before = sum();
    const began = performance.now();
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    return (1000 * (sum() - before)) / (performance.now() - began);
  }

  close(): void {
    this.#inner.close();
    this.#group.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}
