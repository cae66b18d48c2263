import { signal } from '@preact/signals';
import { onDevice, refreshKept } from '../model/cache.js';
import { modelsFor, TASKS, type ModelEntry, type Task } from '../model/catalog.js';
import { capabilities, type RunOptions } from '../model/engine.js';
import { bytes } from '../model/format.js';
import { explain, type Problem } from '../model/problem.js';
import { ProblemView } from '../model/panel.js';
import { Icon } from '../shell/icons.js';
import { selfTest, type Outcome } from './selftest.js';

type Row =
  { kind: 'waiting' } | { kind: 'running' } | { kind: 'done'; outcome: Outcome } | { kind: 'failed'; problem: Problem };

const rows = signal<ReadonlyMap<string, Row>>(new Map());
const running = signal(false);

/** The first, which is the smallest, of each task. */
function tested(): ModelEntry[] {
  return (Object.keys(TASKS) as Task[])
    .map((task) => modelsFor(task)[0])
    .filter((model) => model !== undefined)
    .sort((a, b) => (a.size ?? 0) - (b.size ?? 0));
}

function set(model: ModelEntry, row: Row): void {
  rows.value = new Map(rows.value).set(model.name, row);
}

async function run(options: RunOptions): Promise<void> {
  running.value = true;
  rows.value = new Map(tested().map((model) => [model.name, { kind: 'waiting' }]));
  for (const model of tested()) {
    set(model, { kind: 'running' });
    try {
      set(model, { kind: 'done', outcome: await selfTest(model, options) });
    } catch (error) {
      set(model, { kind: 'failed', problem: explain(error, true) });
    }
  }
  running.value = false;
  void refreshKept();
}

function RowView({ model }: { model: ModelEntry }) {
  const row = rows.value.get(model.name);
  return (
    <li class="test-row">
      <strong>{model.title}</strong>
      {row === undefined && <span class="soft">not tested yet</span>}
      {row?.kind === 'waiting' && <span class="soft">waits for its turn</span>}
      {row?.kind === 'running' && <span class="soft">computing on both…</span>}
      {row?.kind === 'done' && (
        <span class={row.outcome.passed ? 'good' : 'bad'}>
          <Icon name={row.outcome.passed ? 'check' : 'close'} />
          {row.outcome.text}
          <span class="technical">{row.outcome.detail}</span>
        </span>
      )}
      {row?.kind === 'failed' && <ProblemView problem={row.problem} />}
    </li>
  );
}

export function SelfTestSection() {
  const gpu = capabilities.value?.webgpu.available === true;
  const fetched = tested().filter((model) => !onDevice(model));
  const size = fetched.reduce((sum, model) => sum + (model.size ?? 0), 0);
  return (
    <section class="card" aria-label="Self-test">
      <h2>Does it compute correctly?</h2>
      <p class="soft">
        {gpu
          ? 'Runs the same models on the GPU and, in full precision, on the CPU, and compares what comes out.'
          : 'There is no GPU to test. This runs the same models on the CPU in its fast and in its exact mode, and compares what comes out.'}
        {size > 0 && ` Downloads ${bytes(size)}.`}
      </p>
      <ul class="test-rows">
        {tested().map((model) => (
          <RowView key={model.name} model={model} />
        ))}
      </ul>
      <button type="button" disabled={running.value} onClick={() => void run({ device: gpu ? 'webgpu' : 'wasm' })}>
        {running.value ? 'Testing…' : 'Run the self-test'}
      </button>
      <p class="visually-hidden" role="status">
        {running.value ? 'The self-test is running.' : rows.value.size > 0 ? 'The self-test is done.' : ''}
      </p>
    </section>
  );
}
