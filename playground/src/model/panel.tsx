// Choosing and loading a model: what it is, where it will run and why, the download, what went wrong.
import type { Progress } from 'executorch-webgpu';
import { useId } from 'preact/hooks';
import { ProgressBar } from '../shell/controls.js';
import { onDevice } from './cache.js';
import { catalogProblem, catalogReady, type ModelEntry } from './catalog.js';
import { capabilities, chooseDevice, device, where, type DeviceChoice, type Engine } from './engine.js';
import { bytes, joined, plural, seconds } from './format.js';
import type { Problem } from './problem.js';

const PHASES: Record<Progress['phase'], string> = {
  runtime: 'Starting',
  waiting: 'Another tab is fetching this model',
  download: 'Fetching the model',
  compile: 'Preparing the model',
  ready: 'Ready',
};

/** What is asked of the network even where a model is kept: the runtime's files count as loaded, too. */
const SMALL_FILES = 2e6;

/** "Fetching the model · 43 MB of 99 MB · 6 s left". `size`: of the model, as the button said it. */
function progressText({ phase, loaded, total, cached, secondsLeft }: Progress, size: number | undefined): string {
  const local = phase === 'download' && cached > 0 && cached >= loaded - SMALL_FILES;
  const parts = [local ? 'Reading the model from this device' : PHASES[phase]];
  if (phase === 'download' && total) {
    const all = size !== undefined && Math.abs(total - size) < SMALL_FILES ? size : total;
    parts.push(`${bytes(Math.min(loaded, all))} of ${bytes(all)}`);
  }
  if (secondsLeft !== undefined) parts.push(`${seconds(secondsLeft)} left`);
  return joined(parts);
}

function LoadingView({ engine, progress }: { engine: Engine; progress: Progress }) {
  const { phase, loaded, total } = progress;
  return (
    <div class="loading">
      <ProgressBar
        label="Loading the model"
        value={phase === 'download' && total ? Math.min(1, loaded / total) : undefined}
      />
      <p>{progressText(progress, engine.model.value?.size)}</p>
      <button type="button" class="small" onClick={() => engine.cancel()}>
        Cancel
      </button>
    </div>
  );
}

export function ProblemView({ problem }: { problem: Problem }) {
  return (
    <div class="problem" role="alert">
      <p>
        <strong>{problem.what}</strong> {problem.remedy}
      </p>
      <details>
        <summary>Details</summary>
        <p>{problem.detail}</p>
      </details>
    </div>
  );
}

/** Where a model would run here, and why not on something faster. */
function expectation(): string {
  const found = capabilities.value;
  if (!found) return 'Looking at what this device can do…';
  const { webgpu, wasm } = found;
  if (!wasm.tier) return 'This browser is too old: it has no WebAssembly SIMD.';
  const imitated = webgpu.adapter?.software === true;
  if (webgpu.available && (device.value === 'webgpu' || (device.value === 'auto' && !imitated))) {
    return 'The GPU of this device does the work.';
  }
  const threads = wasm.crossOriginIsolated
    ? plural(wasm.threads, 'thread')
    : 'one thread: this page is not isolated from others, which threads need';
  const reason = imitated ? 'a program imitates the GPU here' : webgpu.reason;
  const why = device.value === 'wasm' ? '' : `, since ${reason}`;
  return `The CPU does the work${why} (${threads}).`;
}

/** `facts`: what one line has room for. */
export function modelFacts(model: ModelEntry): string {
  const size = model.size === undefined ? undefined : bytes(model.size);
  const facts = [size, model.licence, onDevice(model) ? 'on this device' : undefined];
  return joined(facts.filter((fact) => fact !== undefined));
}

/** Keeps the place of one model until it is known which there are. */
const Unknown = () => (
  <div class="choice awaited" aria-hidden="true">
    <input type="radio" disabled />
    <span class="choice-title">…</span>
    <span class="choice-facts">…</span>
  </div>
);

function ModelChoice({ engine, busy }: { engine: Engine; busy: boolean }) {
  const name = useId();
  return (
    <fieldset class="choices" disabled={busy}>
      <legend class="visually-hidden">Model</legend>
      {!catalogReady.value && engine.models.value.length === 0 && <Unknown />}
      {engine.models.value.map((model) => (
        <label key={model.name} class="choice">
          <input
            type="radio"
            name={name}
            checked={model.name === engine.model.value?.name}
            onChange={() => engine.choose(model)}
          />
          <span class="choice-title">{model.title}</span>
          <span class="choice-facts">{modelFacts(model)}</span>
        </label>
      ))}
    </fieldset>
  );
}

