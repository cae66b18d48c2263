import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { forget, kept, keptOf, onDevice, persist, refreshKept, usage } from '../model/cache.js';
import { catalogProblem, catalogReady, models, TASKS, type ModelEntry } from '../model/catalog.js';
import { engines } from '../model/engine.js';
import { bytes } from '../model/format.js';
import { filesOfDrop, filesOfInput, ImportError, importModel, removeOwn, type PickedFile } from '../model/own.js';
import { ModelStrip, modelNews } from '../model/panel.js';
import { useDrop } from '../shell/controls.js';
import { Icon } from '../shell/icons.js';

function presence(model: ModelEntry): string {
  if (model.own) return 'on this device, imported by you';
  const found = keptOf(model);
  if (found?.complete) return `on this device, ${bytes(found.bytes)}`;
  if (found) return `begun: ${bytes(found.bytes)} are on this device`;
  return 'not downloaded';
}

/** Who is asked for the files. */
function origin({ own, url }: ModelEntry): string {
  if (own) return 'your folder';
  const { host } = new URL(url);
  return host === location.host ? 'this site' : host;
}

function Delete({ what, onDelete }: { what: string; onDelete: () => void }) {
  const [sure, setSure] = useState(false);
  return (
    <button
      type="button"
      class="small bad"
      aria-label={sure ? `Really delete ${what}` : `Delete ${what} from this device`}
      onClick={() => (sure ? onDelete() : setSure(true))}
      onBlur={() => setSure(false)}
    >
      <Icon name="trash" />
      {sure ? 'Really delete?' : 'Delete'}
    </button>
  );
}

async function remove(model: ModelEntry): Promise<void> {
  const engine = engines[model.task];
  if (engine.model.value?.name === model.name) await engine.unload();
  await (model.own ? removeOwn(model) : forget(model.url));
}

function Row({ model }: { model: ModelEntry }) {
  const { words, page, open } = TASKS[model.task];
  const engine = engines[model.task];
  const mine = engine.model.value?.name === model.name;
  const state = engine.state.value;
  const loaded = mine && state.kind === 'ready';
  const facts: [string, string][] = [
    ['Size', model.size === undefined ? 'unknown' : bytes(model.size)],
    ['Licence', model.licence ?? 'not stated'],
    ['Weights', model.source ?? 'not stated'],
    ['Files from', origin(model)],
    ['Now', `${presence(model)}${loaded ? ', loaded' : ''}`],
  ];
  const fetch = () => {
    engine.choose(model);
    void engine.ready();
  };
  return (
    <li class="card model-row" aria-label={model.title}>
      <div>
        <h2>{model.title}</h2>
        <p class="soft">{words}</p>
      </div>
      <dl>
        {facts.map(([term, value]) => (
          <>
            <dt>{term}</dt>
            <dd>{value}</dd>
          </>
        ))}
      </dl>
      {mine && (state.kind === 'loading' || state.kind === 'failed') && <ModelStrip engine={engine} />}
      <div class="buttons">
        <a class={`button small ${onDevice(model) ? 'primary' : ''}`} href={page} onClick={() => engine.choose(model)}>
          {open}
        </a>
        {!onDevice(model) && !(mine && state.kind === 'loading') && (
          <button type="button" class="small" onClick={fetch}>
            <Icon name="download" />
            Download
          </button>
        )}
        {(model.own || keptOf(model)) && <Delete what={model.title} onDelete={() => void remove(model)} />}
      </div>
    </li>
  );
}

/** Downloads of models that the list no longer has. */
function Strays() {
  const strays = kept.value.filter(({ url }) => !models.value.some((model) => model.url === url));
  if (strays.length === 0) return null;
  return (
    <section aria-label="Other downloads">
      <h2>Other downloads</h2>
      <ul class="strays">
        {strays.map(({ url, bytes: size }) => (
          <li key={url}>
            <span class="technical">{url}</span>
            <span>{bytes(size)}</span>
            <Delete what={url} onDelete={() => void forget(url)} />
          </li>
        ))}
      </ul>
    </section>
  );
}

const importing = signal('');
const importProblem = signal('');

async function take(files: PickedFile[]): Promise<void> {
  if (files.length === 0 || importing.value) return;
  importProblem.value = '';
  importing.value = 'Looking at the folder…';
  try {
    const model = await importModel(files, (text) => (importing.value = text));
    engines[model.task].choose(model);
  } catch (error) {
    const known = error instanceof ImportError;
    importProblem.value = known ? error.message : `The folder could not be copied: ${String(error)}`;
  }
  importing.value = '';
}

function Import() {
  const input = useRef<HTMLInputElement>(null);
  const over = useDrop((transfer) => void filesOfDrop(transfer).then(take));
  return (
    <section class={`card import ${over ? 'over' : ''}`} aria-label="Your own model">
      <div>
        <h2>Your own model</h2>
        <p class="soft" role="status">
          {importing.value ||
            'Drop a folder that executorch-webgpu exported, or choose one. It is copied into this browser and goes nowhere else.'}
        </p>
        {importProblem.value && (
          <p class="problem" role="alert">
            {importProblem.value}
          </p>
        )}
      </div>
      <input
        ref={input}
        id="folder"
        class="visually-hidden"
        type="file"
        // @ts-expect-error: every browser has it, the types do not
        webkitdirectory={true}
        aria-label="Model folder"
        tabIndex={-1}
        onChange={(e) => void take(filesOfInput(e.currentTarget.files))}
      />
      <button type="button" disabled={importing.value !== ''} onClick={() => input.current?.click()}>
        <Icon name="upload" />
        Choose a folder
      </button>
    </section>
  );
}

/** "118 MB on this device, of 11 GB that the browser allows." */
function Usage() {
  const found = usage.value;
  if (!found) return <p class="usage soft">&nbsp;</p>;
  if (found.reason) return <p class="usage soft">Nothing can be kept here: {found.reason}.</p>;
  const quota = found.quota === undefined ? '' : `, of ${bytes(found.quota)} that the browser allows`;
  return (
    <p class="usage soft">
      {found.bytes > 0
        ? `${bytes(found.bytes)} of models are on this device${quota}.`
        : `No model is on this device yet.`}{' '}
      {found.bytes > 0 && !found.persisted && (
        <button type="button" class="link" onClick={() => void persist()}>
          Ask the browser to keep them
        </button>
      )}
    </p>
  );
}

export function ModelsPage() {
  useEffect(() => void refreshKept(), []);
  return (
    <main id="main" tabIndex={-1} class="page">
      <div class="page-content">
        <h1>Models</h1>
        <p class="lead">What can run here, how large it is, and whether it is on this device already.</p>
        <Usage />
        <ul class="models">
          {models.value.map((model) => (
            <Row key={model.name} model={model} />
          ))}
        </ul>
        {catalogReady.value && models.value.length === 0 && <p>{catalogProblem.value}</p>}
        {/* with the list, which would push them down */}
        {catalogReady.value && <Import />}
        {catalogReady.value && <Strays />}
        <p class="visually-hidden" role="status">
          {Object.values(engines).map(modelNews).join(' ')}
        </p>
      </div>
    </main>
  );
}
