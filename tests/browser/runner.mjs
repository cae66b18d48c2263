// What the browser suites share: `test()`, a line for each test, the counts in the last line.
import { readdirSync, readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const CLOCK_TICKS = 100; // a second, in /proc

/** Fails a test. `message`: a text, or an object to be shown. */
export function assert(condition, message) {
  if (!condition) throw new Error(typeof message === 'string' ? message : JSON.stringify(message));
}

/** The result of a call to the harness, which answers with `ok` or `error`. */
export function unwrap({ ok, error }) {
  if (error) throw new Error(`${error.class} (${error.code}): ${error.message}`);
  return ok;
}

/** This process and its descendants: parent and processor time by pid. Linux only. */
function descendants() {
  const processes = new Map();
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
        .replace(/^.*\) /s, '')
        .split(' ');
      const [parent, user, system, childUser, childSystem] = [1, 11, 12, 13, 14].map((i) => Number(fields[i]));
      processes.set(Number(pid), { parent, ticks: user + system + childUser + childSystem });
    } catch {
      // it has ended meanwhile
    }
  }
  const ours = (pid) => pid === process.pid || (processes.has(pid) && ours(processes.get(pid).parent));
  return [...processes].filter(([pid]) => ours(pid));
}

/** Processor seconds of this process' descendants: what a test costs, whatever else the machine does. */
function processorSeconds() {
  return descendants().reduce((sum, [, { ticks }]) => sum + ticks, 0) / CLOCK_TICKS;
}

/** The process of a Chromium's GPU; undefined while there is none. `page`: one of the driver's. */
export async function gpuProcess(page) {
  const session = await page.context().browser().newBrowserCDPSession();
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  await session.detach();
  return processInfo.find(({ type }) => type === 'GPU')?.id;
}

/** What Chromium calls the processes of pages and of the GPU. */
export const PAGES = /--type=(renderer|gpu-process)/;

/**
 * Bytes of memory that the browsers started by this process have for themselves: not what is mapped from files. `which`: of
 * the processes whose command line it matches.
 */
export function browserBytes(which = /^/) {
  let kilobytes = 0;
  for (const [pid] of descendants()) {
    if (pid === process.pid) continue;
    try {
      if (!which.test(readFileSync(`/proc/${pid}/cmdline`, 'latin1'))) continue;
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      for (const [, size] of status.matchAll(/^(?:RssAnon|RssShmem):\s+(\d+) kB$/gm)) kilobytes += Number(size);
    } catch {
      // it has ended meanwhile
    }
  }
  return kilobytes * 1024;
}

/**
 * Runs the tests that `--only REGEX` names, each for at most `seconds`. What pages print goes to `log`; a test that fails
 * shows the last lines of it.
 */
export class Runner {
  counts = { passed: 0, failed: 0 };
  #only = new RegExp(parseArgs({ options: { only: { type: 'string', default: '' } } }).values.only);
  #lines = [];
  #seconds;

  constructor({ seconds }) {
    this.#seconds = seconds;
  }

  log = (line) => this.#lines.push(line);

  /** Whether a test of this name is wanted: what several tests share need not be made for none. */
  wants = (name) => this.#only.test(name);

  /** `body` may return a note for the line. Resolves to whether it passed. */
  test = async (name, body) => {
    if (!this.wants(name)) return false;
    this.#lines = [];
    const [began, spent] = [performance.now(), processorSeconds()];
    const cost = () => {
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      return `${seconds} s, ${(processorSeconds() - spent).toFixed(1)} s of processors`;
    };
    let timer;
    const tooLong = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`not done after ${this.#seconds} s`)), this.#seconds * 1000);
    });
    try {
      const note = await Promise.race([body(), tooLong]);
      this.counts.passed++;
      console.log(`ok      ${name} (${cost()})${note ? `: ${note}` : ''}`);
      return true;
    } catch (error) {
      this.fail(`${name} (${cost()})`, error.message);
      for (const line of this.#lines.slice(-10)) console.log(`        [page] ${line}`);
      return false;
    } finally {
      clearTimeout(timer);
    }
  };

  /** Counts a failure outside of tests. */
  fail(name, message) {
    this.counts.failed++;
    console.log(`FAILED  ${name}: ${message}`);
  }

  /** Prints the counts and ends the process. */
  end() {
    console.log(JSON.stringify(this.counts));
    process.exit(this.counts.failed ? 1 : 0);
  }
}
