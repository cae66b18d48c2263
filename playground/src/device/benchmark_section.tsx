import { signal } from '@preact/signals';
import { refreshKept } from '../model/cache.js';
import { models } from '../model/catalog.js';
import { device } from '../model/engine.js';
import { bytes, milliseconds, plural } from '../model/format.js';
import { DeviceChoiceField, ProblemView } from '../model/panel.js';
import { explain, type Problem } from '../model/problem.js';
import { CopyButton, saveFile } from '../shell/controls.js';
import { Icon } from '../shell/icons.js';
import { benchmark, type Report } from './benchmark.js';

const chosen = signal('');
const running = signal(false);
const report = signal<Report | undefined>(undefined);
const problem = signal<Problem | undefined>(undefined);

const model = () => models.value.find(({ name }) => name === chosen.value) ?? models.value[0];

async function run(): Promise<void> {
  const entry = model();
  if (!entry) return;
  running.value = true;
  report.value = problem.value = undefined;
  try {
    report.value = await benchmark(entry, { device: device.value });
  } catch (error) {
    problem.value = explain(error, true);
  }
  running.value = false;
  void refreshKept();
}

function numbers({ loadMs, prompt, answer, picture, memoryBytes }: Report): [words: string, value: string][] {
  return [
    ['Loading', milliseconds(loadMs)],
    ...(prompt ? [['Reading a question', `${prompt.tokensPerSecond} tokens/s`] as [string, string]] : []),
    ...(answer ? [['Writing an answer', `${answer.tokensPerSecond} tokens/s`] as [string, string]] : []),
    ...(picture ? [['A picture', milliseconds(picture.ms)] as [string, string]] : []),
    ['Memory', bytes(memoryBytes)],
  ];
}

function ReportView({ found }: { found: Report }) {
  const json = JSON.stringify(found, null, 2);
  const share =
    'share' in navigator ? () => void navigator.share({ title: 'Benchmark', text: json }).catch(() => {}) : undefined;
  return (
    <div class="report">
      <dl class="numbers">
        {numbers(found).map(([words, value]) => (
          <div key={words}>
            <dt>{words}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <p class="soft">
        On the {found.device === 'webgpu' ? 'GPU' : `CPU, ${plural(found.threads, 'thread')}`}. The file below has these
        numbers, the browser’s and the chip’s names, and nothing else.
      </p>
      <details>
        <summary>The file</summary>
        <pre class="json" tabIndex={0} aria-label="The benchmark as JSON">
          {json}
        </pre>
      </details>
      <div class="buttons">
        <button
          type="button"
          class="small"
          onClick={() => saveFile(`benchmark-${found.model}.json`, 'application/json', json)}
        >
          <Icon name="download" />
          Save
        </button>
        {share && (
          <button type="button" class="small" onClick={share}>
            <Icon name="share" />
            Share
          </button>
        )}
        <CopyButton label="Copy the file’s text" text={() => json} />
      </div>
    </div>
  );
}

export function BenchmarkSection() {
  return (
    <section class="card" aria-label="Benchmark">
      <h2>How fast is it?</h2>
      <p class="soft">Measures one model on this device. Other tabs and a hot or unplugged computer slow it down.</p>
      <div class="benchmark-fields">
        <label class="field-line">
          Model
          <select
            value={model()?.name}
            disabled={running.value}
            onChange={(e) => (chosen.value = e.currentTarget.value)}
          >
            {models.value.map(({ name, title }) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <DeviceChoiceField />
      </div>
      <button type="button" disabled={running.value} onClick={() => void run()}>
        {running.value ? 'Measuring…' : 'Measure'}
      </button>
      {problem.value && <ProblemView problem={problem.value} />}
      {report.value && <ReportView found={report.value} />}
      <p class="visually-hidden" role="status">
        {running.value ? 'Measuring.' : report.value ? 'The measurement is done.' : ''}
      </p>
    </section>
  );
}