export function DeviceChoiceField() {
  return (
    <label class="field-line">
      Runs on
      <select value={device.value} onChange={(e) => chooseDevice(e.currentTarget.value as DeviceChoice)}>
        <option value="auto">GPU if possible</option>
        <option value="webgpu">GPU only</option>
        <option value="wasm">CPU</option>
      </select>
    </label>
  );
}

/** What the button that loads a model says: before a download, its size. */
function loadLabel(engine: Engine): string {
  const model = engine.model.value;
  if (engine.state.value.kind === 'failed') return 'Load again';
  if (!model?.size || onDevice(model)) return 'Load the model';
  return `Download and start · ${bytes(model.size)}`;
}

function LoadButton({ engine }: { engine: Engine }) {
  return (
    <button
      type="button"
      class="primary load-button"
      disabled={!engine.model.value}
      onClick={() => void engine.ready()}
    >
      {loadLabel(engine)}
    </button>
  );
}

/** The card of a page without a conversation or picture yet. Its height doesn't change while the model loads. */
export function ModelCard({ engine }: { engine: Engine }) {
  const state = engine.state.value;
  const busy = state.kind === 'loading';
  // what is below the list of models is shown with it, or would move
  return (
    <section
      class={`card model-card ${catalogReady.value ? '' : 'awaited'}`}
      aria-label="Model"
      aria-busy={!catalogReady.value}
    >
      {catalogReady.value && engine.models.value.length === 0 ? (
        <p class="problem">{catalogProblem.value ?? 'There is no model for this page.'}</p>
      ) : (
        <ModelChoice engine={engine} busy={busy} />
      )}
      <div class="model-card-device">
        <DeviceChoiceField />
        <p class="soft">{state.kind === 'ready' ? readyText(engine) : expectation()}</p>
      </div>
      <div class="model-card-action">
        {state.kind === 'loading' && <LoadingView engine={engine} progress={state.progress} />}
        {state.kind === 'idle' && <LoadButton engine={engine} />}
        {state.kind === 'ready' && <p class="ready">Ready. Nothing that you enter leaves this device.</p>}
        {state.kind === 'failed' && (
          <>
            <ProblemView problem={state.problem} />
            <LoadButton engine={engine} />
          </>
        )}
      </div>
    </section>
  );
}

/** Where a download could not be kept. */
function lostText(engine: Engine): string {
  const cache = engine.session?.info.cache;
  if (cache?.state !== 'off' || engine.model.value?.own) return '';
  return `The model could not be kept on this device, so the next visit downloads it again: ${cache.reason}.`;
}

function readyText(engine: Engine): string {
  const { session } = engine;
  if (!session) return '';
  const { fallbackReason, info } = session;
  const fallback = fallbackReason ? `, since ${fallbackReason}` : '';
  const seconds = (info.loadMs / 1000).toFixed(1);
  return `Runs ${where(session)}${fallback}. Loaded in ${seconds} s. ${lostText(engine)}`.trim();
}

/** One line for where there is a conversation or a picture already: what the model lacks, if anything. */
export function ModelStrip({ engine }: { engine: Engine }) {
  const state = engine.state.value;
  if (state.kind === 'ready') {
    const lost = lostText(engine);
    return lost === '' ? null : (
      <section class="model-strip" aria-label="Model">
        <p class="soft">{lost}</p>
      </section>
    );
  }
  const model = engine.model.value;
  return (
    <section class="model-strip" aria-label="Model">
      {state.kind === 'loading' ? (
        <LoadingView engine={engine} progress={state.progress} />
      ) : (
        <>
          {state.kind === 'failed' ? (
            <ProblemView problem={state.problem} />
          ) : (
            <p>
              {model ? (
                <>
                  <strong>{model.title}</strong> <span class="soft">{modelFacts(model)}</span>
                </>
              ) : (
                catalogProblem.value
              )}
            </p>
          )}
          <LoadButton engine={engine} />
        </>
      )}
    </section>
  );
}

/** For screen readers: one sentence when loading begins, ends or fails. */
export function modelNews(engine: Engine): string {
  const state = engine.state.value;
  switch (state.kind) {
    case 'loading':
      return 'The model is loading.';
    case 'ready':
      return `The model is ready. ${readyText(engine)}`;
    default:
      return ''; // a problem is an alert of its own
  }
}
