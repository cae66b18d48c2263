import { onDevice } from '../model/cache.js';
import { catalogProblem, models, TASKS, type ModelEntry } from '../model/catalog.js';
import { engines } from '../model/engine.js';
import { bytes } from '../model/format.js';

function Row({ model }: { model: ModelEntry }) {
  const { words, page, open } = TASKS[model.task];
  const engine = engines[model.task];
  const state = engine.state.value;
  const loaded = state.kind === 'ready' && state.model.name === model.name;
  return (
    <li class="card model-row">
      <div>
        <h2>{model.title}</h2>
        <p>{words}</p>
      </div>
      <dl>
        <dt>Size</dt>
        <dd>{model.size === undefined ? 'unknown' : bytes(model.size)}</dd>
        <dt>Licence</dt>
        <dd>{model.licence ?? 'not stated'}</dd>
        <dt>Made from</dt>
        <dd>{model.source ?? 'not stated'}</dd>
        <dt>From</dt>
        <dd>{new URL(model.url).host}</dd>
        <dt>Now</dt>
        <dd>{loaded ? 'loaded' : onDevice(model) ? 'on this device' : 'not downloaded'}</dd>
      </dl>
      <a class="button" href={page} onClick={() => engine.choose(model)}>
        {open}
      </a>
    </li>
  );
}

export function ModelsPage() {
  return (
    <main id="main" tabIndex={-1} class="page">
      <div class="page-content">
        <h1>Models</h1>
        <p class="lead">What can run here, and what is on this device already.</p>
        <ul class="models">
          {models.value.map((model) => (
            <Row key={model.name} model={model} />
          ))}
        </ul>
        {models.value.length === 0 && <p>{catalogProblem.value}</p>}
      </div>
    </main>
  );
}
