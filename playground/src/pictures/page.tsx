import { useEffect, useRef, useState } from 'preact/hooks';
import { device, where } from '../model/engine.js';
import { milliseconds } from '../model/format.js';
import { ModelCard, ModelStrip, modelNews, ProblemView } from '../model/panel.js';
import { Dialog, useDrop } from '../shell/controls.js';
import { Icon } from '../shell/icons.js';
import * as state from './state.js';

const { cameraAwaited, engine, picture, result, samples, stream } = state;
/** Longest side of the picture on the page, in its own pixels. */
const PREVIEW = 1200;

function Preview({ image }: { image: ImageBitmap }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!canvas.current) return;
    const scale = Math.min(1, PREVIEW / Math.max(image.width, image.height));
    canvas.current.width = Math.round(image.width * scale);
    canvas.current.height = Math.round(image.height * scale);
    canvas.current.getContext('2d')?.drawImage(image, 0, 0, canvas.current.width, canvas.current.height);
  }, [image]);
  return <canvas ref={canvas} role="img" aria-label="Your picture" />;
}

function Camera({ source }: { source: MediaStream }) {
  const video = useRef<HTMLVideoElement>(null);
  useEffect(() => {
    if (!video.current) return;
    video.current.srcObject = source;
    void video.current.play().then(() => state.watch(video.current as HTMLVideoElement, source));
  }, [source]);
  return <video ref={video} muted playsInline aria-label="Camera" />;
}

function Drop() {
  const file = useRef<HTMLInputElement>(null);
  const over = useDrop((transfer) => void state.open(transfer?.files[0]));
  useEffect(() => {
    const onPaste = (event: ClipboardEvent) => void state.open(event.clipboardData?.files[0]);
    addEventListener('paste', onPaste);
    return () => removeEventListener('paste', onPaste);
  }, []);
  const choose = () => file.current?.click();
  return (
    <>
      <div class={`drop ${over ? 'over' : ''}`}>
        {stream.value ? (
          <Camera source={stream.value} />
        ) : picture.value ? (
          <Preview image={picture.value} />
        ) : (
          <div class="drop-hint">
            <Icon name="picture" />
            <p>
              {cameraAwaited.value
                ? 'Waiting for the camera: the browser may ask you first'
                : 'Drop or paste a picture here'}
            </p>
          </div>
        )}
        {/* here, where it is seen on a small screen, too, and moves nothing */}
        {state.problem.value && engine.state.value.kind !== 'failed' && (
          <div class="drop-problem">
            <ProblemView problem={state.problem.value} />
          </div>
        )}
      </div>
      <div class="drop-buttons">
        <input
          ref={file}
          id="file"
          class="visually-hidden"
          type="file"
          accept="image/*"
          aria-label="Picture file"
          tabIndex={-1}
          onChange={(e) => {
            void state.open(e.currentTarget.files?.[0]);
            e.currentTarget.value = '';
          }}
        />
        <button type="button" class={picture.value || stream.value ? '' : 'primary'} onClick={choose}>
          <Icon name="upload" />
          Choose a picture
        </button>
        {stream.value ? (
          <button type="button" onClick={state.stopCamera}>
            <Icon name="stop" />
            Stop the camera
          </button>
        ) : (
          <button type="button" disabled={cameraAwaited.value} onClick={() => void state.startCamera()}>
            <Icon name="camera" />
            {cameraAwaited.value ? 'Waiting for the camera…' : 'Use the camera'}
          </button>
        )}
      </div>
    </>
  );
}

function Samples() {
  if (samples.value?.length === 0) return null;
  const known = samples.value !== undefined;
  // until it is known what there is, its place is kept
  return (
    <section class={`samples-frame ${known ? '' : 'awaited'}`} aria-label="Samples" aria-hidden={!known}>
      <h2 class="soft">Or try one of these</h2>
      <div class="samples">
        {!known && <button type="button" disabled />}
        {samples.value?.map(({ name, url }) => (
          <button
            key={url}
            type="button"
            title={name}
            onClick={() => void fetch(url).then(async (response) => state.open(await response.blob()))}
          >
            <img src={url} alt={name} width={80} height={80} loading="lazy" />
          </button>
        ))}
      </div>
    </section>
  );
}

function Guesses({ guesses, ms }: state.Result) {
  return (
    <>
      <ol class="results">
        {guesses.map(({ label, score }, i) => (
          <li key={i}>
            <span class="name">{label}</span>
            <span class="value">{(100 * score).toFixed(1)} %</span>
            <span class="track">
              <i style={{ width: `${100 * score}%` }} />
            </span>
          </li>
        ))}
      </ol>
      <p class="soft">
        {milliseconds(ms)} a picture{engine.session && ` ${where(engine.session)}`}
      </p>
    </>
  );
}

function Results() {
  const [model, setModel] = useState(false);
  const { session } = engine;
  return (
    <section class="card results-card" aria-label="Result">
      <div class="results-head">
        <h2>{engine.model.value?.title}</h2>
        <button type="button" class="small" onClick={() => setModel(true)}>
          Change
        </button>
      </div>
      {result.value ? (
        <Guesses {...result.value} />
      ) : (
        <p class="soft">
          {picture.value && session ? 'Looking…' : 'Ready. Choose a picture, and see what the model takes it for.'}
        </p>
      )}
      <ModelStrip engine={engine} />
      <Dialog title="Model" open={model} onClose={() => setModel(false)}>
        <ModelCard engine={engine} />
      </Dialog>
    </section>
  );
}

/** Screen readers hear the best guess once; a camera would never stop talking. */
function news(): string {
  if (cameraAwaited.value) return 'Waiting for the camera: the browser may ask you first.';
  const best = result.value?.guesses[0];
  if (best && !stream.value) return `${best.label}, ${Math.round(100 * best.score)} percent`;
  return modelNews(engine);
}

export function PicturesPage() {
  useEffect(() => {
    void state.loadSamples();
    return state.stopCamera;
  }, []);
  // another model or device looks at the same picture again
  const choice = `${engine.model.value?.name} ${device.value}`;
  const seen = useRef(choice);
  useEffect(() => {
    if (seen.current === choice) return;
    seen.current = choice;
    if (picture.value && result.value) void state.show(picture.value);
  }, [choice]);
  const { kind } = engine.state.value;
  // loaded again after a failure
  useEffect(() => {
    if (kind === 'ready' && picture.value && !result.value && !state.looking.value) void state.show(picture.value);
  }, [kind]);
  return (
    <main id="main" tabIndex={-1} class="page">
      <div class="page-content">
        <h1>What is in this picture?</h1>
        <p class="lead">A model on this device names what it sees, of a thousand things that it knows.</p>
        <div class="columns">
          <section aria-label="Picture">
            <Drop />
          </section>
          <Samples />
          <div class="answer">{kind === 'ready' || result.value ? <Results /> : <ModelCard engine={engine} />}</div>
        </div>
        <p class="visually-hidden" role="status">
          {news()}
        </p>
      </div>
    </main>
  );
}
