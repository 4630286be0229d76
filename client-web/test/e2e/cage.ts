/** Limits the CPU time of a browser with cgroups, version 1 or 2. Needs root. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";

const V1 = "/sys/fs/cgroup/cpu";
const V2 = "/sys/fs/cgroup";
const PERIOD = 100_000; // µs, the default of container runtimes

/** A control group. */
class Group {
  readonly #v2 = !existsSync(join(V1, "cpu.cfs_quota_us"));
  readonly dir: string;

  constructor(name: string, parent?: Group) {
    this.dir = join(parent?.dir ?? (this.#v2 ? V2 : V1), name);
    if (this.#v2 && !readFileSync(join(V2, "cgroup.controllers"), "utf8").includes("cpu"))
      throw new Error("cgroup v2: no cpu controller");
    if (this.#v2) writeFileSync(join(V2, "cgroup.subtree_control"), "+cpu");
    mkdirSync(this.dir);
    // The high weight leaves the quota as the only limit, whatever the machine's load.
    if (this.#v2) writeFileSync(join(this.dir, "cpu.weight"), "10000");
    else writeFileSync(join(this.dir, "cpu.shares"), "100000");
  }

  /** `cores` is the total for all processes in the group. */
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
  /** Wrapper script that starts the browser in the control group. */
  readonly executable = join(this.#folder, "chromium");

  constructor(browser: string) {
    this.#group = new Group(basename(this.#folder));
    this.#inner = new Group(`${basename(this.#folder)}-stage`);
    writeFileSync(this.executable, `#!/bin/sh\necho $$ > ${this.#group.procs}\nexec ${browser} "$@"\n`, {
      mode: 0o755,
    });
  }

  /** Limits all processes of the browser, in cores. */
  limit(cores: number): void {
    this.#group.limit(cores);
  }

  /** Limits only the GPU process, in cores. */
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

  /** Measures how many cores the GPU process, or the entire browser, uses. */
  async uses(gpu: boolean, seconds: number): Promise<number> {
    const sum = () => (gpu ? this.#gpu() : this.#pids()).reduce((n, pid) => n + cpuTime(pid), 0);
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

/** CPU time of a process, s; 0 if it has exited. */
function cpuTime(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const rest = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(rest[11]) + Number(rest[12])) / 100;
  } catch {
    return 0;
  }
}
