import type { Capabilities } from 'executorch-webgpu';
import { useEffect, useState } from 'preact/hooks';
import { models } from '../model/catalog.js';
import { askCapabilities, capabilities, isolationNote } from '../model/engine.js';
import { saveFile } from '../shell/controls.js';
import { Icon } from '../shell/icons.js';
import { BenchmarkSection } from './benchmark_section.js';
import { adapterName, deviceReport, features, limits, means, storage, verdict, type Fact } from './facts.js';
import { SelfTestSection } from './selftest_section.js';

function Facts({ facts, caption }: { facts: Fact[]; caption: string }) {
  return (
    <table class="facts">
      <caption class="visually-hidden">{caption}</caption>
      <tbody>
        {facts.map(({ words, value, good, technical }) => (
          <tr key={technical}>
            <th scope="row">
              {words}
              <span class="technical">{technical}</span>
            </th>
            <td class={good === undefined ? '' : good ? 'good' : 'missing'}>{value}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Summary({ found }: { found: Capabilities }) {
  const said = verdict(found);
  const { headline, text, tier } = said;
  return (
    <section class="card summary" aria-label="In short">
      <div>
        <h2>{headline}</h2>
        <p>{text}</p>
        {!found.wasm.crossOriginIsolated && <p class="soft">{isolationNote}</p>}
      </div>
      <dl>
        <dt>Graphics chip</dt>
        <dd>{found.webgpu.available ? adapterName(found.webgpu) : 'none that the browser offers'}</dd>
        <dt>Models use</dt>
        <dd>
          {means(found, said)}
          <span class="technical">{tier}</span>
        </dd>
      </dl>
    </section>
  );
}

function Abilities({ found, kept }: { found: Capabilities; kept: Fact[] }) {
  return (
    <section class="card" aria-label="What it can do">
      <h2>What it can do</h2>
      <Facts caption="What this device can do" facts={[...features(found), ...kept]} />
      {found.webgpu.available && (
        <details>
          <summary>Limits and all features</summary>
          <Facts caption="Limits of the GPU" facts={limits(found)} />
          <p class="technical">{found.webgpu.features.join(', ')}</p>
        </details>
      )}
      <div class="buttons">
        <button
          type="button"
          class="small"
          onClick={() => saveFile('device.json', 'application/json', JSON.stringify(deviceReport(found), null, 2))}
        >
          <Icon name="download" />
          Save as a file
        </button>
      </div>
    </section>
  );
}

export function DevicePage() {
  const [kept, setKept] = useState<Fact[]>();
  useEffect(() => {
    void askCapabilities();
    void storage().then(setKept);
  }, []);
  const found = capabilities.value;
  // all at once: what is known first would be pushed down by the rest
  const ready = found && kept;
  return (
    <main id="main" tabIndex={-1} class="page">
      <div class="page-content sections">
        <header>
          <h1>This device</h1>
          <p class="lead">
            What your browser and your computer offer, and whether models compute correctly and fast on it.
          </p>
        </header>
        {ready ? <Summary found={found} /> : <section class="card summary" aria-busy="true" />}
        {ready && <Abilities found={found} kept={kept} />}
        {ready && models.value.length > 0 && <SelfTestSection />}
        {ready && models.value.length > 0 && <BenchmarkSection />}
      </div>
    </main>
  );
}
