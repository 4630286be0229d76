/** A browser that gets as much of the processor as a test says: cgroups, version 1 or 2. Needs root. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
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

  close(): void {
    rmdirSync(this.dir);
  }
}

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

  /** How many cores the browser may use together. */
  limit(cores: number): void {
    this.#group.limit(cores);
  }

  /** Limits the GPU process, and nothing else. */
  limitGPU(cores: number): void {
    for (const pid of this.#gpu()) writeFileSync(this.#inner.procs, `${pid}`);
    this.#inner.limit(cores);
  }

  #gpu(): number[] {
    return this.#pids().filter((pid) => commandLine(pid).includes("--type=gpu-process"));
  }

  #pids(): number[] {
    return [...this.#group.pids, ...this.#inner.pids];
  }

  /** Cores that the GPU process, or the whole browser, uses; over some seconds. */
  async uses(gpu: boolean, seconds: number): Promise<number> {
    const sum = () => (gpu ? this.#gpu() : this.#pids()).reduce((n, pid) => n + ran(pid), 0);
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

/** The time that a process has run, s; 0 where it has ended. */
function ran(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const rest = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(rest[11]) + Number(rest[12])) / 100;
  } catch {
    return 0;
  }
}
