// CPU seconds and memory of a process tree, and of the machine, from /proc (Linux).
import { readFileSync, readdirSync } from 'node:fs';
import os from 'node:os';

const TICKS_PER_SECOND = 100; // USER_HZ, the unit of /proc on every Linux that browsers run on

function processes() {
  const found = new Map();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      found.set(Number(name), { parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) });
    } catch {
      // it ended meanwhile
    }
  }
  return found;
}

export function children(parent = process.pid) {
  return [...processes()].filter(([, entry]) => entry.parent === parent).map(([pid]) => pid);
}

/** User and system time of the whole machine since boot, in seconds. */
function machineSeconds() {
  const [, user, nice, system, , , irq, softirq] = readFileSync('/proc/stat', 'utf8').split('\n')[0].split(/\s+/);
  return [user, nice, system, irq, softirq].reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_PER_SECOND;
}

/** Watches processes and all that descend from them. */
export class ProcessTree {
  #roots;
  #ticks = new Map(); // what a process had used when it was last seen, so that nothing is lost when it ends

  constructor(roots) {
    this.#roots = roots;
  }

  /** {tree, machine}: CPU seconds so far. */
  cpuSeconds() {
    const all = processes();
    const members = new Set(this.#roots);
    for (let grew = true; grew;) {
      grew = false;
      for (const [pid, { parent }] of all) {
        if (members.has(parent) && !members.has(pid)) grew = Boolean(members.add(pid));
      }
    }
    for (const pid of members) if (all.has(pid)) this.#ticks.set(pid, all.get(pid).ticks);
    const ticks = [...this.#ticks.values()].reduce((a, b) => a + b, 0);
    return { tree: ticks / TICKS_PER_SECOND, machine: machineSeconds() };
  }

  /** Largest resident memory that any of the renderers has had, in bytes. */
  rendererPeak() {
    let peak = 0;
    for (const pid of this.#ticks.keys()) {
      try {
        if (!readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('--type=renderer')) continue;
        const status = readFileSync(`/proc/${pid}/status`, 'utf8');
        peak = Math.max(peak, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024);
      } catch {
        // it ended meanwhile
      }
    }
    return peak;
  }
}

export function machineDescription() {
  const cpus = os.cpus();
  return {
    cpu: cpus[0]?.model.trim() ?? 'unknown',
    cores: cpus.length,
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    kernel: `${os.type()} ${os.release()} ${os.arch()}`,
  };
}
